//! Every algorithm, collective and number of ranks against a plain computation; odd orders; equal bits; the trees.

mod case;
mod two_level;

use super::layout::HostRank;
use super::testing::{Delivery, MemoryMesh, as_ranks};
use super::tree::{Branch, double_tree};
use super::*;
use crate::{Data, Room};
use busbw_model::{Datatype, RedOp};
use case::{Case, Work};
use proptest::prelude::*;

/// Every algorithm over a mesh with every collective that it has.
fn pairs() -> impl Iterator<Item = (Collective, Algorithm)> {
    Collective::ALL.into_iter().flat_map(|collective| {
        let over_mesh = choice::algorithms(collective).iter().filter(|algorithm| algorithm.is_over_mesh());
        over_mesh.map(move |algorithm| (collective, *algorithm))
    })
}

fn runs(collective: Collective, ranks: usize) -> bool {
    collective != Collective::HyperCube || ranks.is_power_of_two()
}

/// Runs `cases` one after the other on the same mesh, as a benchmark does, and checks every rank's result.
fn check(ranks: usize, lanes: usize, delivery: Delivery, cases: &[(Algorithm, Case)]) {
    as_ranks(MemoryMesh::all(ranks, lanes, delivery), |rank, mut mesh| {
        for (algorithm, case) in cases {
            let mut work = Work::new(case, rank, ranks);
            let op = work.operation(case, rank, ranks);
            let result = run(&mut mesh, *algorithm, &op);
            result.unwrap_or_else(|error| panic!("{algorithm} {case:?} on {ranks} ranks, {lanes} lanes: {error}"));
            work.check(case, rank, ranks);
        }
    });
}

const COUNTS: [usize; 5] = [0, 1, 17, 1000, 9001];

#[test]
fn every_algorithm_gives_what_a_plain_computation_gives() {
    // Miri is a thousand times slower.
    let (ranks, counts) = if cfg!(miri) { (3..=3, &COUNTS[2..3]) } else { (1..=9, &COUNTS[..]) };
    for ranks in ranks {
        for lanes in [1, 3] {
            let mut cases = Vec::new();
            for (collective, algorithm) in pairs().filter(|(collective, _)| runs(*collective, ranks)) {
                for in_place in [false, true] {
                    for (number, count) in counts.iter().copied().enumerate() {
                        let root = (number + 1) % ranks;
                        let case = Case { collective, count, root, in_place, ..Case::default() };
                        cases.push((algorithm, case));
                    }
                }
            }
            check(ranks, lanes, Delivery::Prompt, &cases);
        }
    }
}

#[test]
fn every_type_and_operation_is_reduced() {
    let mut cases = Vec::new();
    for (collective, algorithm) in pairs() {
        if !matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce) {
            continue;
        }
        for datatype in [Datatype::Uint8, Datatype::Int32, Datatype::Half, Datatype::Float, Datatype::Double] {
            for redop in [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg] {
                for count in [5, 3000] {
                    let case = Case { collective, datatype, redop, count, root: 1, ..Case::default() };
                    cases.push((algorithm, case));
                }
            }
        }
    }
    for ranks in [2, 3, 4, 7] {
        check(ranks, 2, Delivery::Prompt, &cases);
    }
}

#[test]
fn all_ranks_of_an_all_reduce_get_the_same_bits() {
    for ranks in 2..=9 {
        for (_, algorithm) in pairs().filter(|(collective, _)| *collective == Collective::AllReduce) {
            for count in [3, 40, 5000] {
                let results = as_ranks(MemoryMesh::all(ranks, 2, Delivery::Prompt), |rank, mut mesh| {
                    // Of very different sizes, so that the order of additions shows.
                    let value = |i: usize| ((i * 37 + rank * 101) as f32).sin() * 10f32.powi((i + rank) as i32 % 7);
                    let given: Vec<f32> = (0..count).map(value).collect();
                    let mut result = vec![0f32; count];
                    let case = Case { collective: Collective::AllReduce, count, ..Case::default() };
                    // SAFETY: both vectors outlive the operation.
                    let (send, receive) = unsafe {
                        let given = Data::new(given.as_ptr().cast(), size_of_val(&given[..]));
                        (given, Room::new(result.as_mut_ptr().cast(), size_of_val(&result[..])))
                    };
                    let op = case.operation(send, receive, &[]);
                    run(&mut mesh, algorithm, &op).unwrap();
                    result.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                });
                assert!(results.iter().all(|result| *result == results[0]), "{algorithm} {ranks} {count}");
            }
        }
    }
}

#[test]
fn what_there_is_not_is_an_error() {
    let cases = [
        (
            3,
            Algorithm::Doubling,
            Collective::HyperCube,
            "hypercube needs a power of two of ranks, there are 3; start 4 ranks",
        ),
        (
            2,
            Algorithm::Tree,
            Collective::AllGather,
            "all_gather does not go by tree over connections; choose one of ring, doubling",
        ),
        (
            2,
            Algorithm::Direct,
            Collective::AllToAll,
            "alltoall does not go by direct over connections; choose one of pairwise",
        ),
    ];
    for (ranks, algorithm, collective, expected) in cases {
        for error in as_ranks(MemoryMesh::all(ranks, 1, Delivery::Prompt), |rank, mut mesh| {
            let case = Case { collective, count: 4, ..Case::default() };
            let mut work = Work::new(&case, rank, ranks);
            run(&mut mesh, algorithm, &work.operation(&case, rank, ranks)).unwrap_err()
        }) {
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn a_root_that_is_no_rank_is_refused() {
    for (collective, algorithm) in pairs().filter(|(collective, _)| collective.has_root()) {
        for error in as_ranks(MemoryMesh::all(3, 1, Delivery::Prompt), |_, mut mesh| {
            let case = Case { collective, count: 4, root: 7, ..Case::default() };
            run(&mut mesh, algorithm, &case.operation(Data::NONE, Room::NONE, &[])).unwrap_err()
        }) {
            let expected = format!("{} with root 7: the root is one of 0 to 2", collective.name());
            assert_eq!(error.to_string(), expected, "{algorithm}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn late_messages_in_odd_orders_change_nothing(
        pair in prop::sample::select(pairs().collect::<Vec<_>>()),
        ranks in 2usize..9,
        lanes in 1usize..4,
        count in 0usize..6000,
        root in 0usize..9,
        in_place: bool,
        seed: u64,
    ) {
        let (collective, algorithm) = pair;
        let ranks = if runs(collective, ranks) { ranks } else { 4 };
        let case = Case { collective, count, root: root % ranks, in_place, ..Case::default() };
        let small = Case { count: count % 40, ..case };
        check(ranks, lanes, Delivery::Late(seed), &[(algorithm, case), (algorithm, small), (algorithm, case)]);
    }

    #[test]
    fn both_trees_span_all_ranks_and_share_the_inner_nodes(ranks in 2usize..200, rooted: bool, root in 0usize..200) {
        let root = rooted.then_some(root % ranks);
        let trees: Vec<[Branch; 2]> = (0..ranks).map(|rank| double_tree(rank, ranks, root)).collect();
        for which in [0, 1] {
            let tops = (0..ranks).filter(|rank| trees[*rank][which].parent.is_none()).collect::<Vec<_>>();
            prop_assert_eq!(tops.len(), 1);
            prop_assert!(root.is_none_or(|root| tops[0] == root));
            for rank in 0..ranks {
                for child in trees[rank][which].children.into_iter().flatten() {
                    prop_assert_eq!(trees[child][which].parent, Some(rank));
                }
                if let Some(parent) = trees[rank][which].parent {
                    prop_assert!(trees[parent][which].children.contains(&Some(rank)));
                }
                let path = std::iter::successors(Some(rank), |at| trees[*at][which].parent).take(ranks + 1);
                let depth = path.count();
                prop_assert!(depth <= ranks.next_power_of_two().ilog2() as usize + 2, "{} at depth {}", rank, depth);
            }
        }
        for rank in (0..ranks).filter(|rank| Some(*rank) != root) {
            let inner = trees[rank].iter().filter(|branch| branch.children != [None; 2]).count();
            prop_assert!(inner <= 1, "{} is an inner node of both trees", rank);
        }
    }
}

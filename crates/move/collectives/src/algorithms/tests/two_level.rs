//! Two levels against a plain computation, with a host level that is itself a mesh in memory.

use super::case::{Case, Work};
use super::*;

/// The ranks of a host over a mesh in memory.
struct Host(MemoryMesh);

impl HostCollectives for Host {
    fn run(&mut self, op: &Operation<'_>) -> Result<()> {
        let algorithm = match op.collective {
            Collective::Scatter | Collective::Gather => Algorithm::Pairwise,
            _ => Algorithm::Ring,
        };
        super::run(&mut self.0, algorithm, op)
    }
}

/// Runs `cases` on the layout, each rank with a mesh to its host and one along its rail.
fn check(layout: &Layout, delivery: Delivery, cases: &[Case]) {
    let (ranks, hosts) = (layout.ranks(), layout.hosts());
    let locals = layout.ranks_per_host().unwrap();
    let mut host_ends: Vec<Vec<Option<MemoryMesh>>> =
        (0..hosts).map(|_| MemoryMesh::all(locals, 1, delivery).into_iter().map(Some).collect()).collect();
    let mut rail_ends: Vec<Vec<Option<MemoryMesh>>> =
        (0..locals).map(|_| MemoryMesh::all(hosts, 2, delivery).into_iter().map(Some).collect()).collect();
    let ends = (0..ranks)
        .map(|rank| {
            let HostRank { host, local } = layout.host_rank(rank);
            (host_ends[host][local].take().unwrap(), rail_ends[local][host].take().unwrap())
        })
        .collect();
    as_ranks(ends, |rank, (host, mut rails)| {
        let mut host = Host(host);
        for case in cases {
            let mut work = Work::new(case, rank, ranks);
            let op = work.operation(case, rank, ranks);
            let result = two_level(layout, rank, &mut host, &mut rails, &op);
            result.unwrap_or_else(|error| panic!("{case:?} on {layout:?}: {error}"));
            work.check(case, rank, ranks);
        }
    });
}

const BY_BLOCK: [Collective; 2] = [Collective::AllGather, Collective::ReduceScatter];
const ANY_ORDER: [Collective; 3] = [Collective::AllReduce, Collective::Broadcast, Collective::Reduce];

#[test]
fn two_levels_give_what_a_plain_computation_gives() {
    let by_host = [(2, 2), (3, 2), (2, 3), (4, 2)]
        .map(|(hosts, locals)| Layout::new(&(0..hosts * locals).map(|rank| rank / locals).collect::<Vec<_>>()));
    let round_robin = Layout::new(&[0, 1, 2, 0, 1, 2]);
    for layout in by_host.iter().chain([&round_robin]) {
        let mut cases = Vec::new();
        for collective in BY_BLOCK.into_iter().filter(|_| layout.is_by_host()).chain(ANY_ORDER) {
            for in_place in [false, true] {
                for redop in [RedOp::Sum, RedOp::Avg] {
                    for (root, count) in [0, 1, 3, 500, 5000, 20_001].into_iter().enumerate() {
                        let root = root % layout.ranks();
                        cases.push(Case { collective, redop, count, root, in_place, ..Case::default() });
                    }
                }
            }
        }
        check(layout, Delivery::Prompt, &cases);
        check(layout, Delivery::Late(7), &cases[..cases.len().min(24)]);
    }
}

#[test]
fn a_layout_without_two_levels_is_refused() {
    let cases = [(Layout::new(&[0, 0, 1]), Collective::AllReduce), (Layout::new(&[0, 1, 0, 1]), Collective::AllGather)];
    for (layout, collective) in cases {
        let mut ends = MemoryMesh::all(2, 1, Delivery::Prompt);
        let (mut rails, host) = (ends.pop().unwrap(), ends.pop().unwrap());
        let case = Case { collective, count: 4, ..Case::default() };
        let mut work = Work::new(&case, 0, 4);
        let op = work.operation(&case, 0, 4);
        let error = two_level(&layout, 0, &mut Host(host), &mut rails, &op).unwrap_err();
        assert!(error.to_string().contains("cannot go by two levels"), "{error}");
    }
}

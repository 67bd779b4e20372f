//! Whole communicators of threads: ranks of one host over shared memory, ranks of different hosts over TCP on the loopback.
#![allow(clippy::unwrap_used)] // a test that fails, panics

use busbw_collectives::algorithms;
use busbw_collectives::communicator::{Communicator, Options};
use busbw_collectives::{Data, Operation, Room};
use busbw_model::{Collective, Datatype, RedOp};
use busbw_transport::host::Host;
use busbw_transport::shm::ThreadExchange;
use busbw_transport::{Cancellation, Token, tcp};
use std::sync::{Arc, Mutex};
use std::thread;

/// One test counts the descriptors of the process: no other runs meanwhile.
static TURN: Mutex<()> = Mutex::new(());

/// Joins a rank per entry of `hosts`, which gives the number of its host, and runs `work` on each.
fn on_ranks<T: Send>(hosts: &[u64], algo: &str, work: impl Fn(&mut Communicator) -> T + Sync) -> Vec<T> {
    let cancel = Cancellation::new();
    let token = Token::random().unwrap();
    let world = ThreadExchange::among(hosts.len(), &cancel);
    let mut locals: Vec<Option<ThreadExchange>> = hosts.iter().map(|_| None).collect();
    for host in 0..=*hosts.iter().max().unwrap() {
        let ranks: Vec<usize> = (0..hosts.len()).filter(|&rank| hosts[rank] == host).collect();
        for (rank, exchange) in ranks.iter().zip(ThreadExchange::among(ranks.len(), &cancel)) {
            locals[*rank] = Some(exchange);
        }
    }
    let work = &work;
    thread::scope(|scope| {
        let seats = world.into_iter().zip(locals).zip(hosts);
        let ranks: Vec<_> = seats
            .map(|((mut exchange, local), &host)| {
                let cancel = Arc::clone(&cancel);
                scope.spawn(move || {
                    let options = Options {
                        token,
                        cancel,
                        host: Host::here(&format!("h{host}"), host),
                        choice: algorithms::parse(algo).unwrap(),
                        tcp: tcp::Config::default(),
                        interface_names: Some("lo".into()),
                        address_family: None,
                    };
                    work(&mut Communicator::join(&mut exchange, &mut local.unwrap(), options).unwrap())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn given(rank: usize, index: usize) -> i32 {
    (index * 31 + rank * 7) as i32 % 1009
}

/// What rank `rank` of `size` should have at `index`, for `count` as NCCL counts.
fn expected(collective: Collective, rank: usize, size: usize, count: usize, index: usize) -> i32 {
    let sum = |index| (0..size).map(|rank| given(rank, index)).sum();
    match collective {
        Collective::AllReduce => sum(index),
        Collective::ReduceScatter => sum(rank * count + index),
        Collective::AllGather => given(index / count, index % count),
        Collective::AllToAll => given(index / count, rank * count + index % count),
        _ => given(size - 1, index), // broadcast from the last rank
    }
}

/// Runs a collective out of place and counts what is wrong.
fn wrong(communicator: &mut Communicator, collective: Collective, count: usize) -> usize {
    let (rank, size) = (communicator.rank(), communicator.size());
    let times = |collectives: &[Collective]| if collectives.contains(&collective) { size } else { 1 };
    let gives = count * times(&[Collective::ReduceScatter, Collective::AllToAll]);
    let takes = count * times(&[Collective::AllGather, Collective::AllToAll]);
    let send: Vec<i32> = (0..gives).map(|index| given(rank, index)).collect();
    let mut receive = vec![-1_i32; takes];
    let operation = Operation {
        collective,
        datatype: Datatype::Int32,
        redop: RedOp::Sum,
        count,
        root: size - 1,
        // SAFETY: the vectors outlive the operation, which does not fail.
        send: unsafe { Data::new(send.as_ptr().cast(), 4 * gives) },
        // SAFETY: as above.
        receive: unsafe { Room::new(receive.as_mut_ptr().cast(), 4 * takes) },
        counts: &[],
    };
    communicator.run(&operation).unwrap();
    (0..takes).filter(|&index| receive[index] != expected(collective, rank, size, count, index)).count()
}

#[test]
fn every_layout_and_algorithm_gives_the_same() {
    let _turn = TURN.lock();
    let collectives = [
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Broadcast,
    ];
    for hosts in [&[0][..], &[0, 0], &[0, 1], &[0, 0, 1, 1], &[0, 1, 0, 1], &[0, 0, 1], &[0, 1, 2]] {
        for algo in ["", "ring", "tree", "doubling", "twolevel", "pairwise"] {
            let all_right = on_ranks(hosts, algo, |communicator| {
                collectives
                    .iter()
                    .flat_map(|&c| [1, 1000, 150_000].map(|count| wrong(communicator, c, count)))
                    .sum::<usize>()
            });
            assert!(all_right.iter().all(|&wrong| wrong == 0), "{hosts:?} {algo}: {all_right:?}");
        }
    }
}

#[test]
fn a_thousand_starts_and_stops_leak_no_descriptor() {
    let _turn = TURN.lock();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let start_and_stop = || {
        let wrong = on_ranks(&[0, 0, 1], "", |communicator| wrong(communicator, Collective::AllReduce, 100));
        assert_eq!(wrong, [0, 0, 0]);
    };
    start_and_stop();
    let before = descriptors();
    (0..1000).for_each(|_| start_and_stop());
    assert_eq!(descriptors(), before);
}

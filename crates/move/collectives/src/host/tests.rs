//! Every collective on threads as ranks, against a plain computation.

use super::HostGroup;
use crate::{Data, Operation, Room};
use busbw_model::{Collective, Datatype, RedOp};
use busbw_transport::shm::{Buffer, Group, ThreadExchange};
use busbw_transport::wait::Cores;
use busbw_transport::{Cancellation, Result, Token};
use std::sync::Arc;

/// Where buffers lie, and what the system allows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Memory {
    Window,
    Plain,
    PlainRefused,
    /// Receive buffers in windows, send buffers plain.
    Mixed,
}

enum Held {
    Window(Buffer),
    Plain(Vec<f32>),
}

impl Held {
    fn new(group: &mut HostGroup, window: bool, elements: usize) -> Self {
        if window { Held::Window(group.alloc(elements * 4).unwrap()) } else { Held::Plain(vec![0.0; elements]) }
    }

    fn pointer(&mut self) -> *mut f32 {
        match self {
            Held::Window(buffer) => buffer.as_ptr().cast(),
            Held::Plain(vector) => vector.as_mut_ptr(),
        }
    }
}

/// Runs `body` on `size` threads, each with its group and cancellation, and gives what they return.
fn on_ranks<T: Send>(size: usize, body: impl Fn(HostGroup, Arc<Cancellation>) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().unwrap().get();
    on_ranks_with(if size > cores { Cores::Shared } else { Cores::Own }, size, body)
}

fn on_ranks_with<T: Send>(
    cores: Cores,
    size: usize,
    body: impl Fn(HostGroup, Arc<Cancellation>) -> T + Sync,
) -> Vec<T> {
    let (cancel, token) = (Cancellation::new(), Token::random().unwrap());
    std::thread::scope(|scope| {
        let exchanges = ThreadExchange::among(size, &cancel);
        let rank = |mut exchange: ThreadExchange| {
            let (cancel, body) = (Arc::clone(&cancel), &body);
            scope.spawn(move || {
                let group = Group::join(&mut exchange, token, Arc::clone(&cancel), cores).unwrap();
                body(HostGroup::new(group).unwrap(), cancel)
            })
        };
        let threads: Vec<_> = exchanges.into_iter().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn value(rank: usize, element: usize, salt: usize) -> f32 {
    ((rank * 31 + element * 7 + salt * 5) % 97) as f32
}

/// Elements of the send and the receive buffer, and the offsets of an operation in place in the longer of the two.
fn lengths(collective: Collective, size: usize, rank: usize, count: usize, counts: &[usize]) -> [usize; 4] {
    use Collective::*;
    let row = |rank: usize| counts[rank * size..][..size].iter().sum::<usize>();
    let column = |rank: usize| (0..size).map(|from| counts[from * size + rank]).sum::<usize>();
    match collective {
        AllReduce | Broadcast | Reduce | SendRecv => [count, count, 0, 0],
        AllGather | HyperCube | Gather => [count, count * size, rank * count, 0],
        ReduceScatter | Scatter => [count * size, count, 0, rank * count],
        AllToAll => [count * size, count * size, 0, 0],
        AllToAllV => [row(rank), column(rank), 0, 0],
    }
}

/// What `rank` must hold: element by element, from what all ranks gave. `None`: nothing is said of its receive buffer.
fn expected(operation: &Case, size: usize, rank: usize, salt: usize) -> Option<Vec<f32>> {
    use Collective::*;
    let (count, root) = (operation.count, operation.root(size));
    let sum = |element| (0..size).map(|from| value(from, element, salt)).sum::<f32>();
    let part = |from: usize, start: usize, count| (start..start + count).map(move |element| value(from, element, salt));
    Some(match operation.collective {
        AllReduce => (0..count).map(sum).collect(),
        Reduce if rank == root => (0..count).map(sum).collect(),
        ReduceScatter => (rank * count..(rank + 1) * count).map(sum).collect(),
        Broadcast => part(root, 0, count).collect(),
        SendRecv => part((rank + size - 1) % size, 0, count).collect(),
        AllGather | HyperCube => (0..size).flat_map(|from| part(from, 0, count)).collect(),
        Gather if rank == root => (0..size).flat_map(|from| part(from, 0, count)).collect(),
        Scatter => part(root, rank * count, count).collect(),
        AllToAll => (0..size).flat_map(|from| part(from, rank * count, count)).collect(),
        AllToAllV => {
            let counts = operation.counts(size);
            let start = |from: usize| counts[from * size..][..rank].iter().sum::<usize>();
            (0..size).flat_map(|from| part(from, start(from), counts[from * size + rank])).collect()
        }
        Reduce | Gather => return None,
    })
}

#[derive(Debug, Clone, Copy)]
struct Case {
    collective: Collective,
    count: usize,
    in_place: bool,
    memory: Memory,
}

impl Case {
    fn root(&self, size: usize) -> usize {
        self.count % size
    }

    fn counts(&self, size: usize) -> Vec<usize> {
        (0..size * size).map(|pair| if pair % 3 == 1 { 0 } else { self.count / (1 + pair % 4) }).collect()
    }

    /// Runs the operation once and checks this rank's result.
    fn check(&self, group: &mut HostGroup, salt: usize) {
        let (size, rank) = (group.size(), group.rank());
        let counts = self.counts(size);
        let [send_len, receive_len, send_at, receive_at] = lengths(self.collective, size, rank, self.count, &counts);
        let room = send_len.max(receive_len);
        let send_in_window = self.memory == Memory::Window;
        let mut send = Held::new(group, send_in_window, room);
        let mut receive = Held::new(group, send_in_window || self.memory == Memory::Mixed, room);
        let whole = if self.in_place { send.pointer() } else { receive.pointer() };
        let (from, to) = match self.in_place {
            true => (whole.wrapping_add(send_at), whole.wrapping_add(receive_at)),
            false => (send.pointer(), whole),
        };
        // SAFETY: both buffers hold `room` elements, and no operation is under way.
        unsafe { (0..send_len).for_each(|element| from.add(element).write(value(rank, element, salt))) };
        // SAFETY: both buffers hold `room` elements, and serve nothing else.
        let (send, receive) = unsafe { (Data::new(from.cast(), 4 * send_len), Room::new(to.cast(), 4 * receive_len)) };
        let operation = Operation {
            collective: self.collective,
            datatype: Datatype::Float,
            redop: RedOp::Sum,
            count: self.count,
            root: self.root(size),
            send,
            receive,
            counts: &counts,
        };
        group.run(&operation).unwrap_or_else(|error| panic!("{self:?} on {size} ranks: {error}"));
        if let Some(expected) = expected(self, size, rank, salt) {
            // SAFETY: the operation is over.
            let found = unsafe { std::slice::from_raw_parts(to, receive_len) };
            let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(found.len(), expected.len());
            assert_eq!(wrong, None, "{self:?} on {size} ranks: rank {rank}");
        }
    }
}

/// Elements on both sides of every limit: none, one, beside the flag, one step, a mailbox, several MiB.
const COUNTS: [usize; 13] = [0, 1, 3, 14, 15, 255, 256, 257, 1003, 4096, 4097, 16385, 100_001];

fn check_all(size: usize) {
    for (memory, cores) in [
        (Memory::Window, Cores::Own),
        (Memory::Window, Cores::Shared),
        (Memory::Plain, Cores::Shared),
        (Memory::PlainRefused, Cores::Shared),
        (Memory::Mixed, Cores::Own),
    ] {
        on_ranks_with(cores, size, |mut group, _| {
            if memory == Memory::PlainRefused {
                group.group().refuse_cross_memory();
            }
            for collective in Collective::ALL {
                for in_place in [false, true] {
                    for count in COUNTS {
                        Case { collective, count, in_place, memory }.check(&mut group, 0);
                    }
                }
            }
        });
    }
}

#[test]
fn every_collective_alone() {
    check_all(1);
}

#[test]
fn every_collective_on_2_ranks() {
    check_all(2);
}

#[test]
fn every_collective_on_3_ranks() {
    check_all(3);
}

#[test]
fn every_collective_on_4_ranks() {
    check_all(4);
}

#[test]
fn every_collective_on_5_ranks() {
    check_all(5);
}

#[test]
fn several_mib_beyond_the_caches() {
    for collective in Collective::ALL {
        on_ranks(3, |mut group, _| {
            // As on a host with a small cache: past the caches from here on.
            group.shrink_cache(1 << 20);
            for in_place in [false, true] {
                Case { collective, count: 1_000_003, in_place, memory: Memory::Window }.check(&mut group, 1);
            }
        });
    }
}

/// One operation right after another, on the same buffers: mailboxes and announcements are used in turn.
#[test]
fn thousands_of_operations_in_a_row() {
    for size in [2, 3] {
        on_ranks(size, |mut group, _| {
            let rank = group.rank();
            let mut buffers = [group.alloc(40_000).unwrap(), group.alloc(40_000).unwrap()];
            for round in 0..6000 {
                let count = [1, 14, 900, 2500, 10_000][round * 7 % 5];
                let [from, to] = [0, 1].map(|one: usize| buffers[one].as_ptr().cast::<f32>());
                // SAFETY: both buffers hold 10,000 elements, and no operation is under way.
                unsafe { (0..count).for_each(|element| from.add(element).write(value(rank, element, round))) };
                let collective = [Collective::AllReduce, Collective::Broadcast][round / 3 % 2];
                let case = Case { collective, count, in_place: false, memory: Memory::Window };
                let operation = Operation {
                    collective,
                    datatype: Datatype::Float,
                    redop: RedOp::Sum,
                    count,
                    root: case.root(size),
                    // SAFETY: as above.
                    send: unsafe { Data::new(from.cast(), 40_000) },
                    // SAFETY: as above.
                    receive: unsafe { Room::new(to.cast(), 40_000) },
                    counts: &[],
                };
                group.run(&operation).unwrap();
                // SAFETY: as above.
                let found = unsafe { std::slice::from_raw_parts(to, count) };
                assert_eq!(found, expected(&case, size, rank, round).unwrap(), "round {round} of {count} elements");
                buffers.swap(0, 1);
            }
        });
    }
}

/// Memory freed and allocated anew often has the same address; peers must not take the one for the other.
#[test]
fn buffers_that_come_and_go_are_not_confused() {
    on_ranks(3, |mut group, _| {
        for round in 0..60 {
            let memory = [Memory::Window, Memory::Mixed][round % 2];
            Case { collective: Collective::AllGather, count: 5000, in_place: false, memory }.check(&mut group, round);
        }
    });
}

fn run_plain(group: &mut HostGroup, collective: Collective, count: usize) -> Result<()> {
    let mut memory = vec![0_f32; 2 * count * group.size()];
    let (send, receive) = memory.split_at_mut(count * group.size());
    let operation = Operation {
        collective,
        datatype: Datatype::Float,
        redop: RedOp::Sum,
        count,
        root: 0,
        // SAFETY: both halves hold `count` elements for every rank, and outlive the ranks' use of them.
        send: unsafe { Data::new(send.as_ptr().cast(), size_of_val(send)) },
        // SAFETY: as above.
        receive: unsafe { Room::new(receive.as_mut_ptr().cast(), size_of_val(receive)) },
        counts: &[],
    };
    group.run(&operation)
}

#[test]
fn every_rank_hears_who_disagrees_and_is_still_in_step() {
    // Small among small, large among large, and one of each.
    for (usual, odd) in [(10, 11), (100_000, 100_001), (10, 100_000), (100_000, 10)] {
        let errors = on_ranks(3, |mut group, _| {
            let count = if group.rank() == 1 { odd } else { usual };
            let error = run_plain(&mut group, Collective::AllReduce, count).unwrap_err().to_string();
            run_plain(&mut group, Collective::AllReduce, 100_000).unwrap();
            run_plain(&mut group, Collective::AllReduce, 10).unwrap();
            error
        });
        let expected = format!("local rank 1 runs all_reduce of {odd} elements, not of {usual} as local rank 0 does");
        assert!(errors.iter().all(|error| error.starts_with(&expected)), "{errors:?}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_on_every_rank() {
    let cases = [
        (Collective::Broadcast, 7, "broadcast with root 7: the root is one of 0 to 1"),
        (Collective::AllToAllV, 0, "alltoallv among 2 ranks needs 4 counts, not 0"),
    ];
    for (collective, root, expected) in cases {
        let errors = on_ranks(2, |mut group, _| {
            let (send, receive) = (Data::NONE, Room::NONE);
            let (datatype, redop, counts) = (Datatype::Float, RedOp::Sum, &[][..]);
            let operation = Operation { collective, datatype, redop, count: 4, root, send, receive, counts };
            group.run(&operation).unwrap_err().to_string()
        });
        assert_eq!(errors, [expected, expected]);
    }
}

#[test]
fn cancelling_ends_a_wait_for_a_rank_that_never_comes() {
    for count in [1, 100_000] {
        let results = on_ranks(3, |mut group, cancel| {
            if group.rank() == 2 {
                std::thread::sleep(std::time::Duration::from_millis(20));
                cancel.trigger("rank 2 was told to stop");
                return Ok(());
            }
            run_plain(&mut group, Collective::AllReduce, count).map_err(|error| error.to_string())
        });
        let stopped = || Err("rank 2 was told to stop".to_string());
        assert_eq!(results, [stopped(), stopped(), Ok(())]);
    }
}

#[test]
fn a_rank_that_leaves_early_fails_those_who_wait_for_it() {
    let results = on_ranks(2, |mut group, _| {
        if group.rank() == 1 {
            return Ok(());
        }
        run_plain(&mut group, Collective::AllReduce, 1).map_err(|error| error.to_string())
    });
    let error = results[0].as_ref().unwrap_err();
    assert!(error.starts_with("local rank 1 (process ") && error.contains("closed the connection"), "{error}");
}

//! Meetings whose ranks are threads of this process: what they agree on, and how each kind of fault ends them.

use busbw_launch::{Discovery, JobRank, Launcher, ProcessGroup, Rendezvous, Settings};
use busbw_transport::{Cancellation, Exchange, Token};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A job of `size` processes, each a thread here.
pub struct Job {
    size: usize,
    pub token: Token,
    pub address: SocketAddr,
    timeout: Duration,
    pub lines: Arc<Mutex<Vec<String>>>,
    listener: Mutex<Option<i32>>,
}

impl Job {
    pub fn new(size: usize, timeout: Duration) -> Arc<Job> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Mutex::new(Some(listener.into_raw_fd()));
        Arc::new(Job { size, token: Token::random().unwrap(), address, timeout, lines: Arc::default(), listener })
    }

    pub fn patient(size: usize) -> Arc<Job> {
        Job::new(size, Duration::from_secs(60))
    }

    pub fn job_rank(&self, rank: usize) -> JobRank {
        let listener = if rank == 0 { self.listener.lock().unwrap().take() } else { None };
        let discovery = Discovery::Fixed { address: self.address.to_string(), token: self.token, listener };
        JobRank { rank, size: self.size, local_rank: rank, local_size: None, launcher: Launcher::Busbw, discovery }
    }

    fn open(&self, rank: usize, flags: &str) -> busbw_launch::Result<Rendezvous> {
        let lines = Arc::clone(&self.lines);
        let log = Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()));
        let settings = Settings { timeout: self.timeout, flags: flags.into(), log, ..Settings::default() };
        Rendezvous::open(&self.job_rank(rank), &host(rank), settings)
    }

    /// Runs `work` as each of `ranks`, and gives what each returns.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        ranks: impl IntoIterator<Item = usize>,
        work: impl Fn(ProcessGroup) -> T + Send + Sync + 'static,
    ) -> Vec<Result<T, String>> {
        let work = Arc::new(work);
        let start = |rank| {
            let (job, work) = (Arc::clone(self), Arc::clone(&work));
            std::thread::spawn(move || {
                let rendezvous = job.open(rank, "-b 8 -e 1G").map_err(|error| error.to_string())?;
                let world = rendezvous.join(0, Cancellation::new()).map_err(|error| error.to_string())?;
                Ok(work(world))
            })
        };
        finish(ranks.into_iter().map(start).collect())
    }
}

pub fn finish<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Ranks 0 and 1 on host h0, 2 and 3 on host h1, and so on.
fn host(rank: usize) -> impl Fn(&str) -> Option<String> {
    move |name| matches!(name, "BUSBW_HOST" | "NCCL_HOSTID").then(|| format!("h{}", rank / 2))
}

#[test]
fn everyone_gets_what_everyone_gives() {
    for size in 1..=8 {
        let results = Job::patient(size).run(0..size, move |mut world| {
            let rank = world.rank();
            assert_eq!(world.size(), size);
            let hosts: Vec<String> = world.ranks().iter().map(|info| info.host.clone()).collect();
            assert_eq!(hosts, (0..size).map(|rank| format!("h{}", rank / 2)).collect::<Vec<_>>());
            for round in 0..3 {
                let gathered = world.all_gather(&vec![rank as u8; rank + round]).unwrap();
                assert_eq!(gathered, (0..size).map(|rank| vec![rank as u8; rank + round]).collect::<Vec<_>>());
            }
            world.barrier().unwrap();
            let root = size - 1;
            let gathered = world.gather(root, &[rank as u8]).unwrap();
            let all = (0..size).map(|rank| vec![rank as u8]).collect::<Vec<_>>();
            assert_eq!(gathered, if rank == root { all } else { vec![] });
            assert!(world.gather(size, b"").is_err());
            world.leave().unwrap();
        });
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
}

#[test]
fn groups_of_a_split_exchange_by_themselves() {
    let results = Job::patient(6).run(0..6, |mut world| {
        let rank = world.rank();
        let mut host = world.split_by_host().unwrap();
        assert_eq!(host.ranks(), [rank / 2 * 2, rank / 2 * 2 + 1]);
        // Even and odd ranks, the last first.
        let mut parity = world.split(rank as i64 % 2, -(rank as i64)).unwrap();
        let expected: Vec<usize> = (0..6).rev().filter(|other| other % 2 == rank % 2).collect();
        assert_eq!(parity.ranks(), expected);
        assert_eq!(parity.ranks()[parity.rank()], rank);
        let gathered = parity.all_gather(&[rank as u8]).unwrap();
        assert_eq!(gathered.concat(), expected.iter().map(|&rank| rank as u8).collect::<Vec<_>>());
        assert_eq!(host.all_gather(&[rank as u8]).unwrap().concat(), [rank as u8 / 2 * 2, rank as u8 / 2 * 2 + 1]);
        let alone = parity.split(rank as i64, 0).unwrap();
        assert_eq!((alone.size(), alone.ranks()), (1, &[rank][..]));
        host.barrier().unwrap();
        world.leave().unwrap();
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[test]
fn threads_of_one_process_are_ranks() {
    let job_rank = JobRank::detect(&|_| None).unwrap();
    let settings = Settings { ranks_per_process: 5, ..Settings::default() };
    let rendezvous = Rendezvous::open(&job_rank, &host(0), settings).unwrap();
    assert_eq!((rendezvous.size(), rendezvous.first_rank()), (5, 0));
    assert!(rendezvous.join(5, Cancellation::new()).is_err());
    std::thread::scope(|scope| {
        for thread in 0..5 {
            let rendezvous = &rendezvous;
            scope.spawn(move || {
                let mut world = rendezvous.join(thread, Cancellation::new()).unwrap();
                assert_eq!(world.all_gather(&[thread as u8]).unwrap().concat(), [0, 1, 2, 3, 4]);
                world.leave().unwrap();
            });
        }
    });
}

/// Waits in a barrier that never comes about, and gives the reason.
fn wait_in_vain(mut world: ProcessGroup) -> String {
    let cancel = Arc::clone(world.cancellation());
    let error = world.barrier().unwrap_err().to_string();
    assert_eq!(cancel.reason(), Some(error.clone()));
    error
}

#[test]
fn a_rank_that_dies_is_named_to_all_others() {
    for victim in 0..4 {
        let results = Job::patient(4).run(0..4, move |world| {
            if world.rank() == victim {
                drop(world)
            } else {
                return Some(wait_in_vain(world));
            };
            None
        });
        let pid = std::process::id();
        let expected = format!(
            "rank {victim} on host h{} (pid {pid}) closed its connection: its process has ended; look at its output",
            victim / 2
        );
        for result in results {
            assert!(matches!(&result, Ok(None)) || result == Ok(Some(expected.clone())), "{result:?}");
        }
    }
}

#[test]
fn an_error_of_a_rank_is_told_to_all_others() {
    let results = Job::patient(4).run(0..4, |world| match world.rank() {
        2 => world.fail("cannot map 1 GiB"),
        _ => wait_in_vain(world),
    });
    let expected = format!("rank 2 on host h1 (pid {}): cannot map 1 GiB", std::process::id());
    assert_eq!(results, vec![Ok(expected); 4]);
}

#[test]
fn cancelling_elsewhere_in_the_process_is_told_too() {
    let results = Job::patient(3).run(0..3, |world| {
        if world.rank() == 1 {
            world.cancellation().trigger("the shared memory is gone");
        }
        wait_in_vain_of(world)
    });
    let told = format!("rank 1 on host h0 (pid {}): the shared memory is gone", std::process::id());
    assert_eq!(results[0], Ok(told.clone()));
    assert_eq!(results[2], Ok(told));
}

/// As [`wait_in_vain`], but stays seated until the others must have been told.
fn wait_in_vain_of(mut world: ProcessGroup) -> String {
    let error = world.barrier().unwrap_err().to_string();
    world.fail(&error)
}

#[test]
fn the_first_cause_wins_over_its_consequences() {
    // Rank 3 dies; ranks 1 and 2 notice by themselves, and report it before the server does.
    let results = Job::patient(4).run(0..4, |world| match world.rank() {
        3 => {
            std::thread::sleep(Duration::from_millis(100));
            drop(world);
            String::new()
        }
        0 => wait_in_vain(world),
        rank => world.fail(&format!("10.0.0.4:4711 closed the connection (seen by {rank})")),
    });
    for result in &results[..3] {
        assert!(result.as_ref().unwrap().starts_with("rank 3 on host h1"), "{result:?}");
    }
}

#[test]
fn a_silent_rank_is_named_after_the_timeout() {
    let job = Job::new(3, Duration::from_secs(3));
    // A rank 2 that comes in by hand and then says nothing more: as if it were stopped.
    let silent = {
        let job = Arc::clone(&job);
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(job.address).unwrap();
            crate::strangers::shake_hands(&mut stream, job.token).unwrap();
            // As postcard writes it: Hello, rank 2, size 3, host "h1", pid 123, flags, host id, an IPv4 address.
            let flags = "-b 8 -e 1G";
            let hello =
                [&[0, 2, 3, 2][..], b"h1", &[123, flags.len() as u8], flags.as_bytes(), &[9, 0, 0, 0, 0, 0]].concat();
            stream.write_all(&[&(hello.len() as u32).to_le_bytes()[..], &hello].concat()).unwrap();
            let mut all = Vec::new();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let _ = stream.read_to_end(&mut all);
            all
        })
    };
    let results = job.run(0..2, wait_in_vain);
    let expected = "rank 2 on host h1 (pid 123) has not answered for 3 s: stopped, or its host or cable is cut off";
    assert_eq!(results, vec![Ok(expected.to_owned()); 2]);
    let told = silent.join().unwrap();
    assert!(String::from_utf8_lossy(&told).contains(expected));
}

#[test]
fn ranks_that_live_and_get_nothing_done_are_named() {
    let results = Job::new(3, Duration::from_secs(3)).run(0..3, |world| {
        if world.rank() == 1 {
            // Alive, in no operation, while the others wait.
            let cancel = Arc::clone(world.cancellation());
            while cancel.reason().is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            return cancel.reason().unwrap();
        }
        wait_in_vain(world)
    });
    for result in results {
        let line = result.unwrap();
        assert!(line.starts_with("rank 1 on host h0") && line.contains("has made no progress for 3 s"), "{line}");
    }
    // All in an operation: who has done least.
    let results = Job::new(2, Duration::from_secs(3)).run(0..2, |world| {
        world.enter();
        (0..2 + world.rank()).for_each(|_| world.cancellation().advance());
        let cancel = Arc::clone(world.cancellation());
        while cancel.reason().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        cancel.reason().unwrap()
    });
    assert!(results.iter().all(|line| line.as_ref().unwrap().starts_with("rank 0 on host h0")), "{results:?}");
}

#[test]
fn ranks_that_never_arrive_are_listed() {
    let results = Job::new(5, Duration::from_secs(1)).run([0, 2], |_| ());
    for result in results {
        let line = result.unwrap_err();
        assert!(line.starts_with("ranks 1, 3 and 4 did not arrive within 1 s: check that"), "{line}");
    }
    let line = Job::new(2, Duration::from_secs(1)).run([1], |_| ())[0].clone().unwrap_err();
    // The listener of this test exists, but rank 0 never answers there.
    assert!(line.starts_with("rank 1 on host h0 did not reach rank 0 at 127.0.0.1:"), "{line}");
}

#[test]
fn flags_that_disagree_end_every_rank_with_both() {
    let job = Job::patient(3);
    let start = |rank: usize| {
        let job = Arc::clone(&job);
        std::thread::spawn(move || {
            let rendezvous = job.open(rank, if rank == 2 { "-b 8 -e 2G" } else { "-b 8 -e 1G" }).unwrap();
            rendezvous.join(0, Cancellation::new()).map(drop).unwrap_err().to_string()
        })
    };
    for line in finish((0..3).map(start).collect::<Vec<_>>()) {
        let says = "rank 2 on host h1 (pid ";
        assert!(
            line.starts_with(says) && line.contains(r#"started with "-b 8 -e 2G", rank 0 with "-b 8 -e 1G""#),
            "{line}"
        );
    }
}

#[test]
fn sizes_that_disagree_and_ranks_that_come_twice() {
    let job = Job::patient(2);
    let too_large = Arc::clone(&job);
    let thread = std::thread::spawn(move || {
        let job_rank = JobRank { rank: 3, size: 4, ..too_large.job_rank(3) };
        let rendezvous =
            Rendezvous::open(&job_rank, &host(3), Settings { flags: "-b 8 -e 1G".into(), ..Settings::default() })
                .unwrap();
        rendezvous.join(0, Cancellation::new()).map(drop).unwrap_err().to_string()
    });
    let line = job.run([0], |_| ())[0].clone().unwrap_err();
    assert!(line.contains("takes part in a job of 4 ranks, rank 0 in one of 2"), "{line}");
    assert_eq!(thread.join().unwrap(), line);
    for result in Job::patient(3).run([0, 1, 1], |_| ()) {
        let line = result.unwrap_err();
        assert!(line.contains("arrived where rank 1 on host h0"), "{line}");
    }
}

#[test]
fn steps_that_disagree_are_an_error_and_no_hang() {
    let results = Job::patient(2).run(0..2, |mut world| match world.rank() {
        0 => world.barrier().unwrap_err().to_string(),
        _ => world.all_gather(b"").unwrap_err().to_string(),
    });
    for result in results {
        assert!(result.as_ref().unwrap().contains("where others asked for"), "{result:?}");
    }
}

#[test]
fn two_hundred_meetings_leave_neither_descriptors_nor_threads() {
    let held = || ["fd", "task"].map(|kind| std::fs::read_dir(format!("/proc/self/{kind}")).unwrap().count());
    let once = || {
        let results = Job::patient(2).run(0..2, |mut world| {
            world.barrier().unwrap();
            world.leave().unwrap();
        });
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    };
    once();
    let before = held();
    (0..200).for_each(|_| once());
    let after = held();
    // Tests that run beside this one hold some tens at most; 200 leaks would be hundreds.
    assert!(after.iter().zip(before).all(|(after, before)| *after < before + 100), "{before:?} {after:?}");
}

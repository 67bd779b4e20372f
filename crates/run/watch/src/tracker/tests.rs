//! Samples of made-up jobs, second by second.

use super::*;
use busbw_model::ProcessState;
use busbw_probe::processes::{Identity, Timer};

const SECOND: u64 = 1_000_000;
const RANKS: u32 = 4;

/// What a rank does in a second.
#[derive(Clone, Copy)]
struct Second {
    carried: u64,
    cpu_us: u64,
    state: ProcessState,
}

const WAITS: Second = Second { carried: 0, cpu_us: 10_000, state: ProcessState::Sleeping };
const MOVES: Second = Second { carried: 1 << 20, cpu_us: 300_000, state: ProcessState::Sleeping };
const WORKS: Second = Second { carried: 0, cpu_us: 900_000, state: ProcessState::Running };
const STOPPED: Second = Second { carried: 0, cpu_us: 0, state: ProcessState::Stopped };

/// A job whose ranks are connected in a ring, looked at once a second.
struct Job {
    tracker: Tracker,
    ranks: Vec<RankSample>,
    now: u64,
}

impl Job {
    fn new(limit: u64) -> Self {
        let end = |port: u16| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        let rank = |rank: u32| {
            let connection = Connection {
                inode: rank.into(),
                local: end(1000 + rank as u16),
                remote: end(1000 + ((rank + 1) % RANKS) as u16),
                state: 1,
                unacknowledged: 0,
                unread: 0,
                timer: Timer::None,
                retransmits: 0,
                carried: Some(0),
            };
            let identity = Identity { rank, size: RANKS, ..Identity::default() };
            RankSample {
                identity,
                pid: 100 + rank,
                connections: vec![connection],
                readable: true,
                ..RankSample::default()
            }
        };
        Job { tracker: Tracker::new("a", Duration::from_secs(limit)), ranks: (0..RANKS).map(rank).collect(), now: 0 }
    }

    /// A second, rank by rank; what is wrong then.
    fn pass(&mut self, what: [Second; 4]) -> Option<Trouble> {
        self.now += SECOND;
        for (rank, second) in self.ranks.iter_mut().zip(what) {
            rank.cpu_us += second.cpu_us;
            rank.state = second.state;
            let carried = &mut rank.connections[0].carried;
            *carried = carried.map(|bytes| bytes + second.carried);
        }
        self.tracker.feed(&JobSample { time_us: self.now, ranks: self.ranks.clone(), ..JobSample::default() });
        self.tracker.trouble()
    }

    fn facts(&self) -> Watched {
        self.tracker.document(|_, _| None, Vec::new())
    }
}

#[test]
fn a_standstill_is_told_after_its_limit_and_taken_back() {
    let mut job = Job::new(10);
    assert_eq!((0..30).find_map(|_| job.pass([MOVES; 4])), None);
    let told = (1..).find(|_| job.pass([WAITS; 4]) == Some(Trouble::Stalled));
    assert_eq!(told, Some(10));
    let stall = job.facts().stall.expect("it stands still");
    assert_eq!((stall.since_us, stall.limit_us), (30 * SECOND, 10 * SECOND));
    assert_eq!(job.pass([MOVES, WAITS, WAITS, WAITS]), None);
    assert_eq!(job.tracker.limit(), Duration::from_secs(30), "three times what the job has overcome");
}

#[test]
fn a_stop_is_told_within_two_samples_and_a_debuggers_glance_is_none() {
    let mut job = Job::new(1000);
    job.pass([MOVES; 4]);
    assert_eq!(job.pass([WAITS, WAITS, STOPPED, WAITS]), None);
    assert_eq!(job.pass([MOVES; 4]), None);
    assert_eq!(job.pass([WAITS, WAITS, STOPPED, WAITS]), None);
    assert_eq!(job.pass([WAITS, WAITS, STOPPED, WAITS]), Some(Trouble::Stopped));
    assert_eq!(job.facts().ranks[2].state_since_us, 4 * SECOND);
    // Somebody stopped the whole job, as Ctrl-Z does.
    let mut job = Job::new(1000);
    assert_eq!((0..5).find_map(|_| job.pass([STOPPED; 4])), None);
}

#[test]
fn ends_are_told_at_once_unless_all_were_asked_to_end() {
    let ended = |pid, wait_status| Ended { pid, time_us: 7, wait_status: Some(wait_status) };
    let mut job = Job::new(1000);
    job.pass([MOVES; 4]);
    job.tracker.ended(ended(102, 1 << 8));
    assert_eq!(job.tracker.trouble(), Some(Trouble::Ended));
    assert_eq!(job.facts().ranks[2].ended, Some(ProcessEnd { time_us: 7, status: Some(1), signal: None }));
    let mut job = Job::new(1000);
    job.pass([MOVES; 4]);
    (100..104).for_each(|pid| job.tracker.ended(ended(pid, 15)));
    assert_eq!(job.tracker.trouble(), None);
    // One was asked, and the others are left behind.
    let mut job = Job::new(1000);
    job.pass([MOVES; 4]);
    job.tracker.ended(ended(103, 15));
    job.ranks.pop();
    assert_eq!(job.pass([WAITS; 4]), None);
    assert_eq!(job.pass([WAITS; 4]), Some(Trouble::Ended));
    // A job that ends well.
    let mut job = Job::new(1000);
    job.pass([MOVES; 4]);
    (100..104).for_each(|pid| job.tracker.ended(ended(pid, 0)));
    assert_eq!(job.tracker.trouble(), None);
}

#[test]
fn who_acknowledges_nothing_is_known_with_its_time() {
    let mut job = Job::new(1000);
    job.pass([MOVES; 4]);
    let cut = &mut job.ranks[0].connections[0];
    (cut.timer, cut.retransmits, cut.unacknowledged) = (Timer::Retransmit, 4, 9000);
    cut.remote = ([10, 0, 0, 9], 5).into();
    job.pass([WAITS; 4]);
    job.pass([WAITS; 4]);
    let facts = job.facts();
    let [peer] = &facts.ranks[0].peers[..] else { panic!("{:?}", facts.ranks[0].peers) };
    assert_eq!((peer.unacknowledged_bytes, peer.unanswered_since_us, peer.rank), (9000, Some(2 * SECOND), None));
    assert!(peer.remote);
    assert_eq!(facts.ranks[1].peers[0].rank, None, "its other end is not in the ring of one-way connections");
}

/// Sound jobs: steps of up to four fifths of the limit, in which ranks wait or work; saving and evaluating, on one rank or on all, for
/// up to nine times the limit; beginnings that last. None is told to hang.
#[test]
fn a_thousand_sound_jobs_raise_nothing() {
    const LIMIT: u64 = 30;
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for number in 0..1000 {
        let mut job = Job::new(LIMIT);
        let (wait, work) = (random(LIMIT * 4 / 5), random(LIMIT * 2));
        for _ in 0..random(1000) {
            assert_eq!(job.pass([WAITS; 4]), None, "job {number} begins");
        }
        for step in 0..20 {
            let mut seconds = vec![[MOVES; 4]; 1 + random(3) as usize];
            seconds.extend(vec![[WAITS; 4]; wait as usize]);
            seconds.extend(vec![[WORKS; 4]; work as usize]);
            if step % 7 == 3 {
                let alone = [[WORKS, WAITS, WAITS, WAITS], [WORKS; 4]][random(2) as usize];
                seconds = vec![[MOVES; 4]];
                seconds.extend(vec![alone; random(LIMIT * 9) as usize]);
            }
            for second in seconds {
                let trouble = job.pass(second);
                assert_eq!(trouble, None, "job {number}, step {step}: waits {wait} s, works {work} s");
            }
        }
    }
}

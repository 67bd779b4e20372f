//! What ranks wait for in Gloo's collectives where one takes no part, or nothing gets through to some of them.
//!
//! The order of sends, receives and waits is that of gloo/allreduce.cc (its ring), allgather.cc, broadcast.cc and barrier.cc. What is sent leaves once
//! the other end has asked for it (gloo/transport/tcp/pair.cc), so who waits for what at last does not depend on how fast anybody is; but where a
//! cable is cut, on who had come before.

use std::collections::VecDeque;

/// Groups of more ranks are not looked at: the work grows with the cube of their number.
pub(super) const MOST_RANKS: usize = 32;

/// What a rank waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Send,
    Receive,
}

/// Where a rank stands for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stuck {
    pub wait: Wait,
    /// With whom it has a send or a receive that is not done: it hears when these close their connection.
    pub peers: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send(usize),
    Receive(usize),
    Await(Wait),
}

/// A collective of so many ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    AllReduce,
    AllGather,
    Broadcast,
    Barrier,
}

impl Algorithm {
    /// By a function of `torch.distributed`, or as the flight recorder names it. DistributedDataParallel, which is in none, reduces gradients.
    pub fn named(operation: Option<&str>) -> Option<Self> {
        match operation.unwrap_or("all_reduce").to_ascii_lowercase().replace('_', "").as_str() {
            "allreduce" => Some(Algorithm::AllReduce),
            "allgather" | "allgatherbase" | "allgatherintotensor" => Some(Algorithm::AllGather),
            "broadcast" => Some(Algorithm::Broadcast),
            "barrier" => Some(Algorithm::Barrier),
            _ => None,
        }
    }

    /// What a rank does, in order; of a broadcast, where rank 0 sends.
    fn steps(self, rank: usize, ranks: usize, elements: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        match self {
            Algorithm::AllReduce => {
                ring(&mut steps, [rank + 1, rank + 2], rank, ranks, elements);
                ring(&mut steps, [rank, rank + 1], rank, ranks, elements);
            }
            Algorithm::AllGather => {
                let halves = 2 * (ranks - 1);
                for half in 0..halves + 2 {
                    if half >= 2 {
                        steps.extend([Step::Await(Wait::Send), Step::Await(Wait::Receive)]);
                    }
                    if half < halves {
                        steps.extend([Step::Send((rank + 1) % ranks), Step::Receive((rank + ranks - 1) % ranks)]);
                    }
                }
            }
            Algorithm::Broadcast => {
                let (bits, mut sends) = (ranks.next_power_of_two().trailing_zeros(), 0);
                let rounds = (0..bits).map(|bit| 1 << bit).filter(|bit| rank < 2 * bit && rank ^ bit < ranks);
                for bit in rounds {
                    if rank & bit == 0 {
                        steps.push(Step::Send(rank ^ bit));
                        sends += 1;
                    } else {
                        steps.extend([Step::Receive(rank ^ bit), Step::Await(Wait::Receive)]);
                    }
                }
                steps.extend(std::iter::repeat_n(Step::Await(Wait::Send), sends));
            }
            Algorithm::Barrier => {
                let mut distance = 1;
                while distance < ranks {
                    let ends =
                        [Step::Receive((rank + ranks - distance) % ranks), Step::Send((rank + distance) % ranks)];
                    steps.extend(ends.into_iter().chain([Wait::Receive, Wait::Send].map(Step::Await)));
                    distance *= 2;
                }
            }
        }
        steps
    }

    /// What each rank waits for at last: nothing where it gets to the end, or takes no part. `open`: whether anything gets from one rank to another;
    /// `early`: who had come, and gone as far as these let each other, when all was open yet.
    pub fn waits(
        self,
        (ranks, elements): (usize, usize),
        absent: Option<usize>,
        open: &dyn Fn(usize, usize) -> bool,
        early: &dyn Fn(usize) -> bool,
    ) -> Vec<Option<Stuck>> {
        let steps = |rank| if absent == Some(rank) { Vec::new() } else { self.steps(rank, ranks, elements) };
        let mut all: Vec<Progress> =
            (0..ranks).map(|rank| Progress { steps: steps(rank), ..Progress::default() }).collect();
        let none = vec![[0; 2]; ranks * ranks];
        let mut channels = Channels { ranks, counts: none.clone(), passed: none };
        channels.run(&mut all, early, &|_, _| true);
        channels.passed = channels.counts.iter().map(|[sent, asked]| [*asked, *sent.min(asked)]).collect();
        channels.run(&mut all, &|_| true, open);
        all.iter().map(|one| one.stuck(&channels, open)).collect()
    }
}

/// One of the two halves of Gloo's ring: to which parts a rank's first send and receive belong. Every rank has two segments of the whole; those that
/// have no elements are not sent.
fn ring(steps: &mut Vec<Step>, [sent, received]: [usize; 2], rank: usize, ranks: usize, elements: usize) {
    let segments = 2 * ranks;
    let has = |part: usize, turn: usize| (2 * part + turn) % segments * elements.div_ceil(segments) < elements;
    for turn in 0..segments {
        if turn >= 2 {
            let before = turn - 2;
            steps.extend(has(received, before).then_some(Step::Await(Wait::Receive)));
            steps.extend(has(sent, before).then_some(Step::Await(Wait::Send)));
        }
        if turn < segments - 2 {
            steps.extend(has(received, turn).then_some(Step::Receive((rank + 1) % ranks)));
            steps.extend(has(sent, turn).then_some(Step::Send((rank + ranks - 1) % ranks)));
        }
    }
}

/// What goes from each rank to each other.
struct Channels {
    ranks: usize,
    /// How much was sent, and asked for.
    counts: Vec<[usize; 2]>,
    /// How much was asked for, and arrived, when all was open yet: such a send is done, whatever becomes of the data.
    passed: Vec<[usize; 2]>,
}

/// From whom to whom, and how many of that channel came before.
type Message = (usize, usize, usize);

impl Channels {
    fn between(&mut self, from: usize, to: usize) -> &mut [usize; 2] {
        &mut self.counts[from * self.ranks + to]
    }

    /// Lets some ranks go as far as they get.
    fn run(&mut self, all: &mut [Progress], come: &dyn Fn(usize) -> bool, open: &dyn Fn(usize, usize) -> bool) {
        let mut moved = true;
        while moved {
            moved = false;
            for (rank, one) in all.iter_mut().enumerate().filter(|(rank, _)| come(*rank)) {
                moved |= one.go_on(rank, self, open);
            }
        }
    }

    fn is_done(&self, wait: Wait, (from, to, before): Message, open: &dyn Fn(usize, usize) -> bool) -> bool {
        let at = from * self.ranks + to;
        let [sent, asked] = self.counts[at];
        let [asked_then, arrived] = self.passed[at];
        before < if wait == Wait::Send { asked_then } else { arrived } || open(from, to) && before < sent.min(asked)
    }
}

/// How far a rank is.
#[derive(Default)]
struct Progress {
    steps: Vec<Step>,
    at: usize,
    /// What it has sent and asked for, and not waited for.
    sent: VecDeque<Message>,
    asked: VecDeque<Message>,
}

impl Progress {
    /// Goes as far as others let it; whether it moved.
    fn go_on(&mut self, rank: usize, channels: &mut Channels, open: &dyn Fn(usize, usize) -> bool) -> bool {
        let began = self.at;
        while let Some(step) = self.steps.get(self.at) {
            match *step {
                Step::Send(to) => {
                    let [sent, _] = channels.between(rank, to);
                    self.sent.push_back((rank, to, *sent));
                    *sent += 1;
                }
                Step::Receive(from) => {
                    let [_, asked] = channels.between(from, rank);
                    self.asked.push_back((from, rank, *asked));
                    *asked += 1;
                }
                Step::Await(wait) => {
                    let queue = if wait == Wait::Send { &mut self.sent } else { &mut self.asked };
                    if !queue.front().is_some_and(|message| channels.is_done(wait, *message, open)) {
                        break;
                    }
                    queue.pop_front();
                }
            }
            self.at += 1;
        }
        self.at > began
    }

    fn stuck(&self, channels: &Channels, open: &dyn Fn(usize, usize) -> bool) -> Option<Stuck> {
        let Some(Step::Await(wait)) = self.steps.get(self.at) else { return None };
        let pending = |wait: Wait| move |message: &&Message| !channels.is_done(wait, **message, open);
        let sent = self.sent.iter().filter(pending(Wait::Send)).map(|(_, to, _)| *to);
        let asked = self.asked.iter().filter(pending(Wait::Receive)).map(|(from, ..)| *from);
        Some(Stuck { wait: *wait, peers: sent.chain(asked).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(waits: &[Option<Stuck>]) -> String {
        let letter = |stuck: &Option<Stuck>| match stuck.as_ref().map(|stuck| stuck.wait) {
            Some(Wait::Send) => 's',
            Some(Wait::Receive) => 'r',
            None => '.',
        };
        waits.iter().map(letter).collect()
    }

    /// What Gloo of PyTorch 2.15 reported (`tests/data/hangs`); of the rank that is absent nothing is known.
    #[test]
    fn ranks_wait_as_real_ones_did() {
        use Algorithm::{AllGather, AllReduce, Barrier, Broadcast};
        let cases = [
            (AllReduce, 4, 49_665, 0, ".srr"),
            (AllReduce, 6, 3, 1, "r.srrr"),
            (AllReduce, 3, 1, 1, "r.s"),
            (AllReduce, 4, 16, 3, "srr."),
            (AllReduce, 6, 12, 5, "ssrrr."),
            (AllGather, 3, 1, 0, ".rs"),
            (AllGather, 4, 1, 1, "s.rs"),
            (Broadcast, 4, 1, 0, ".rrr"),
            (Barrier, 2, 1, 0, ".r"),
        ];
        for (algorithm, ranks, elements, absent, expected) in cases {
            let found = told(&algorithm.waits((ranks, elements), Some(absent), &|_, _| true, &|_| false));
            let known = found.chars().zip(expected.chars()).all(|(a, b)| b == '.' || a == b);
            assert!(known, "{algorithm:?} of {ranks} without {absent}: {found}, not {expected}");
        }
    }

    #[test]
    fn all_get_to_the_end_where_nothing_is_in_the_way() {
        for algorithm in [Algorithm::AllReduce, Algorithm::AllGather, Algorithm::Broadcast, Algorithm::Barrier] {
            for (ranks, elements) in [(2, 1), (3, 2), (5, 1000), (8, 17), (MOST_RANKS, 100)] {
                let waits = algorithm.waits((ranks, elements), None, &|_, _| true, &|_| false);
                assert!(waits.iter().all(Option::is_none), "{algorithm:?} of {ranks}: {}", told(&waits));
            }
        }
    }

    /// A host of two of six ranks: both ends of what is cut wait to send, and so does who sends to one of them.
    #[test]
    fn a_host_that_is_cut_off_shows() {
        let of_host = |rank: usize| rank / 2 == 1;
        let open = |one: usize, other: usize| of_host(one) == of_host(other);
        let waits = Algorithm::AllReduce.waits((6, 1000), None, &open, &|_| false);
        assert_eq!(told(&waits), "rrsrss");
        // Rank 1 hears when rank 0 closes its connection, or when rank 2 does, which it would not.
        assert_eq!(waits[2].as_ref().map(|stuck| stuck.peers.as_slice()), Some(&[1, 1][..]));
    }

    /// Ranks 2 and 3 had come: what rank 2 had asked rank 3 for counts as sent there, though it no longer arrives.
    #[test]
    fn who_came_before_a_cable_was_cut_may_wait_for_something_else() {
        let open = |one: usize, other: usize| (one == 2) == (other == 2);
        let waits = |early: &dyn Fn(usize) -> bool| told(&Algorithm::AllReduce.waits((4, 1000), None, &open, early));
        assert_eq!((waits(&|_| false), waits(&|rank| rank >= 2)), ("rrrs".into(), "rrss".into()));
    }
}

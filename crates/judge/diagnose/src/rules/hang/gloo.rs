//! What ranks wait for in Gloo's collectives where one takes no part, or nothing gets through to some of them.
//!
//! The order of sends, receives and waits is that of gloo/allreduce.cc (its ring), allgather.cc, broadcast.cc and barrier.cc. What is sent leaves once
//! the other end has asked for it (gloo/transport/tcp/pair.cc), so who waits for what at last does not depend on how fast anybody is.

use std::collections::VecDeque;

/// Groups of more ranks are not looked at: the work grows with the cube of their number.
pub(super) const MOST_RANKS: usize = 32;

/// What a rank waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Send,
    Receive,
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

    /// What each rank waits for at last: nothing where it gets to the end, or takes no part. `open`: whether anything gets from one rank to another.
    pub fn waits(
        self,
        (ranks, elements): (usize, usize),
        absent: Option<usize>,
        open: impl Fn(usize, usize) -> bool,
    ) -> Vec<Option<Wait>> {
        let steps = |rank| if absent == Some(rank) { Vec::new() } else { self.steps(rank, ranks, elements) };
        let mut all: Vec<Progress> =
            (0..ranks).map(|rank| Progress { steps: steps(rank), ..Progress::default() }).collect();
        let mut channels = Channels { ranks, counts: vec![[0; 2]; ranks * ranks] };
        let mut moved = true;
        while moved {
            moved = false;
            for (rank, one) in all.iter_mut().enumerate() {
                moved |= one.go_on(rank, &mut channels, &open);
            }
        }
        all.iter().map(Progress::waits_for).collect()
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

/// How much was sent from each rank to each other, and asked for.
struct Channels {
    ranks: usize,
    counts: Vec<[usize; 2]>,
}

impl Channels {
    fn between(&mut self, from: usize, to: usize) -> &mut [usize; 2] {
        &mut self.counts[from * self.ranks + to]
    }
}

/// How far a rank is.
#[derive(Default)]
struct Progress {
    steps: Vec<Step>,
    at: usize,
    /// What it has sent and asked for, and not waited for: from whom to whom, and how many of that channel came before.
    sent: VecDeque<(usize, usize, usize)>,
    asked: VecDeque<(usize, usize, usize)>,
}

impl Progress {
    /// Goes as far as others let it; whether it moved.
    fn go_on(&mut self, rank: usize, channels: &mut Channels, open: &impl Fn(usize, usize) -> bool) -> bool {
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
                    let Some((from, to, before)) = queue.front().copied() else { break };
                    let [sent, asked] = *channels.between(from, to);
                    if !open(from, to) || sent.min(asked) <= before {
                        break;
                    }
                    queue.pop_front();
                }
            }
            self.at += 1;
        }
        self.at > began
    }

    fn waits_for(&self) -> Option<Wait> {
        match self.steps.get(self.at) {
            Some(Step::Await(wait)) => Some(*wait),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(waits: &[Option<Wait>]) -> String {
        let letter = |wait: &Option<Wait>| match wait {
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
            let found = told(&algorithm.waits((ranks, elements), Some(absent), |_, _| true));
            let known = found.chars().zip(expected.chars()).all(|(a, b)| b == '.' || a == b);
            assert!(known, "{algorithm:?} of {ranks} without {absent}: {found}, not {expected}");
        }
    }

    #[test]
    fn all_get_to_the_end_where_nothing_is_in_the_way() {
        for algorithm in [Algorithm::AllReduce, Algorithm::AllGather, Algorithm::Broadcast, Algorithm::Barrier] {
            for (ranks, elements) in [(2, 1), (3, 2), (5, 1000), (8, 17), (MOST_RANKS, 100)] {
                let waits = algorithm.waits((ranks, elements), None, |_, _| true);
                assert!(waits.iter().all(Option::is_none), "{algorithm:?} of {ranks}: {}", told(&waits));
            }
        }
    }

    /// A host of two of six ranks: both ends of what is cut wait to send, and so does who sends to one of them.
    #[test]
    fn a_host_that_is_cut_off_shows() {
        let of_host = |rank: usize| rank / 2 == 1;
        let waits = Algorithm::AllReduce.waits((6, 1000), None, |one, other| of_host(one) == of_host(other));
        assert_eq!(told(&waits), "rrsrss");
    }
}

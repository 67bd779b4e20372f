//! Who is slow, stuck or gone: judged from what was heard when, without looking at a clock or a socket.

use std::time::{Duration, Instant};

/// What is known of one rank.
#[derive(Debug, Clone)]
struct RankState {
    heard: Instant,
    progress: u64,
    waiting: bool,
    /// Has said goodbye, and owes nothing more.
    left: bool,
}

/// Ranks that stop the job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    Silent(Vec<usize>, Duration),
    /// Heard, but they get nothing done while others wait.
    Stuck(Vec<usize>, Duration),
}

/// The last signs of life of every rank.
#[derive(Debug)]
pub(crate) struct Watch {
    timeout: Duration,
    ranks: Vec<RankState>,
    changed: Instant,
    looked: Instant,
}

impl Watch {
    /// How often ranks and server give a sign of life, for a timeout.
    pub fn beat_interval(timeout: Duration) -> Duration {
        (timeout / 5).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Starts when every one of `size` ranks has just been heard.
    pub fn new(size: usize, timeout: Duration, now: Instant) -> Self {
        let seen = RankState { heard: now, progress: 0, waiting: false, left: false };
        Watch { timeout, ranks: vec![seen; size], changed: now, looked: now }
    }

    /// Any message of a rank arrived.
    pub fn heard(&mut self, rank: usize, now: Instant) {
        self.ranks[rank].heard = now;
    }

    /// A rank's sign of life arrived.
    pub fn beat(&mut self, rank: usize, progress: u64, waiting: bool, now: Instant) {
        let seen = &mut self.ranks[rank];
        if (seen.progress, seen.waiting) != (progress, waiting) {
            (seen.progress, seen.waiting) = (progress, waiting);
            self.changed = now;
        }
    }

    /// Something was got done that no rank's progress counts.
    pub fn advanced(&mut self, now: Instant) {
        self.changed = now;
    }

    pub fn left(&mut self, rank: usize, now: Instant) {
        self.ranks[rank].left = true;
        self.changed = now;
    }

    /// Whom to blame, if anyone. Called at least every half second.
    pub fn look(&mut self, now: Instant) -> Option<Blame> {
        // Whoever did not look for long was stopped itself, and must not take its own silence for that of the others.
        let slept = now.duration_since(self.looked) > self.timeout / 2;
        self.looked = now;
        if slept {
            self.ranks.iter_mut().for_each(|seen| seen.heard = now);
            self.changed = now;
            return None;
        }
        let silent: Vec<usize> = self.silent_for(self.timeout, now).collect();
        if !silent.is_empty() {
            return Some(Blame::Silent(silent, self.timeout));
        }
        // A stopped rank also makes the others wait: its silence says more, and is soon long enough.
        let all_heard = self.silent_for(3 * Self::beat_interval(self.timeout), now).next().is_none();
        let someone_waits = self.ranks.iter().any(|seen| seen.waiting);
        if all_heard && someone_waits && now.duration_since(self.changed) >= self.timeout {
            return Some(Blame::Stuck(self.furthest_behind(), self.timeout));
        }
        None
    }

    /// Ranks that were silent for so long that an error of another rank is likely theirs.
    pub fn nearly_silent(&self, now: Instant) -> Vec<usize> {
        self.silent_for(self.timeout / 2, now).collect()
    }

    fn silent_for(&self, time: Duration, now: Instant) -> impl Iterator<Item = usize> + '_ {
        let silent = move |seen: &RankState| !seen.left && now.saturating_duration_since(seen.heard) >= time;
        self.ranks.iter().enumerate().filter(move |(_, seen)| silent(seen)).map(|(rank, _)| rank)
    }

    /// Ranks that are not where the others wait; where all wait, those that have done least.
    fn furthest_behind(&self) -> Vec<usize> {
        let elsewhere = |seen: &RankState| !seen.waiting && !seen.left;
        let absent: Vec<usize> = (0..self.ranks.len()).filter(|&rank| elsewhere(&self.ranks[rank])).collect();
        if !absent.is_empty() {
            return absent;
        }
        let there = || (0..self.ranks.len()).filter(|&rank| !self.ranks[rank].left);
        let least = there().map(|rank| self.ranks[rank].progress).min();
        there().filter(|&rank| Some(self.ranks[rank].progress) == least).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Runs a watch for `seconds`, each with what `signs` says of each rank: `None` silent, else (progress, waiting).
    fn run(size: usize, seconds: u64, signs: impl Fn(usize, u64) -> Option<(u64, bool)>) -> Option<(u64, Blame)> {
        let start = Instant::now();
        let mut watch = Watch::new(size, TIMEOUT, start);
        (1..=seconds).find_map(|second| {
            let now = start + Duration::from_secs(second);
            for rank in 0..size {
                if let Some((progress, waiting)) = signs(rank, second) {
                    watch.heard(rank, now);
                    watch.beat(rank, progress, waiting, now);
                }
            }
            watch.look(now).map(|blame| (second, blame))
        })
    }

    #[test]
    fn whom_to_blame() {
        let silent = |ranks: &[usize]| Blame::Silent(ranks.to_vec(), TIMEOUT);
        let stuck = |ranks: &[usize]| Blame::Stuck(ranks.to_vec(), TIMEOUT);
        assert_eq!(run(4, 60, |_, second| Some((second, true))), None, "all work");
        assert_eq!(run(4, 60, |_, _| Some((5, false))), None, "all compute something of their own");
        assert_eq!(run(4, 60, |rank, second| Some((second * (rank == 2) as u64, true))), None, "a slow rank");
        let stopped = |rank, second: u64| (rank != 2 || second <= 3).then_some((second.min(3), second > 3));
        assert_eq!(run(4, 60, stopped), Some((13, silent(&[2]))), "stopped after 3 s");
        let host = |rank, second| (rank < 2 || second <= 3).then_some((second, true));
        assert_eq!(run(4, 60, host), Some((13, silent(&[2, 3]))), "a host is cut off");
        let absent = |rank, second: u64| Some((second.min(3), second > 3 && rank != 1));
        assert_eq!(run(4, 60, absent), Some((14, stuck(&[1]))), "rank 1 never comes to where the others wait");
        let least = |rank, second: u64| Some((second.min(if rank == 3 { 2 } else { 3 }), true));
        assert_eq!(run(4, 60, least), Some((13, stuck(&[3]))), "all wait, rank 3 has done least");
    }

    #[test]
    fn who_slept_itself_blames_nobody() {
        let start = Instant::now();
        let mut watch = Watch::new(2, TIMEOUT, start);
        assert_eq!(watch.look(start + Duration::from_secs(30)), None);
        assert_eq!(watch.look(start + Duration::from_secs(34)), None);
        assert_eq!(watch.look(start + Duration::from_secs(38)), None);
        assert_eq!(watch.look(start + Duration::from_secs(41)), Some(Blame::Silent(vec![0, 1], TIMEOUT)));
    }

    #[test]
    fn who_left_is_not_behind() {
        let start = Instant::now();
        let mut watch = Watch::new(3, TIMEOUT, start);
        watch.left(0, start);
        for second in 1..=10 {
            let now = start + Duration::from_secs(second);
            for rank in 0..3 {
                watch.heard(rank, now);
                watch.beat(rank, rank as u64, rank == 1, now);
            }
            if let Some(blame) = watch.look(now) {
                assert_eq!(blame, Blame::Stuck(vec![2], TIMEOUT));
                return;
            }
        }
        assert_eq!(watch.look(start + Duration::from_secs(11)), Some(Blame::Stuck(vec![2], TIMEOUT)));
    }
}

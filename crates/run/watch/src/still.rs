//! When a standstill is one: the limit is asked for, and grows with the job.
//!
//! A second in which something works (processor, disk, a network that is not the job's) counts a tenth: ranks that compute, save or read
//! for minutes while the others wait are as usual as they are silent. No standstill that the job overcame by itself is one later: the
//! limit is at least three times the longest.

use std::time::Duration;

/// So many seconds of work count as one of waiting.
const WORKING: u32 = 10;
/// The limit is at least this many times the longest standstill of the sound job.
const BEYOND_THE_LONGEST: u32 = 3;

/// What happened between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Bytes moved between ranks, or collectives were launched.
    Moved,
    /// Nothing moved, and somebody works.
    Works,
    /// Nothing moved, and nobody works.
    Still,
}

/// Measures how long nothing has moved.
#[derive(Debug, Clone)]
pub struct Standstill {
    asked: Duration,
    longest: Duration,
    /// Counted time since something moved; none before anything ever did.
    counted: Option<Duration>,
    moved_us: u64,
}

impl Standstill {
    /// With the limit that was asked for.
    pub fn new(asked: Duration) -> Self {
        Standstill { asked, longest: Duration::ZERO, counted: None, moved_us: 0 }
    }

    /// Takes what happened in the time before `now_us`.
    pub fn feed(&mut self, progress: Progress, time: Duration, now_us: u64) {
        match (progress, &mut self.counted) {
            (Progress::Moved, counted) => {
                self.longest = self.longest.max(counted.unwrap_or_default());
                (self.counted, self.moved_us) = (Some(Duration::ZERO), now_us);
            }
            (_, None) => {}
            (Progress::Works, Some(counted)) => *counted += time / WORKING,
            (Progress::Still, Some(counted)) => *counted += time,
        }
    }

    /// How long nothing may move now.
    pub fn limit(&self) -> Duration {
        self.asked.max(self.longest * BEYOND_THE_LONGEST)
    }

    /// Whether the limit has passed. Never before anything has moved: nobody knows then what moves.
    pub fn is_over(&self) -> bool {
        self.counted.is_some_and(|counted| counted >= self.limit())
    }

    /// When something moved last, in microseconds since 1970; none before.
    pub fn moved_us(&self) -> Option<u64> {
        self.counted.map(|_| self.moved_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Feeds seconds, `m`oved, `w`orks or `s`till; at which of them the limit was over first.
    fn over(asked: u64, seconds: &str) -> Option<usize> {
        let mut standstill = Standstill::new(Duration::from_secs(asked));
        seconds.chars().enumerate().find_map(|(at, second)| {
            let progress = match second {
                'm' => Progress::Moved,
                'w' => Progress::Works,
                _ => Progress::Still,
            };
            standstill.feed(progress, SECOND, at as u64 * 1_000_000);
            standstill.is_over().then_some(at)
        })
    }

    #[test]
    fn the_limit_is_asked_for_and_grows_with_the_job() {
        assert_eq!(over(5, &format!("m{}", "s".repeat(10))), Some(5));
        assert_eq!(over(5, &"s".repeat(100)), None, "nothing ever moved");
        // A sound job that stands still for four seconds in every step: twelve are the limit.
        let slow = format!("m{}", "s".repeat(4)).repeat(20);
        assert_eq!(over(5, &slow), None);
        assert_eq!(over(5, &format!("{slow}m{}", "s".repeat(20))), Some(100 + 12));
        // An evaluation of 45 seconds on one rank, for the first time; then a hang.
        assert_eq!(over(5, &format!("m{}m{}", "w".repeat(45), "s".repeat(20))), Some(46 + 14));
        assert_eq!(over(5, &format!("m{}", "w".repeat(60))), Some(50));
    }
}

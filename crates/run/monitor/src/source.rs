//! Where samples come from: this machine, or a recording.

use crate::recording::{Recording, RecordingError};
use busbw_probe::counters::{Sample, Sampler};
use std::io::BufRead;
use std::time::{Duration, Instant};

/// Below this, drivers that ask the firmware are asked too often.
pub const FASTEST: Duration = Duration::from_millis(50);
/// Above this, counters of 32 bits go round unseen.
pub const SLOWEST: Duration = Duration::from_secs(3600);
/// How fast a recording may be played.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 0.001..=1e6;

/// Gives samples, each when its time has come.
pub enum Source {
    /// A machine's counters, one sample per interval.
    Live {
        sampler: Box<Sampler>,
        interval: Duration,
        /// When the next is due.
        due: Instant,
    },
    Replay(Box<Replay>),
}

/// A recording that is played.
pub struct Replay {
    recording: Recording<Box<dyn BufRead>>,
    next: Option<Sample>,
    due: Instant,
    speed: Option<f64>,
}

impl Source {
    /// A machine's counters, from now on.
    pub fn live(sampler: Sampler, interval: Duration) -> Self {
        Source::Live { sampler: Box::new(sampler), interval, due: Instant::now() }
    }

    /// A recording, so many times as fast as it was made; without a speed, without waiting.
    pub fn replay(input: Box<dyn BufRead>, speed: Option<f64>) -> Result<Self, RecordingError> {
        let mut recording = Recording::open(input)?;
        let next = recording.next_sample()?;
        Ok(Source::Replay(Box::new(Replay { recording, next, due: Instant::now(), speed })))
    }

    /// How long until the next sample; none when there is none.
    pub fn due_in(&self) -> Option<Duration> {
        match self {
            Source::Live { due, .. } => Some(due.saturating_duration_since(Instant::now())),
            Source::Replay(replay) => {
                replay.next.as_ref().map(|_| replay.due.saturating_duration_since(Instant::now()))
            }
        }
    }

    /// The next sample.
    pub fn take(&mut self) -> Result<Option<Sample>, RecordingError> {
        match self {
            Source::Live { sampler, interval, due } => {
                let sample = sampler.sample();
                *due += *interval;
                // A machine that slept, or is overloaded, does not get samples in a burst.
                *due = (*due).max(Instant::now());
                Ok(Some(sample))
            }
            Source::Replay(replay) => replay.take(),
        }
    }

    /// How it gives samples, in words: `every 1s`, `run.rec ×10`.
    pub fn describe(&self, name: &str) -> String {
        match self {
            Source::Live { interval, .. } => format!("every {interval:?}"),
            Source::Replay(replay) if replay.next.is_none() => format!("{name}, at its end"),
            Source::Replay(replay) => format!("{name} ×{}", replay.speed.unwrap_or(1.0)),
        }
    }

    /// Takes so many times as long from sample to sample.
    pub fn pace(&mut self, times: f64) {
        match self {
            Source::Live { interval, .. } => *interval = interval.mul_f64(times).clamp(FASTEST, SLOWEST),
            Source::Replay(replay) => {
                replay.speed = replay.speed.map(|speed| (speed / times).clamp(*SPEEDS.start(), *SPEEDS.end()));
            }
        }
    }

    /// What the last sample could not tell, and why.
    pub fn untold(&self) -> Option<&str> {
        match self {
            Source::Live { sampler, .. } => sampler.untold(),
            Source::Replay(_) => None,
        }
    }
}

impl Replay {
    fn take(&mut self) -> Result<Option<Sample>, RecordingError> {
        let following = self.recording.next_sample()?;
        let sample = std::mem::replace(&mut self.next, following);
        if let (Some(sample), Some(next), Some(speed)) = (&sample, &self.next, self.speed) {
            let pause = Duration::from_micros(next.time_us.saturating_sub(sample.time_us));
            let pause = Duration::try_from_secs_f64(pause.as_secs_f64() / speed).unwrap_or(Duration::MAX);
            self.due =
                Instant::now().checked_add(pause).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
        }
        Ok(sample)
    }
}

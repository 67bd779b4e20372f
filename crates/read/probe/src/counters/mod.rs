//! What happens now: the counters of ports, interfaces and the host at one moment.
//!
//! A [`Sample`] holds raw numbers and the time they were read, nothing computed: rates, alerts and views are made from
//! samples elsewhere, so that all of that is tested without hardware.

mod ethtool;
mod gpus;
mod host;
mod jobs;
mod open;
mod queue_pairs;
mod sample;
mod sampler;

pub use sample::{Bond, Counters, GpuCounters, HostCounters, Interface, Job, Port, QueuePairs, Sample};
pub use sampler::{Devices, Sampler};

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

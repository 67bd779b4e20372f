//! Traffic and errors of every port: rates, alerts, and the views of them.
//!
//! A [`Tracker`] makes a [`Moment`] of each sample of [`busbw_probe::counters`]; every view shows moments, live or from a
//! recording.

#![forbid(unsafe_code)]

mod alerts;
mod fleet;
pub mod json;
pub mod known;
mod moment;
mod perfetto;
mod prometheus;
mod recording;
mod request;
pub mod screen;
mod serve;
pub mod session;
mod source;
mod stop;
mod summary;
pub mod text;
pub mod time;
mod tracker;

pub use alerts::{ThresholdError, Thresholds, list_alerts};
pub use fleet::Fleet;
pub use moment::{Alert, Device, HostLoad, Moment, Moved, Owner, Raised, Row};
pub use perfetto::Trace;
pub use prometheus::{Snapshot, metrics};
pub use recording::{Recorder, Recording, RecordingError};
pub use request::Hosts;
#[cfg(fuzzing)]
pub use request::{Request, judge};
pub use serve::Server;
pub use source::{FASTEST, Replay, SLOWEST, SPEEDS, Source};
pub use stop::Stop;
pub use tracker::Tracker;

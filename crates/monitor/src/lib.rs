//! What happens on the wire: rates, alerts, and the views of them.
//!
//! A [`Tracker`] makes a [`Moment`] of each sample of [`busbw_probe::counters`]; every view shows moments, live or from a
//! recording.

mod alerts;
pub mod json;
pub mod known;
mod moment;
mod recording;
pub mod session;
mod source;
mod stop;
mod summary;
pub mod text;
mod time;
mod tracker;

pub use alerts::{Alert, ThresholdError, Thresholds};
pub use moment::{HostLoad, Moment, Moved, Owner, Place, Row};
pub use recording::{Recorder, Recording, RecordingError};
pub use source::{Replay, Source};
pub use stop::Stop;
pub use tracker::{Total, Tracker};

//! Recordings of `busbw monitor` as inputs: their alerts, as a line of monitor's JSON.

use busbw_monitor::{Recording, Thresholds, Tracker, json};
use std::io::BufRead;

/// The last moment with the alerts of all; a recording that was cut off is read as far as it goes.
pub fn alerts(input: &mut dyn BufRead) -> Option<String> {
    let mut recording = Recording::open(input).ok()?;
    let mut tracker = Tracker::new(Thresholds::default());
    let mut last = None;
    while let Ok(Some(sample)) = recording.next_sample() {
        last = Some(tracker.feed(&sample));
    }
    let mut moment = last?;
    moment.alerts = tracker.alerts().cloned().collect();
    Some(json::line(&moment))
}

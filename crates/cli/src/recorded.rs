//! Recordings of `busbw monitor` as inputs: what moved in all, as a line of its JSON.

use busbw_ingest::Source;
use busbw_monitor::{Recording, Thresholds, Tracker, json};
use std::fs::File;
use std::io::BufReader;

/// The source itself, unless it is a recording: then its alerts.
pub fn told(source: Source) -> Source {
    match replayed(&source) {
        Some(line) => Source::Bytes(source.name(), line.into_bytes()),
        None => source,
    }
}

/// As far as the recording can be read.
fn replayed(source: &Source) -> Option<String> {
    let (Source::Path(path) | Source::Found(path)) = source else { return None };
    // Of a pipe, what is read here is gone.
    if !path.metadata().is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    let mut recording = Recording::open(BufReader::new(File::open(path).ok()?)).ok()?;
    let mut tracker = Tracker::new(Thresholds::default());
    let mut last = None;
    while let Ok(Some(sample)) = recording.next_sample() {
        last = Some(tracker.feed(&sample));
    }
    let mut moment = last?;
    moment.alerts = tracker.alerts().cloned().collect();
    Some(json::line(&moment))
}

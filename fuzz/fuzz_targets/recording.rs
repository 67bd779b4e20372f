//! Any bytes as a recording of `busbw monitor`, through every view of what it holds.

#![no_main]

use busbw_monitor::{Recording, Snapshot, Tracker, json, metrics, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut recording) = Recording::open(bytes) else { return };
    let mut tracker = Tracker::default();
    while let Ok(Some(sample)) = recording.next_sample() {
        let moment = tracker.feed(&sample);
        let shown = text::legend(&moment) + &text::block(&moment);
        assert!(!shown.contains('\x1b'), "an escape character of the recording reaches the terminal");
        serde_json::from_str::<serde_json::Value>(&json::line(&moment)).expect("JSON");
        let raised = tracker.raised();
        drop(metrics(&Snapshot { sample, raised, ..Snapshot::default() }).to_string());
    }
});

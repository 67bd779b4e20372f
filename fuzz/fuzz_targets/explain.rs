//! Any bytes through everything that `busbw explain` does: read, diagnose, report as JSON and as text.
//!
//! Beyond not panicking: the JSON must be JSON, and text without colour must carry no escape character from the input
//! to the terminal.

#![no_main]

use busbw_report::text::Style;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(run) = busbw_ingest::read_bytes(&[("fuzz", data)]) else { return };
    let diagnosis = busbw_diagnose::diagnose(&run);

    let json = busbw_report::json::explain(&run, &diagnosis);
    if let Err(error) = serde_json::from_str::<serde_json::Value>(&json) {
        panic!("the JSON is none: {error}");
    }
    let text = busbw_report::text::explain(&run, &diagnosis, &Style { width: 80, ..Style::default() });
    assert!(!text.contains('\x1b'), "an escape character of the input reaches the terminal");
});

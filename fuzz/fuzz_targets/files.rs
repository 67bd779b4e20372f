//! Any text as the files that users write for commands: a space of `tune`, thresholds of `monitor`, signatures of `explain --rules`.

#![no_main]

use busbw_diagnose::{Book, check_rules};
use busbw_monitor::Thresholds;
use busbw_tune::space;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let settings = space::parse("fuzz", text).and_then(|space| space.settings());
    let refusals = [
        settings.err().map(|error| error.to_string()),
        Thresholds::parse(text).err().map(|error| error.to_string()),
        Book::with("fuzz.toml", text).err(),
        check_rules("rules/signatures/fuzz.toml", text).err(),
    ];
    for refused in refusals.into_iter().flatten() {
        assert!(!refused.is_empty(), "a refusal says why");
    }
});

//! Any text as the description of a cluster: it is read, or refused with a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(refused) = busbw_predict::cluster::parse(text) {
        assert!(!refused.to_string().is_empty(), "a refusal says why");
    }
});

//! Any bytes as what a scraper sends to the monitor's endpoint, whole and in two pieces.
//!
//! Beyond not panicking: an answer never depends on how the bytes were cut, and a host that nobody allowed reads nothing.

#![no_main]

use busbw_monitor::{Hosts, Request, judge};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static HOSTS: LazyLock<Hosts> = LazyLock::new(|| Hosts::and(&["node7.example".into()]));

fuzz_target!(|bytes: &[u8]| {
    let whole = judge(bytes, &HOSTS);
    let cut = bytes.len() / 2;
    if let Some(early) = judge(&bytes[..cut], &HOSTS) {
        assert_eq!(Some(early), whole, "what comes behind the head changes the answer");
    }
    let rebound = [b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n", bytes].concat();
    assert!(!matches!(judge(&rebound, &HOSTS), Some(Request::Metrics { .. })), "an unknown host reads the metrics");
    assert!(bytes.len() <= 8 << 10 || whole.is_some(), "a head without end is waited for");
});

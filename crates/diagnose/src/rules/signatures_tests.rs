//! The noise of healthy runs matches nothing.

use super::*;

/// The codes whose signatures match a text that stands alone.
fn codes(text: &str) -> Vec<String> {
    let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
    rule(&Case::new(&run)).into_iter().map(|finding| finding.code.to_string()).collect()
}

#[test]
fn noise_of_healthy_runs_matches_nothing() {
    let noise = [
        "[Service thread] Could not receive type from localRank 3, res=3, closed=0",
        "[Proxy Service 3] Failed to execute operation Close from rank 3, retcode 3",
        "[Service thread] Accept failed Resource temporarily unavailable",
        "MSCCL++: Cannot enable MSCCL++; environment is not MSCCL compatible",
    ];
    for text in noise {
        let line = format!("hostA:100:200 [0] proxy.cc:1 NCCL WARN {text}");
        assert!(codes(&line).is_empty(), "{text}: {:?}", codes(&line));
    }
    let programs = [
        "step 100 | learning rate: 1.000E-04 | loss 2.3",
        "I have run it in two separate software environments.",
        "With the newer image it works with NCCL_P2P_DISABLE=1 only.",
        "Is it possible that there is a deadlock?",
    ];
    for text in programs {
        assert!(codes(text).is_empty(), "{text}: {:?}", codes(text));
    }
}

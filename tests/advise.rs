//! `busbw advise` from end to end: which versions are judged, and which are none.

use crate::support::command::typed;

/// Exit status, and all that is printed.
fn advise(versions: &str) -> (Option<i32>, String) {
    let ended = typed(&format!("advise --versions {versions} --width 300"));
    (ended.code(), ended.stdout + &ended.stderr)
}

/// A version that no table is about is never CLEAR.
#[test]
fn only_what_was_looked_up_is_judged() {
    let refused = |says| (Some(2), says);
    let undecided = |says| (Some(3), says);
    for (versions, (status, says)) in [
        ("nccl=22703", (Some(0), "Known: nccl 2.27.3\n")),
        ("nccl=2804", (Some(0), "Known: nccl 2.8.4\n")),
        ("rccl=22703", (Some(0), "Known: rccl 2.27.3\n")),
        ("nccl=28.9", refused("--versions nccl=28.9: NCCL has no release like 28.9; write one as 2.")),
        ("nccl=0", refused("NCCL has no release like 0; write one as 2.")),
        ("driver=22703", refused("has no release like 22703")),
        ("pytorch=0.0", refused("PyTorch has no release like 0.0")),
        ("nccl=new", refused("is no version; write numbers with dots: 2.28.9")),
        ("nccl=2.99.1", undecided("UNDECIDED  Nothing was judged")),
        ("nccl=2.1.2", undecided("Not judged, older or newer than all that the tables name: nccl 2.1.2")),
        ("numpy=1.2", undecided("UNDECIDED  No version is known")),
        ("nccl=2.28.9,cuda=22", (Some(0), "Not judged, older or newer than all that the tables name: cuda 22")),
    ] {
        let (code, printed) = advise(versions);
        assert_eq!(code, status, "{versions}: {printed}");
        assert!(printed.contains(says), "{versions}: {printed}");
    }
}

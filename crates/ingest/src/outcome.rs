//! What programs and launchers say about how a run went: errors, time-outs, deaths, and that all is well.

use aho_corasick::{AhoCorasick, MatchKind};
use busbw_model::RemarkKind::{
    self, CollectiveError, CollectiveTimeout, Finished, LauncherError, ProcessDied, Trouble,
};
use std::sync::LazyLock;

/// Words and what they mean. The first that matches at the leftmost place decides; longer before shorter.
const SIGNS: [(&str, RemarkKind); 68] = [
    // nccl-tests (`src/common.h`), PyTorch's ProcessGroupNCCL, Horovod, TensorFlow.
    ("Test NCCL failure", CollectiveError),
    ("Test CUDA failure", CollectiveError),
    ("Test failure ", CollectiveError),
    ("NCCL error in:", CollectiveError),
    ("NCCL Error ", CollectiveError),
    ("NCCL failure", CollectiveError),
    ("DistBackendError", CollectiveError),
    ("unhandled system error", CollectiveError),
    ("unhandled cuda error", CollectiveError),
    ("ncclSystemError", CollectiveError),
    ("ncclInternalError", CollectiveError),
    ("ncclRemoteError", CollectiveError),
    ("ncclUnhandledCudaError", CollectiveError),
    ("ncclInvalidUsage", CollectiveError),
    ("ncclInvalidArgument", CollectiveError),
    ("HorovodInternalError", CollectiveError),
    ("CUDA error:", CollectiveError),
    ("Watchdog caught collective operation timeout", CollectiveTimeout),
    ("before timing out", CollectiveTimeout),
    ("Timeout at NCCL work", CollectiveTimeout),
    ("Watchdog hang detected", CollectiveTimeout),
    ("Timed out waiting for clients", CollectiveTimeout),
    ("Segmentation fault", ProcessDied),
    ("segmentation fault", ProcessDied),
    ("exited on signal", ProcessDied),
    ("killed by signal", ProcessDied),
    ("died with <Signals", ProcessDied),
    ("Caught signal ", ProcessDied),
    ("(core dumped)", ProcessDied),
    ("*** Process received signal ***", ProcessDied),
    ("terminate called after throwing", ProcessDied),
    ("Fatal Python error", ProcessDied),
    ("ChildFailedError", ProcessDied),
    ("Exited with exit code", ProcessDied),
    ("exited with non-zero status", ProcessDied),
    ("oom-kill", ProcessDied),
    ("oom_kill event", ProcessDied),
    ("Bus error", ProcessDied),
    ("lost connection with the remote", ProcessDied),
    ("not enough slots available", LauncherError),
    ("ORTE was unable", LauncherError),
    ("PRTE was unable", LauncherError),
    ("ORTE has lost communication", LauncherError),
    ("ORTE does not know how to route", LauncherError),
    ("unable to reliably start", LauncherError),
    ("unable to find the specified executable", LauncherError),
    ("was unable to launch", LauncherError),
    ("Host key verification failed", LauncherError),
    ("Permission denied (publickey", LauncherError),
    ("error while loading shared libraries", LauncherError),
    ("execve()", LauncherError),
    // The ends that programs of the field print.
    ("Collective test concluded", Finished),
    ("total images/sec", Finished),
    ("\"status\": \"success\"", Finished),
    ("\"value\": \"success\"", Finished),
    ("training SUCCESS", Finished),
    ("exits successfully", Finished),
    ("finished successfully", Finished),
    ("completed successfully", Finished),
    ("after training is done", Finished),
    ("Training completed", Finished),
    ("RESULT,", Finished),
    ("Traceback (most recent call last)", Trouble),
    ("RuntimeError", Trouble),
    ("Error:", Trouble),
    ("error:", Trouble),
    ("ERROR", Trouble),
    ("cannot open shared object file", Trouble),
];

static AUTOMATON: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(SIGNS.iter().map(|(words, _)| words)).ok()
});

/// The weightiest sign in a line, if any.
pub(crate) fn remark(line: &[u8]) -> Option<RemarkKind> {
    let kinds = AUTOMATON.as_ref()?.find_iter(line).map(|found| SIGNS[found.pattern().as_usize()].1);
    kinds.min_by_key(|kind| weight(*kind))
}

/// A line that both names an error and prints a traceback tells of the error.
fn weight(kind: RemarkKind) -> u8 {
    match kind {
        CollectiveTimeout => 0,
        CollectiveError => 1,
        ProcessDied => 2,
        LauncherError => 3,
        Finished => 4,
        Trouble => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_seen_in_real_lines() {
        let cases = [
            (
                "RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:832, unhandled system error, NCCL version 20.9.8",
                Some(CollectiveError),
            ),
            (" .. host pid 1234: Test failure common.cu:401", Some(CollectiveError)),
            ("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", Some(CollectiveTimeout)),
            (
                "mpirun noticed that process rank 3 with PID 0 on node x exited on signal 11 (Segmentation fault).",
                Some(ProcessDied),
            ),
            ("There are not enough slots available in the system", Some(LauncherError)),
            ("# Collective test concluded: all_reduce_perf", Some(Finished)),
            ("iteration 12 loss 3.4", None),
        ];
        for (line, kind) in cases {
            assert_eq!(remark(line.as_bytes()), kind, "{line}");
        }
    }
}

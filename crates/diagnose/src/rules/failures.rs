//! Runs that failed without a line that another rule knows.

use crate::case::Case;
use busbw_model::{Code, Evidence, Finding, Remark, RemarkKind, Severity};

/// Whether programs or the launcher said that the run failed.
pub fn failed(case: &Case) -> bool {
    fatal(case).is_some()
}

fn fatal<'a>(case: &Case<'a>) -> Option<&'a Remark> {
    let order = [
        RemarkKind::LauncherError,
        RemarkKind::CollectiveTimeout,
        RemarkKind::CollectiveError,
        RemarkKind::ProcessDied,
    ];
    order.iter().find_map(|kind| case.run.remarks.iter().find(|remark| remark.kind == *kind))
}

/// A finding for a failure that no other finding explains.
pub fn unexplained(case: &Case, findings: &[Finding]) -> Option<Finding> {
    let remark = fatal(case)?;
    if findings.iter().any(|f| f.severity == Severity::Error) {
        return None;
    }
    let (code, confidence, title, explanation, remedy) = match remark.kind {
        RemarkKind::LauncherError => (
            Code::MpiLaunch,
            0.7,
            "The launcher did not start the ranks",
            "mpirun or srun reports an error of its own, before NCCL comes into play.",
            "Start something trivial the same way first: `mpirun -np 2 --host nodeA,nodeB hostname`",
        ),
        RemarkKind::CollectiveTimeout => (
            Code::HangMismatch,
            0.5,
            "A collective timed out",
            "Ranks waited for a collective until the program's watchdog ended them. Either some rank never called it (another branch, an \
             exception, a crash), ranks called different collectives or sizes, or data stopped moving on the network. The rank that is \
             missing from the time-outs is the one to look at.",
            "Let PyTorch record which collective each rank was in: `export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1`",
        ),
        _ => (
            Code::PeerDied,
            0.4,
            "The run failed, and the input does not show why",
            "A program reports that NCCL failed or that a process died, but no line of NCCL's log explains it.",
            "Run again with NCCL's log: `export NCCL_DEBUG=INFO` and give the output of all ranks; the first WARN of the first rank that fails counts",
        ),
    };
    let evidence = vec![Evidence { source: remark.source.clone(), note: None }];
    let (title, explanation, remedy) = (title.to_string(), explanation.to_string(), vec![remedy.to_string()]);
    Some(Finding {
        code,
        severity: Severity::Error,
        confidence,
        title,
        explanation,
        evidence,
        remedy,
        expected_gain: None,
    })
}

//! Runs that failed without a line that another rule knows.

use crate::case::Case;
use busbw_model::{Code, Evidence, Finding, Remark, RemarkKind, Severity};

/// Words of programs that judge their own run as a whole: MLPerf's logging, SageMaker.
const SUCCESS: [&str; 4] = ["\"value\": \"success\"", "\"status\": \"success\"", "RESULT,", "training SUCCESS"];

/// Whether programs or the launcher said that the run failed.
pub fn failed(case: &Case) -> bool {
    fatal(case).is_some_and(|remark| !succeeded(case, remark))
}

/// The weightiest failure: one of an input that tells of no success, else any.
fn fatal<'a>(case: &Case<'a>) -> Option<&'a Remark> {
    let order = [
        RemarkKind::LauncherError,
        RemarkKind::CollectiveTimeout,
        RemarkKind::CollectiveError,
        RemarkKind::ProcessDied,
    ];
    let found = || order.iter().flat_map(|kind| case.run.remarks.iter().filter(move |remark| remark.kind == *kind));
    found().find(|remark| !succeeded(case, remark)).or_else(|| found().next())
}

/// Whether the program of the same input reported success all the same: steps before the run may fail, and processes may
/// die as they leave.
fn succeeded(case: &Case, failure: &Remark) -> bool {
    case.run.remarks.iter().any(|remark| {
        remark.kind == RemarkKind::Finished
            && remark.source.place.input == failure.source.place.input
            && SUCCESS.iter().any(|words| remark.source.text.contains(words))
    })
}

fn says(remark: &Remark, words: &[&str]) -> bool {
    words.iter().any(|word| remark.source.text.contains(word))
}

/// A finding for a failure that no other finding explains.
pub fn unexplained(case: &Case, findings: &[Finding]) -> Option<Finding> {
    let remark = fatal(case)?;
    if findings.iter().any(|f| f.severity == Severity::Error) {
        return None;
    }
    let succeeded = succeeded(case, remark);
    let (code, confidence, title, explanation, remedy) = match remark.kind {
        _ if succeeded => (
            Code::PeerDied,
            0.5,
            "The program reports success, but a process died before or after",
            "The program says that its run was good; a step before it failed, or processes were torn down in the wrong order as they left. \
             The results stand.",
            "Let every rank leave together: a barrier and `torch.distributed.destroy_process_group()` before the program ends",
        ),
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
        RemarkKind::CollectiveError
            if says(remark, &["unhandled cuda error", "ncclUnhandledCudaError", "CUDA error", "CUDA failure"]) =>
        {
            (
                Code::GpuError,
                0.4,
                "CUDA failed inside NCCL, and the input does not show how",
                "NCCL reports that a CUDA call failed. The line before it, with NCCL_DEBUG=WARN, names the call and CUDA's error; it is not in the input.",
                "Run again with NCCL's warnings: `export NCCL_DEBUG=WARN`, and look at the host's kernel log: `dmesg -T | grep -iE 'xid|nvrm'`",
            )
        }
        RemarkKind::CollectiveError if says(remark, &["unhandled system error", "ncclSystemError"]) => (
            Code::NetUnreachable,
            0.3,
            "A system call failed inside NCCL, and the input does not show which",
            "A socket, shared memory, locked memory or a verbs call failed. The first WARN line of the rank that fails first names it; it is not in the input.",
            "Run again with NCCL's warnings and network lines: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV`",
        ),
        _ => (
            Code::PeerDied,
            0.4,
            "The run failed, and the input does not show why",
            "A program reports that NCCL failed or that a process died, but no line of NCCL's log explains it.",
            "Run again with NCCL's log: `export NCCL_DEBUG=INFO` and give the output of all ranks; the first WARN of the first rank that fails counts",
        ),
    };
    let evidence = vec![Evidence::new(remark.source.clone())];
    let (title, explanation, remedy) = (title.to_string(), explanation.to_string(), vec![remedy.to_string()]);
    Some(Finding {
        code,
        severity: if succeeded { Severity::Warning } else { Severity::Error },
        confidence,
        title,
        explanation,
        evidence,
        remedy,
        expected_gain: None,
    })
}

#[cfg(test)]
mod tests {
    use busbw_model::Verdict::{self, Failed, Healthy};

    /// Ends of runs, from MLPerf results of rounds 2.0 to 5.1.
    #[test]
    fn a_program_that_reports_success_did_not_fail() {
        const SUCCESS: &str = r#"0: :::MLLOG {"namespace": "", "time_ms": 1760105838829, "event_type": "POINT_IN_TIME", "key": "status", "value": "success", "metadata": {"file": "/workspace/ssd/train.py", "lineno": 783}}"#;
        const TERMINATE: &str = "7: terminate called after throwing an instance of 'c10::DistBackendError'";
        const STEP: &str = "srun: error: compute-permanent-node-115: task 0: Exited with exit code 1";
        let cases: [(&[&str], Verdict); 5] = [
            (&[SUCCESS, TERMINATE], Healthy),
            (&[STEP, SUCCESS], Healthy),
            (&[STEP, "RESULT,LLM_FINETUNING,,2101,nvidia,2024-05-01 03:39:12 AM"], Healthy),
            (&[TERMINATE], Failed),
            (&["0: # Collective test concluded: all_reduce_perf", STEP], Failed),
        ];
        for (lines, verdict) in cases {
            let run = busbw_ingest::read_bytes(&[("log", lines.join("\n").as_bytes())]).expect("text");
            assert_eq!(crate::diagnose(&run).verdict, verdict, "{lines:?}");
        }
    }

    #[test]
    fn success_of_one_input_says_nothing_of_another() {
        let texts: [(&str, &[u8]); 2] =
            [("good", b"RESULT,BERT,,17,nvidia"), ("bad", b"mpirun noticed that process rank 3 exited on signal 11")];
        let run = busbw_ingest::read_bytes(&texts).expect("text");
        assert_eq!(crate::diagnose(&run).verdict, Failed);
    }
}

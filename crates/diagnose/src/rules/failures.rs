//! Runs that failed without a line that another rule knows.

use super::Draft;
use crate::case::Case;
use crate::lines::Line;
use busbw_model::{
    Code, Communicator, ErrorStep, Evidence, Finding, Remark, RemarkKind, Severity, SourceLine, Warning,
};

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

/// What failed, as far as it is told.
#[derive(Clone, Copy, PartialEq)]
enum Failed {
    Launcher,
    Timeout,
    /// A call of CUDA, `ncclUnhandledCudaError`.
    Cuda,
    /// A call of the system or of a library, `ncclSystemError`.
    System,
    /// A check of NCCL's own, `ncclInternalError`.
    Internal,
    /// Anything else.
    Something,
}

impl Failed {
    fn of_remark(remark: &Remark) -> Self {
        match remark.kind {
            RemarkKind::LauncherError => Failed::Launcher,
            RemarkKind::CollectiveTimeout => Failed::Timeout,
            RemarkKind::CollectiveError => Failed::of_words(&remark.source.text),
            _ => Failed::Something,
        }
    }

    fn of_words(text: &str) -> Self {
        let words = [
            (Failed::Cuda, &["unhandled cuda error", "ncclUnhandledCudaError", "CUDA error", "CUDA failure"][..]),
            (Failed::System, &["unhandled system error", "ncclSystemError"]),
            (Failed::Internal, &["internal error", "ncclInternalError"]),
        ];
        let said = words.iter().find(|(_, words)| words.iter().any(|word| text.contains(word)));
        said.map_or(Failed::Something, |(failed, _)| *failed)
    }

    /// By the number of `ncclResult_t`.
    fn of_result(result: u32) -> Self {
        match result {
            1 => Failed::Cuda,
            2 => Failed::System,
            3 => Failed::Internal,
            _ => Failed::Something,
        }
    }

    /// When NCCL's own words for it are in the input.
    fn quoting(self, words: &str) -> Draft {
        let (code, confidence, title, explanation) = match self {
            Failed::Cuda => (
                Code::GpuError,
                0.6,
                "CUDA failed inside NCCL",
                "A CUDA call that NCCL made was refused. What this rank and others say after it follows from it.",
            ),
            Failed::System => (
                Code::NetUnreachable,
                0.4,
                "A system call failed inside NCCL",
                "A call of the system or of a library that NCCL uses failed. What this rank and others say after it follows from it.",
            ),
            Failed::Internal => (
                Code::VersionMismatch,
                0.4,
                "A check of NCCL's own failed",
                "NCCL met what this version does not master: a machine that it does not know, a description of it that lacks something, \
                 ranks with other versions or settings, or a fault of NCCL.",
            ),
            Failed::Launcher | Failed::Timeout | Failed::Something => (
                Code::PeerDied,
                0.45,
                "NCCL failed",
                "NCCL's own words for the first failure; what this rank and others say after it follows from it.",
            ),
        };
        let title = format!("{title}: {}", in_short(words));
        Draft { code, severity: Severity::Error, confidence, title, explanation: explanation.into() }
    }

    /// When nothing in the input says why.
    fn unsaid(self) -> Draft {
        let (code, confidence, title, explanation) = match self {
            Failed::Launcher => (
                Code::MpiLaunch,
                0.7,
                "The launcher did not start the ranks",
                "mpirun or srun reports an error of its own, before NCCL comes into play.",
            ),
            Failed::Timeout => (
                Code::HangMismatch,
                0.5,
                "A collective timed out",
                "Ranks waited for a collective until the program's watchdog ended them. Either some rank never called it (another branch, an \
                 exception, a crash), ranks called different collectives or sizes, or data stopped moving on the network. The rank that is \
                 missing from the time-outs is the one to look at.",
            ),
            Failed::Cuda => (
                Code::GpuError,
                0.4,
                "CUDA failed inside NCCL, and the input does not show how",
                "NCCL reports that a CUDA call failed. The line before it, with NCCL_DEBUG=WARN, names the call and CUDA's error; it is not in the input.",
            ),
            Failed::System => (
                Code::NetUnreachable,
                0.3,
                "A system call failed inside NCCL, and the input does not show which",
                "A socket, shared memory, locked memory or a verbs call failed. The first WARN line of the rank that fails first names it; it is not in the input.",
            ),
            Failed::Internal | Failed::Something => (
                Code::PeerDied,
                0.4,
                "The run failed, and the input does not show why",
                "A program reports that NCCL failed or that a process died, but no line of NCCL's log explains it.",
            ),
        };
        Draft { code, severity: Severity::Error, confidence, title: title.into(), explanation: explanation.into() }
    }

    fn remedy(self, quoted: bool) -> &'static [&'static str] {
        match self {
            Failed::Launcher => {
                &["Start something trivial the same way first: `mpirun -np 2 --host nodeA,nodeB hostname`"]
            }
            Failed::Timeout => &[
                "Let PyTorch record which collective each rank was in: `export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1`",
            ],
            Failed::Cuda if quoted => &[
                "See whether the GPU or its driver reports more: `dmesg -T | grep -iE 'xid|nvrm'`",
                "See whether direct traffic between GPUs is at fault: `export NCCL_P2P_DISABLE=1`; whether CUDA's virtual memory is: `export NCCL_CUMEM_ENABLE=0`",
                "Compare driver and CUDA with what this NCCL asks for, and try the newest NCCL: `nvidia-smi | head -4`",
            ],
            Failed::Cuda => &[
                "Run again with NCCL's warnings: `export NCCL_DEBUG=WARN`, and look at the host's kernel log: `dmesg -T | grep -iE 'xid|nvrm'`",
            ],
            Failed::System if !quoted => &[
                "Run again with NCCL's warnings and network lines: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV`",
            ],
            Failed::Internal if quoted => &[
                "Try the newest NCCL of the same CUDA version, and the plugin's newest where one is loaded",
                "Compare version and environment of all ranks; collect `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV NCCL_TOPO_DUMP_FILE=system.xml` for a report",
            ],
            _ => &[
                "Run again with NCCL's log: `export NCCL_DEBUG=INFO` and give the output of all ranks; the first WARN of the first rank that fails counts",
            ],
        }
    }
}

/// Whether ranks came up together, measured something, or a program ended well: then a warning is of how they left, or was
/// survived.
fn came_up(case: &Case) -> bool {
    case.run.communicators.iter().any(Communicator::came_up)
        || case.run.tables.iter().any(|table| !table.rows.is_empty())
        || case.run.remarks.iter().any(|r| r.kind == RemarkKind::Finished)
}

/// As much of a message as a title holds.
fn in_short(words: &str) -> String {
    const LONGEST: usize = 110;
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", words[..end].trim_end()),
        None => words.to_string(),
    }
}

/// A finding for a failure that no other finding explains.
pub fn unexplained(case: &Case, findings: &[Finding]) -> Option<Finding> {
    if findings.iter().any(|f| f.severity == Severity::Error) {
        return None;
    }
    let quote = Quote::find(case, findings);
    let Some(remark) = fatal(case) else { return quote.filter(|_| !came_up(case))?.alone(findings) };
    if succeeded(case, remark) {
        return Some(died_beside_success(remark));
    }
    let failed = Failed::of_remark(remark);
    let told = Evidence::new(remark.source.clone());
    // A launcher's error comes before NCCL, and a time-out tells more than a warning before it.
    match quote.filter(|_| !matches!(failed, Failed::Launcher | Failed::Timeout)) {
        Some(quote) => {
            let failed = if failed == Failed::Something { quote.failed } else { failed };
            let evidence = vec![Evidence::new(quote.source.clone()), told];
            Some(failed.quoting(quote.words).finding(evidence, failed.remedy(true)))
        }
        None => Some(failed.unsaid().finding(vec![told], failed.remedy(false))),
    }
}

fn died_beside_success(remark: &Remark) -> Finding {
    let draft = Draft {
        code: Code::PeerDied,
        severity: Severity::Warning,
        confidence: 0.5,
        title: "The program reports success, but a process died before or after".into(),
        explanation: "The program says that its run was good; a step before it failed, or processes were torn down in the wrong order as \
                      they left. The results stand."
            .into(),
    };
    let remedy = "Let every rank leave together: a barrier and `torch.distributed.destroy_process_group()` before the program ends";
    draft.finding(vec![Evidence::new(remark.source.clone())], &[remedy])
}

/// NCCL's own words for what failed.
struct Quote<'a> {
    words: &'a str,
    source: &'a SourceLine,
    failed: Failed,
    weight: Weight,
}

/// What followed a warning.
#[derive(Clone, Copy, PartialEq)]
enum Weight {
    /// NCCL's calls returned with an error.
    Returned,
    /// A program repeated it as the reason of its failure.
    Repeated,
    /// Nothing that the input shows.
    Nothing,
}

impl<'a> Quote<'a> {
    /// The first warning after which NCCL's calls returned an error, or what PyTorch repeats below `Last error:`, or any
    /// other warning, where no finding rests on it.
    fn find(case: &'a Case, findings: &[Finding]) -> Option<Self> {
        let known = |source: &SourceLine| {
            findings.iter().flat_map(|finding| &finding.evidence).any(|evidence| evidence.source.place == source.place)
        };
        let (returned, others): (Vec<Self>, Vec<Self>) =
            Quote::warnings(case).into_iter().partition(|quote| quote.weight == Weight::Returned);
        let mut quotes = returned.into_iter().chain(Quote::last_errors(case)).chain(others);
        quotes.find(|quote| !known(quote.source))
    }

    fn warnings(case: &'a Case) -> Vec<Self> {
        // Threads that serve others warn of what happened to these; without SHARP, and after other events, NCCL goes on.
        const HARMLESS: [&str; 8] = [
            "[Service thread",
            "[Proxy Service",
            "[Proxy Progress",
            "SHARP",
            "CollNet",
            "Got async event",
            "MSCCL",
            "Missing \"",
        ];
        let matters = |warning: &&Warning| !HARMLESS.iter().any(|words| warning.message.contains(words));
        let read = |warning: &'a Warning| {
            let after = |step: &&ErrorStep| {
                let (step, warning) = (step.source.place, warning.source.place);
                step.input == warning.input && step.line > warning.line
            };
            let of_topology = warning.site.as_ref().is_some_and(|site| site.starts_with("graph/"));
            let step = case.run.nccl.error_steps.iter().find(after);
            let failed = match step {
                _ if of_topology => Failed::Internal,
                Some(step) => Failed::of_result(step.result),
                None if warning.message.starts_with("Cuda failure") => Failed::Cuda,
                None => Failed::Something,
            };
            let weight = if step.is_some() { Weight::Returned } else { Weight::Nothing };
            Quote { words: &warning.message, source: &warning.source, failed, weight }
        };
        case.run.nccl.warnings.iter().filter(matters).map(read).collect()
    }

    fn last_errors(case: &'a Case) -> Vec<Self> {
        let heads = case.lines.iter().filter(|line| line.text.trim_end().ends_with("Last error:"));
        let below = |head: &Line| {
            let place = head.source.place;
            let next =
                |line: &&Line| (line.source.place.input, line.source.place.line) == (place.input, place.line + 1);
            case.lines.iter().find(next)
        };
        let quote = |line: &'a Line<'a>| {
            let cuda = line.text.find("Cuda failure");
            let failed = if cuda.is_some() { Failed::Cuda } else { Failed::Something };
            let words = line.text[cuda.unwrap_or(0)..].trim();
            Quote { words, source: line.source, failed, weight: Weight::Repeated }
        };
        heads.filter_map(below).map(quote).collect()
    }

    /// What it says where no program tells that it failed. A warning that nothing followed is worth a look, if nothing else
    /// is.
    fn alone(self, findings: &[Finding]) -> Option<Finding> {
        let told = findings.iter().any(|finding| finding.severity >= Severity::Warning);
        let mut draft = self.failed.quoting(self.words);
        if self.weight != Weight::Returned {
            draft.severity = Severity::Warning;
            draft.confidence = 0.3;
            draft.title = format!("NCCL warns: {}", in_short(self.words));
            draft.explanation = "No rule of busbw's knows this warning of NCCL's, and the input does not show what came of it. NCCL warns \
                                 where something fails; what its calls returned follows in the log with NCCL_DEBUG=INFO."
                .into();
        }
        let wanted = self.weight == Weight::Returned || self.weight == Weight::Nothing && !told;
        wanted.then(|| draft.finding(vec![Evidence::new(self.source.clone())], self.failed.remedy(true)))
    }
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

    fn title(text: &str) -> Option<String> {
        let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
        crate::diagnose(&run).findings.first().map(|finding| finding.title.clone())
    }

    #[test]
    fn the_first_words_of_a_failure_that_nobody_knows_are_quoted() {
        let warn = "node1:10:20 [0] enqueue.cc:1500 NCCL WARN Cuda failure 1 'invalid argument'";
        let step = "node1:10:20 [0] NCCL INFO group.cc:242 -> 1";
        let says = Some("CUDA failed inside NCCL: Cuda failure 1 'invalid argument'".to_string());
        assert_eq!(title(&format!("{warn}\n{step}")), says);
        assert_eq!(title(&format!("{warn}\n{step}\nFailed, NCCL error 'unhandled cuda error'")), says);
        let torch = "DistBackendError: NCCL error in: a.cpp:1, internal error, NCCL version 2.14.3\nLast error:\nA thing went wrong";
        assert_eq!(title(torch).as_deref(), Some("A check of NCCL's own failed: A thing went wrong"));
    }

    #[test]
    fn a_warning_is_no_failure_by_itself() {
        let text = "node1:10:20 [0] misc/x.cc:1 NCCL WARN Something odd that nobody knows";
        let says = |before: &str| Some(format!("{before}: Something odd that nobody knows"));
        assert_eq!(title(text), says("NCCL warns"));
        let step = "node1:10:20 [0] NCCL INFO x.cc:2 -> 3";
        assert_eq!(title(&format!("{text}\n{step}")), says("A check of NCCL's own failed"));
        let up = "node1:10:11 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1000 - Init COMPLETE";
        assert_eq!(title(&format!("{up}\n{text}\n{step}")), None);
        let row = "     1048576        262144     float     sum      -1    113.5    9.24    9.24      0    112.8    9.29    9.29      0";
        let measured = title(&format!("{text}\n# nThread 1 nGpus 2\n{row}"));
        assert!(measured.is_none_or(|title| !title.starts_with("NCCL warns")));
        let harmless =
            "node1:10:20 [0] transport.cc:1 NCCL WARN [Service thread] Accept failed Resource temporarily unavailable";
        assert_eq!(title(harmless), None);
    }
}

//! NCCL's own words for a failure that no rule names.

use super::super::{Basis, Draft};
use super::rests_on;
use crate::case::Case;
use crate::lines::Line;
use crate::refute::is_after;
use busbw_model::{Code, Communicator, Ended, ErrorStep, Evidence, Finding, RankEnd, Severity, SourceLine, Warning};

/// What a failure of NCCL's is, by `ncclResult_t`: code, title, what it means, what to do.
type Kind = (Code, &'static str, &'static str, &'static str);

const CUDA: Kind = (
    Code::GpuError,
    "CUDA failed inside NCCL",
    "A CUDA call that NCCL made was refused. What this rank and others say after it follows from it.",
    "Look at the host's kernel log: `dmesg -T | grep -iE 'xid|nvrm'`, and compare driver and CUDA with what this NCCL asks for: `nvidia-smi | head -4`",
);
const SYSTEM: Kind = (
    Code::NetUnreachable,
    "A system call failed inside NCCL",
    "A call of the system or of a library that NCCL uses failed. What this rank and others say after it follows from it.",
    "Run again with NCCL's network lines: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV`",
);
const INTERNAL: Kind = (
    Code::VersionMismatch,
    "A check of NCCL's own failed",
    "NCCL met what this version does not master: a machine that it does not know, a description of it that lacks something, ranks with other \
     versions or settings, or a fault of NCCL.",
    "Try the newest NCCL of the same CUDA version, and the plugin's newest where one is loaded",
);
const OTHER: Kind = (
    Code::PeerDied,
    "The run failed",
    "The input shows that a process failed, and not why. What NCCL or a launcher says follows from it.",
    "Give the output of all ranks, run with `export NCCL_DEBUG=INFO`; the first WARN or exception of the first rank that fails counts",
);

/// By the number of `ncclResult_t`.
fn of_result(result: u32) -> Kind {
    match result {
        1 => CUDA,
        2 => SYSTEM,
        3 => INTERNAL,
        _ => OTHER,
    }
}

/// By the words of `ncclGetErrorString`, which PyTorch and nccl-tests print.
fn of_words(text: &str) -> Kind {
    const WORDS: [(&str, u32); 9] = [
        ("unhandled cuda error", 1),
        ("ncclUnhandledCudaError", 1),
        ("Cuda failure", 1),
        ("invalid device ordinal", 1),
        ("CUDA error", 1),
        ("unhandled system error", 2),
        ("ncclSystemError", 2),
        ("internal error", 3),
        ("ncclInternalError", 3),
    ];
    WORDS.iter().find(|(words, _)| text.contains(words)).map_or(OTHER, |(_, result)| of_result(*result))
}

/// By the file of NCCL's, or the plugin, that warns.
fn of_place(warning: &Warning) -> Option<Code> {
    const PLACES: [(&str, Code); 6] = [
        ("NET/OFI", Code::NetPlugin),
        ("ibvwrap", Code::IbTransportError),
        ("net_ib", Code::IbTransportError),
        ("nvls.cc", Code::NvlinkFabric),
        ("mnnvl.cc", Code::NvlinkFabric),
        ("p2p.cc", Code::P2pDisabled),
    ];
    let site = warning.site.as_deref().unwrap_or_default();
    PLACES.iter().find(|(place, _)| site.contains(place) || warning.message.contains(place)).map(|(_, code)| *code)
}

/// As much of a message as a title holds.
pub(super) fn in_short(words: &str) -> String {
    const LONGEST: usize = 110;
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", words[..end].trim_end()),
        None => words.to_string(),
    }
}

/// A warning of NCCL's, or what PyTorch repeats below `Last error:`.
pub(super) struct Quote<'a> {
    words: &'a str,
    source: &'a SourceLine,
    kind: Kind,
    /// NCCL's calls returned with an error after it.
    returned: bool,
}

impl<'a> Quote<'a> {
    /// The finding for an end of which NCCL says more, or nothing.
    pub fn of_end(case: &Case, end: &RankEnd, found: &[(Basis, Finding)]) -> Finding {
        let said = match &end.how {
            Ended::Failure(said) => of_words(said),
            _ => of_words(&end.source.text),
        };
        let quote = Quote::find(case, found);
        let kind = quote.as_ref().filter(|_| said.0 == OTHER.0).map_or(said, |quote| quote.kind);
        let (code, title, explanation, remedy) = kind;
        let mut evidence = vec![Evidence::new(end.source.clone())];
        let (title, confidence) = match quote {
            Some(quote) => {
                evidence.insert(0, Evidence::new(quote.source.clone()));
                (format!("{title}: {}", in_short(quote.words)), 0.5)
            }
            None => (format!("{title}, and the input does not show why"), 0.35),
        };
        let draft = Draft { code, severity: Severity::Error, confidence, title, explanation: explanation.into() };
        draft.finding(evidence, &[remedy])
    }

    /// What a warning says where no process is seen to fail: an error if NCCL's calls returned with it and nothing came up; else worth a
    /// look, if nothing else is.
    pub fn alone(case: &Case, found: &[(Basis, Finding)]) -> Option<Finding> {
        let came_up = case.run.communicators.iter().any(Communicator::came_up)
            || case.run.tables.iter().any(|table| !table.rows.is_empty())
            || case.refuters.ended_well();
        let quote = Quote::find(case, found).filter(|_| !came_up)?;
        let told = found.iter().any(|(_, finding)| finding.severity >= Severity::Warning);
        let (code, title, explanation, remedy) = quote.kind;
        let draft = if quote.returned {
            let title = format!("{title}: {}", in_short(quote.words));
            Draft { code, severity: Severity::Error, confidence: 0.5, title, explanation: explanation.into() }
        } else {
            let title = format!("NCCL warns: {}", in_short(quote.words));
            Draft { code, severity: Severity::Warning, confidence: 0.3, title, explanation: UNKNOWN.into() }
        };
        (quote.returned || !told).then(|| draft.finding(vec![Evidence::new(quote.source.clone())], &[remedy]))
    }

    /// The first warning after which NCCL's calls returned an error, else what PyTorch repeats, else any; where no finding rests
    /// on it.
    fn find(case: &'a Case, found: &[(Basis, Finding)]) -> Option<Self> {
        let known = |source: &SourceLine| found.iter().any(|(_, finding)| rests_on(finding, source.place));
        let (returned, others): (Vec<Self>, Vec<Self>) = Quote::warnings(case).partition(|quote| quote.returned);
        let mut quotes = returned.into_iter().chain(Quote::last_errors(case)).chain(others);
        quotes.find(|quote| !known(quote.source))
    }

    fn warnings(case: &'a Case) -> impl Iterator<Item = Self> {
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
        let matters = move |warning: &&Warning| !HARMLESS.iter().any(|words| warning.message.contains(words));
        let read = move |warning: &'a Warning| {
            let after = |step: &&ErrorStep| is_after(step.source.place, warning.source.place);
            let step = case.run.nccl.error_steps.iter().find(after);
            let kind = match step {
                _ if warning.site.as_ref().is_some_and(|site| site.starts_with("graph/")) => INTERNAL,
                Some(step) => of_result(step.result),
                None => of_words(&warning.message),
            };
            let kind = (
                of_place(warning).filter(|_| kind.0 == OTHER.0 || kind.0 == SYSTEM.0).unwrap_or(kind.0),
                kind.1,
                kind.2,
                kind.3,
            );
            Quote { words: &warning.message, source: &warning.source, kind, returned: step.is_some() }
        };
        case.run.nccl.warnings.iter().filter(matters).map(read)
    }

    fn last_errors(case: &'a Case) -> impl Iterator<Item = Self> {
        let is_head = |(_, line): &(usize, &Line)| line.text.trim_end().ends_with("Last error:");
        let below = |(index, head): (usize, &Line)| {
            let rest = case.lines[index..].iter().map(|line| (line, line.source.place));
            let mut next = rest.skip_while(|(_, place)| *place == head.source.place);
            next.next()
                .filter(|(_, place)| is_after(*place, head.source.place) && place.line == head.source.place.line + 1)
        };
        case.lines.iter().enumerate().filter(is_head).filter_map(below).map(|(line, _)| {
            let from = line.text.find("Cuda failure").unwrap_or(0);
            Quote { words: line.text[from..].trim(), source: line.source, kind: of_words(&line.text), returned: false }
        })
    }
}

const UNKNOWN: &str = "No rule of busbw's knows this warning of NCCL's, and the input does not show what came of it. NCCL warns where something \
                       fails; what its calls returned follows in the log with NCCL_DEBUG=INFO.";

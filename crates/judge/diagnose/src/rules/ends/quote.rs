//! NCCL's own words for a failure that no rule names.

use super::super::{Basis, found as said};
use super::{rests_on, who};
use crate::case::Case;
use crate::ends::{is_one_of, is_report};
use crate::last_word::is_failure;
use crate::lines::Line;
use crate::results::{self, is_error_of_gpu};
use crate::words::{KNOWN, TIMED_OUT};
use busbw_model::{
    Code, Communicator, Ended, ErrorStep, Evidence, Finding, LogLevel, RankEnd, Severity, SourceLine, Speaker, Warning,
};

/// What a failure of NCCL's is: its id in rules/findings.toml.
type Kind = &'static str;

const SYSTEM: Kind = "quote.system";
const INTERNAL: Kind = "quote.internal";
const OTHER: Kind = "quote.other";
const LIBRARY: Kind = "quote.library";

/// By the number of `ncclResult_t`.
fn of_result(result: u32) -> Kind {
    match result {
        1 => "quote.cuda",
        2 => SYSTEM,
        3 => INTERNAL,
        4 => "quote.argument",
        5 => "quote.usage",
        6 => "quote.remote",
        _ => OTHER,
    }
}

/// By the words of `ncclGetErrorString`, which PyTorch and nccl-tests print, or the number.
fn of_words(text: &str) -> Kind {
    results::reported(text).or_else(|| results::by_words(text)).map_or(OTHER, of_result)
}

/// By the file of NCCL's, or the plugin, that warns.
fn of_place(warning: &Warning) -> Option<Code> {
    at_place(warning.site.as_deref().unwrap_or_default()).or_else(|| at_place(&warning.message))
}

fn at_place(text: &str) -> Option<Code> {
    const PLACES: [(&str, Code); 12] = [
        ("nvml", Code::GpuError),
        ("NET/OFI", Code::NetPlugin),
        ("NET/IB", Code::IbTransportError),
        ("ibv_", Code::IbTransportError),
        ("ibvwrap", Code::IbTransportError),
        ("net_ib", Code::IbTransportError),
        ("nvls.cc", Code::NvlinkFabric),
        ("mnnvl.cc", Code::NvlinkFabric),
        ("p2p.cc", Code::P2pDisabled),
        ("nvshmem/src/host/topo", Code::P2pDisabled),
        ("transport map", Code::P2pDisabled),
        ("nvshmem/src/modules/transport/ib", Code::IbTransportError),
    ];
    PLACES.iter().find(|(place, _)| text.contains(place)).map(|(_, code)| *code)
}

/// As much of a message as a title holds.
pub(crate) fn in_short(words: &str) -> String {
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
    /// The code, where its place shows more than the kind.
    code: Option<Code>,
    /// NCCL's calls returned with an error after it.
    returned: bool,
}

/// Whether a line goes on with the message of the one above: the same process printed it, behind the same label, and it is no bar of progress.
fn goes_on(head: &Line, line: &Line) -> bool {
    let label = |line: &Line| Some(line.source.text.split_once(line.text.trim())?.0.trim().to_string());
    !line.text.trim().is_empty()
        && line.speaker == head.speaker
        && label(line) == label(head)
        && !line.text.contains("%|")
}

/// How MPICH's and Open MPI's error handlers begin.
const OF_MPI: [&str; 2] = ["Fatal error in ", "An error occurred in MPI_"];

/// The finding for an end that only tells of another process's.
fn reported(case: &Case, end: &RankEnd) -> Option<Finding> {
    let evidence = vec![Evidence::new(end.source.clone())];
    let who = who(end);
    let whom = format!("{}{}", who[..1].to_lowercase(), &who[1..]);
    let told = match &end.how {
        Ended::Failure(words) if OF_MPI.iter().any(|start| words.starts_with(start)) => {
            let id = if of_network(case, end) { "end.mpi-network" } else { "end.mpi" };
            return Some(said(id, &[("who", &who), ("whom", &whom), ("said", words)], evidence));
        }
        Ended::Exception { kind, message, .. } if is_one_of(kind, &KNOWN.gone) => {
            return Some(said("end.gone", &[("told", &super::told(kind, message, None))], evidence));
        }
        _ if end.source.text.contains(TIMED_OUT) => {
            let operation = end.call.as_ref().and_then(|call| call.operation.as_deref());
            let within = operation.map_or(String::new(), |operation| format!(" in `{operation}`"));
            return Some(said("end.waited", &[("who", &who), ("within", &within)], evidence));
        }
        Ended::Exception { kind, message, .. } => format!(" ({})", super::told(kind, message, None)),
        Ended::Exit(Some(code)) => format!(" with exit code {code}"),
        _ => String::new(),
    };
    is_report(end).then(|| said("end.reported", &[("who", &who), ("whom", &whom), ("told", &told)], evidence))
}

/// The finding for an end that only tells of another process's, where the program itself printed an error right before it.
fn said_before(case: &Case, end: &RankEnd) -> Option<Finding> {
    /// What a launcher says of one end, and the blank lines around it.
    const LINES: u64 = 20;
    // Above an exception stands its traceback.
    let Ended::Exit(_) = end.how else { return None };
    let place = end.source.place;
    let is_near = |line: &&Line| {
        let of = line.source.place;
        place.is_after(of) && place.line - of.line <= LINES && line.speaker == Speaker::Program
    };
    let is_logged = |line: &Line| {
        let mut of_line = case.run.statements.iter().filter(|one| one.source.place == line.source.place);
        of_line.any(|one| one.level == Some(LogLevel::Error))
            && !case.run.ends.iter().any(|end| end.source.place == line.source.place)
    };
    let tells = |line: &&Line| {
        (tells_error(&line.text) || is_logged(line))
            && !is_of_another_task(line, end)
            && !case.refuters.progressed_after(line.source.place)
            && case.book.read(line.speaker, &line.text).is_empty()
    };
    let line = case.lines.iter().filter(is_near).rfind(tells)?;
    let who = who(end);
    let evidence = vec![Evidence::new(line.source.clone()), Evidence::new(end.source.clone())];
    let finding = said("quote.program", &[("who", &who), ("said", &in_short(line.text.trim()))], evidence);
    let of_gpu = is_error_of_gpu(&line.text);
    Some(if of_gpu { Finding { code: Code::GpuError, ..finding } } else { finding })
}

/// Whether a program tells an error in words of its own: `error: text`, or of CUDA or HIP in the words of any check, `CUDA Runtime Error(46): …`.
fn tells_error(text: &str) -> bool {
    (is_error_of_gpu(text) || is_failure(text)) && !KNOWN.is_harmless(text)
}

/// Whether a line that srun labelled, `0: text`, is of another task than an end tells.
fn is_of_another_task(line: &Line, end: &RankEnd) -> bool {
    let label = line.source.text.split_once(": ").and_then(|(label, _)| label.trim().parse::<u32>().ok());
    label.is_some_and(|task| !end.ranks.is_empty() && !end.ranks.contains(&task))
}

/// Whether the calls that MPICH lists below its error end in its network part: `MPIDI_OFI_handle_cq_error(1075): OFI poll failed (ofi_events.c:1077:…`.
fn of_network(case: &Case, end: &RankEnd) -> bool {
    const FILES: [&str; 2] = ["(ofi_", "(ucx_"];
    let place = end.source.place;
    let stack =
        case.lines.iter().filter(|line| line.source.place.is_after(place) && line.source.place.line < place.line + 20);
    stack.into_iter().any(|line| line.text.contains("MPID") && FILES.iter().any(|file| line.text.contains(file)))
}

impl<'a> Quote<'a> {
    /// The finding for an end of which NCCL says more, or nothing.
    pub fn of_end(case: &Case, end: &RankEnd, found: &[(Basis, Finding)]) -> Finding {
        let of_end = match &end.how {
            Ended::Failure(said) if results::reported(said).is_some() => of_words(said),
            _ => of_words(&end.source.text),
        };
        let quote = Quote::find(case, found);
        if quote.is_none()
            && of_end == OTHER
            && let Some(report) = said_before(case, end).or_else(|| reported(case, end))
        {
            return report;
        }
        let known = quote.as_ref().filter(|_| of_end == OTHER);
        // What a library reports is a failure where a process ended with it.
        let kind = known.map(|quote| quote.kind).filter(|kind| *kind != LIBRARY).unwrap_or(of_end);
        let quoted = quote.as_ref().map(|quote| Evidence::new(quote.source.clone()));
        let evidence = quoted.into_iter().chain([Evidence::new(end.source.clone())]).collect();
        let words = quote.as_ref().map_or(", and the input does not show why".into(), Quote::words);
        let finding = said(kind, &[("said", &words)], evidence);
        let code = known.and_then(|quote| quote.code).unwrap_or(finding.code);
        Finding { code, confidence: if quote.is_some() { finding.confidence } else { 0.35 }, ..finding }
    }

    /// `: Call to connect failed`.
    fn words(&self) -> String {
        format!(": {}", in_short(self.words))
    }

    /// What a warning says where no process is seen to fail: an error if NCCL's calls returned with it and nothing came up; else worth a
    /// look, if nothing else is.
    pub fn alone(case: &Case, found: &[(Basis, Finding)]) -> Option<Finding> {
        let came_up = case.run.communicators.iter().any(Communicator::came_up)
            || case.run.tables.iter().any(|table| !table.rows.is_empty());
        let is_over = |quote: &Quote| {
            let place = quote.source.place;
            case.refuters.may_have_ended_well_after(place) || case.refuters.counts_after(place)
        };
        let quote = Quote::find(case, found).filter(|quote| !came_up && !is_over(quote))?;
        let told = found.iter().any(|(_, finding)| finding.severity >= Severity::Warning);
        let words = quote.words();
        let evidence = || vec![Evidence::new(quote.source.clone())];
        let returned = said(quote.kind, &[("said", &words)], evidence());
        let returned = Finding { code: quote.code.unwrap_or(returned.code), ..returned };
        if quote.returned || quote.kind == LIBRARY && !told {
            return Some(returned);
        }
        let Finding { code, remedy, .. } = returned;
        (!told).then(|| Finding { code, remedy, ..said("quote.alone", &[("said", &words)], evidence()) })
    }

    /// The first warning after which NCCL's calls returned an error, else what PyTorch repeats, else any; where no finding rests
    /// on it.
    fn find(case: &'a Case, found: &[(Basis, Finding)]) -> Option<Self> {
        let known = |source: &SourceLine| found.iter().any(|(_, finding)| rests_on(finding, source.place));
        let (returned, others): (Vec<Self>, Vec<Self>) = Quote::warnings(case).partition(|quote| quote.returned);
        let logged = || Quote::logged(case).chain(Quote::steps(case));
        let mut quotes = returned
            .into_iter()
            .chain(Quote::last_errors(case))
            .chain(others)
            .chain(logged())
            .chain(Quote::libraries(case));
        quotes.find(|quote| !known(quote.source))
    }

    fn warnings(case: &'a Case) -> impl Iterator<Item = Self> {
        let matters = move |warning: &&Warning| !KNOWN.is_harmless(&warning.message);
        let read = move |warning: &'a Warning| {
            let after = |step: &&ErrorStep| step.source.place.is_after(warning.source.place);
            let step = case.run.nccl.error_steps.iter().find(after);
            let kind = match step {
                _ if warning.site.as_ref().is_some_and(|site| site.starts_with("graph/")) => INTERNAL,
                Some(step) => of_result(step.result),
                None => of_words(&warning.message),
            };
            let code = of_place(warning).or_else(|| results::by_error(&warning.message));
            let code = code.filter(|_| [OTHER, SYSTEM].contains(&kind));
            Quote { words: &warning.message, source: &warning.source, kind, code, returned: step.is_some() }
        };
        case.run.nccl.warnings.iter().filter(matters).map(read)
    }

    /// What a framework logs as an error of NCCL's.
    fn logged(case: &'a Case) -> impl Iterator<Item = Self> {
        let of_framework = |line: &&Line| line.speaker == Speaker::Torch;
        case.lines.iter().filter(of_framework).filter_map(|line| {
            let kind = of_result(results::reported(&line.text)?);
            let words = line.text.split_once("] ").map_or(line.text.as_str(), |(_, words)| words).trim();
            Some(Quote { words, source: line.source, kind, code: None, returned: true })
        })
    }

    /// What UCX, oneCCL and NVSHMEM report as errors.
    fn libraries(case: &'a Case) -> impl Iterator<Item = Self> {
        const HEADS: [&str; 2] = [" UCX  ERROR", "|CCL_ERROR|"];
        let head = |line: &'a Line| HEADS.iter().find_map(|head| Some(line.text.split_once(head)?.1));
        let of_library = move |line: &&'a Line| {
            line.speaker == Speaker::NetLibrary && (head(line).is_some() || line.text.contains("non-zero status: "))
        };
        case.lines.iter().filter(of_library).map(move |line| {
            let words = head(line).unwrap_or(&line.text).trim();
            let code = at_place(&line.text).or_else(|| results::by_error(&line.text));
            Quote { words, source: line.source, kind: LIBRARY, code, returned: false }
        })
    }

    /// The first call of NCCL's that returned an error, where NCCL says no more. A plugin that cannot be used is no error: NCCL takes the next.
    fn steps(case: &'a Case) -> impl Iterator<Item = Self> {
        let read = |step: &'a ErrorStep| {
            let words = step.source.text.rsplit_once("NCCL INFO ").map_or("", |(_, words)| words);
            Quote { words, source: &step.source, kind: of_result(step.result), code: at_place(words), returned: true }
        };
        let matters = |step: &&ErrorStep| !step.site.starts_with("plugin/");
        case.run.nccl.error_steps.iter().filter(matters).take(1).map(read)
    }

    fn last_errors(case: &'a Case) -> impl Iterator<Item = Self> {
        let is_head = |(_, line): &(usize, &Line)| line.text.trim_end().ends_with("Last error:");
        let below = |(index, head): (usize, &Line)| {
            let rest = case.lines[index..].iter().map(|line| (line, line.source.place));
            let mut next = rest.skip_while(|(_, place)| *place == head.source.place);
            next.next()
                .filter(|(_, place)| place.is_after(head.source.place) && place.line == head.source.place.line + 1)
                .filter(|(line, _)| goes_on(head, line))
        };
        let joined = case.lines.iter().filter_map(|line| {
            let words = line.text.strip_prefix("Last error:")?.trim();
            let code = at_place(words).or_else(|| results::by_error(words));
            let told = !words.is_empty() && line.speaker == Speaker::Python;
            told.then(|| Quote { words, source: line.source, kind: of_words(words), code, returned: false })
        });
        let heads = case.lines.iter().enumerate().filter(is_head).filter_map(below);
        let below = heads.map(|(line, _)| {
            let from = line.text.find("Cuda failure").unwrap_or(0);
            let (words, kind) = (line.text[from..].trim(), of_words(&line.text));
            let code = at_place(words).or_else(|| results::by_error(words));
            Quote { words, source: line.source, kind, code, returned: false }
        });
        below.chain(joined)
    }
}

//! The lines that signatures look at: NCCL's warnings and notes, and what programs print.

use busbw_model::{Ended, EnvOrigin, LogLevel, Run, SourceLine, Speaker};

/// A line and who said it.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// What it says, NCCL's prefix left out where it is known; the place of a WARN stands in front.
    pub text: String,
    pub source: &'a SourceLine,
    /// The host, where known.
    pub host: Option<&'a str>,
    pub count: u64,
    pub speaker: Speaker,
}

/// Every line worth a look, in the order of the inputs, each once.
pub fn of(run: &Run) -> Vec<Line<'_>> {
    let warnings = run.nccl.warnings.iter().map(|w| Line {
        text: format!("{} NCCL WARN {}", w.site.as_deref().unwrap_or_default(), w.message),
        source: &w.source,
        host: w.who.as_ref().map(|s| &*s.host),
        count: w.count,
        speaker: Speaker::NcclWarn,
    });
    let networks = run.nccl.networks.iter().map(|n| info(&n.source, n.host.as_deref()));
    let gpu_direct = run.nccl.gpu_direct.iter().map(|source| info(source, None));
    let settings = run.nccl.env.iter().filter(|e| e.origin == EnvOrigin::NcclLog);
    let settings = settings.map(|e| info(&e.source, e.hosts.first().map(String::as_str)));
    // With the system's error behind it, a step may be all that NCCL says: `misc/socket.cc:505 -> 2 (Operation now in progress)`.
    let steps = run.nccl.error_steps.iter().filter(|step| step.source.text.trim_end().ends_with(')'));
    let steps = steps.map(|step| info(&step.source, step.who.as_ref().map(|who| &*who.host)));
    let statements = run.statements.iter().flat_map(|statement| {
        // A warning's word is NCCL's as well, which people quote.
        let is_logged =
            statement.speaker == Speaker::Program && matches!(statement.level, Some(LogLevel::Error | LogLevel::Note));
        let texts = std::iter::once(statement.text()).chain(is_logged.then(|| statement.message()));
        texts.map(|text| Line {
            speaker: statement.speaker,
            text: behind_prefix(text),
            ..info(&statement.source, statement.host.as_deref())
        })
    });
    let exceptions = run.ends.iter().filter_map(|end| match &end.how {
        Ended::Exception { kind, message, traceback: true, .. } => Some(Line {
            text: format!("{kind}: {message}"),
            speaker: Speaker::Python,
            ..info(&end.source, end.host.as_deref())
        }),
        _ => None,
    });
    let mut lines: Vec<Line> = exceptions
        .chain(warnings)
        .chain(steps)
        .chain(networks)
        .chain(settings)
        .chain(gpu_direct)
        .chain(statements)
        .collect();
    lines.sort_by_key(|line| line.source.place);
    lines.dedup_by(|later, earlier| is_repeated(later, earlier));
    lines
}

/// Whether two are one line. One that a page has joined of several gives several at one place, and one of a logger's its message as well.
fn is_repeated(later: &Line, earlier: &Line) -> bool {
    let same = later.source.place == earlier.source.place && later.speaker == earlier.speaker;
    let of_logger =
        later.speaker == Speaker::Program && earlier.text.ends_with(&later.text) && later.text != earlier.text;
    same && (later.source.text == earlier.source.text && !of_logger || later.text.contains(&earlier.text))
}

fn info<'a>(source: &'a SourceLine, host: Option<&'a str>) -> Line<'a> {
    Line { text: behind_prefix(&source.text), source, host, count: 1, speaker: Speaker::NcclInfo }
}

fn behind_prefix(line: &str) -> String {
    line.rsplit_once("NCCL INFO ").map_or(line, |(_, text)| text).to_string()
}

/// A warning among the events of Kubernetes.
pub(crate) fn is_event(text: &str) -> bool {
    is_event_of("Warning", text)
}

/// An event of Kubernetes: type, reason, and the age (`kubectl describe`) or the thing, behind the age (`kubectl get events`): `9m Normal Started pod/train-0`.
pub(crate) fn is_event_of(kind: &str, text: &str) -> bool {
    let is_age = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h', 'd']);
    let mut words = text.split_whitespace().peekable();
    words.next_if(is_age);
    words.next() == Some(kind) && words.nth(1).is_some_and(|word| is_age(&word) || word.contains('/'))
}

/// Whether it is one of either type.
pub(crate) fn is_any_event(text: &str) -> bool {
    ["Warning", "Normal"].iter().any(|kind| is_event_of(kind, text))
}

//! The lines that signatures look at: NCCL's warnings and notes, and what programs and people say.

use busbw_model::{EnvOrigin, NetworkStatement, Run, SourceLine};

/// A line and who said it.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// What it says, NCCL's prefix left out where it is known; the place of a WARN stands in front.
    pub text: String,
    /// The line.
    pub source: &'a SourceLine,
    /// The host, where known.
    pub host: Option<&'a str>,
    /// How many lines said the same.
    pub count: u64,
    /// Who said it.
    pub voice: Voice,
}

/// Who says a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// NCCL, as a warning.
    Warning,
    /// NCCL, in passing.
    Info,
    /// A program, a launcher, the kernel, or a person.
    Other,
}

/// Every line worth a look, in the order of the inputs, each once.
pub fn of(run: &Run) -> Vec<Line<'_>> {
    let warnings = run.nccl.warnings.iter().map(|w| Line {
        text: format!("{} NCCL WARN {}", w.site.as_deref().unwrap_or_default(), w.message),
        source: &w.source,
        host: w.speaker.as_ref().map(|s| &*s.host),
        count: w.count,
        voice: Voice::Warning,
    });
    let networks = run.nccl.networks.iter().filter(|n| !matches!(n.statement, NetworkStatement::Using(_)));
    let networks = networks.map(|n| info(&n.source, n.host.as_deref()));
    let gpu_direct = run.nccl.gpu_direct.iter().map(|source| info(source, None));
    let settings = run.nccl.env.iter().filter(|e| e.origin == EnvOrigin::NcclLog);
    let settings = settings.map(|e| info(&e.source, e.hosts.first().map(String::as_str)));
    let notes = run.notes.iter().map(|note| {
        let voice = if note.from_nccl { Voice::Info } else { Voice::Other };
        Line { voice, ..info(&note.source, note.host.as_deref()) }
    });
    let remarks = run.remarks.iter().map(|r| Line { count: r.count, voice: Voice::Other, ..info(&r.source, None) });
    let mut lines: Vec<Line> =
        warnings.chain(networks).chain(settings).chain(gpu_direct).chain(remarks).chain(notes).collect();
    lines.sort_by_key(|line| line.source.place);
    lines.dedup_by(|later, earlier| later.source.place == earlier.source.place && later.voice == earlier.voice);
    lines
}

fn info<'a>(source: &'a SourceLine, host: Option<&'a str>) -> Line<'a> {
    let text = source.text.rsplit_once("NCCL INFO ").map_or(&*source.text, |(_, text)| text).to_string();
    Line { text, source, host, count: 1, voice: Voice::Info }
}

//! Phrases of a comparison of runs.

use crate::letters::{letter, times};
use crate::words::counted;
use busbw_model::{ComparedFinding, ComparedRun, Contest, Faster, SizeRange};

/// Of a run that does not tell a value.
pub(crate) const NOT_SAID: &str = "(not said)";
/// Findings of a run that are shown at most.
const MAX_FINDINGS: usize = 4;

/// What a run is: `all_reduce, 16 ranks, peak 479.91 GB/s at 8 GiB, average 127.24 GB/s, over RDMA`.
pub(crate) fn run(run: &ComparedRun) -> Vec<String> {
    let mut parts = vec![run.collective.map_or("unknown collective", |c| c.name()).to_string()];
    parts.extend(run.nranks.map(|ranks| counted(ranks as usize, "rank")));
    let peak = run.peak_size_bytes.zip(run.peak_busbw_gbs);
    parts.extend(peak.map(|(size, busbw)| format!("peak {busbw} at {size}")));
    parts.extend(run.avg_busbw_gbs.map(|busbw| format!("average {busbw}")));
    parts.extend(run.network.map(|network| format!("over {} between nodes", network.name())));
    if run.repetitions > 1 {
        parts.push(format!("measured {} times", run.repetitions));
    }
    parts
}

/// `8 B to 64 KiB`, or one size.
pub(crate) fn sizes(range: &SizeRange) -> String {
    if range.from == range.to { range.from.to_string() } else { format!("{} to {}", range.from, range.to) }
}

/// `A is faster, 2.10× to 56.2×`, `no difference (0.98× to 1.03×)`.
pub(crate) fn outcome(range: &SizeRange, other: usize) -> String {
    let (least, most) = range.ratio;
    let span = |least: f64, most: f64| match (times(least), times(most)) {
        (a, b) if a == b => a,
        (a, b) => format!("{a} to {b}"),
    };
    match range.faster {
        Faster::First => format!("A is faster, {}", span(least, most)),
        Faster::Other => format!("{} is faster, {}", letter(other), span(1.0 / most, 1.0 / least)),
        Faster::Neither => format!("no difference ({})", span(least, most)),
    }
}

/// How times of small messages compare.
pub(crate) fn small(contest: &Contest) -> Option<String> {
    let small = contest.small?;
    let (least, most) = small.time_ratio;
    let span = match (format!("{least:.1}×"), format!("{most:.1}×")) {
        (one, other) if one != other => format!("{one} to {other} the time of A"),
        (one, _) if one == "1.0×" => "as long as A".to_owned(),
        (one, _) => format!("{one} the time of A"),
    };
    Some(format!("Small messages, up to {}: {} takes {span}.", small.up_to, letter(contest.other)))
}

pub(crate) fn columns_in_words(repeated: bool) -> String {
    let means = if repeated { "; means with their 95% interval where a size was measured repeatedly" } else { "" };
    format!(
        "The better of in-place and out-of-place{means}. Ratios use the time column, which has more digits than busbw."
    )
}

/// The findings of a run that show why it is as it is, the first first.
pub(crate) fn telling(run: &ComparedRun) -> impl Iterator<Item = &ComparedFinding> {
    run.findings.iter().take(MAX_FINDINGS)
}

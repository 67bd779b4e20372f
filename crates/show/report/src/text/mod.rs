//! Terminal text for people: verdict, findings with their evidence, the cluster, the curves.

mod acceleration;
mod advise;
mod brief;
mod check;
mod cluster;
mod compare;
mod findings;
mod link;
mod machine;
mod net_plugin;
mod page;
mod peers;
mod prediction;
mod profile;
mod simulation;
mod source;
mod tables;
mod tune;

pub use acceleration::accelerate;
pub use advise::{advise, known_faults};
pub use brief::brief;
pub use check::check;
pub use compare::compare;
pub use link::link;
pub use net_plugin::net_plugins;
pub use prediction::predict;
pub use profile::profile;
pub use simulation::simulate;
pub use tune::tune;

use crate::words;
use busbw_model::{Advice, Diagnosis, EnvOrigin, Run, Verdict};
use page::{Page, paint};

/// Inputs, problems and variables that are listed at most.
const MAX_LISTED: usize = 8;
const MAX_SETTINGS: usize = 40;

/// How the text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether colours and other escape sequences may be written. Without, no escape character ever is.
    pub color: bool,
    /// Columns of the terminal; less than 60 counts as 60, more than 200 as 200.
    pub width: usize,
    /// Rows of the terminal; `None` for a file or a pipe, which scroll nothing away.
    pub rows: Option<usize>,
    /// Whether the answer should fit a screen, as far as it can.
    pub brief: bool,
}

impl Default for Style {
    /// No colour, 100 columns: what a file or a pipe gets.
    fn default() -> Self {
        Style { color: false, width: 100, rows: None, brief: false }
    }
}

/// A measured value as the tables of a sweep show it: five digits.
pub fn measured_value(value: f64) -> String {
    crate::words::tuning::number(value)
}

/// The text of a run and its diagnosis, ready to print.
///
/// ```
/// use busbw_model::{Diagnosis, Run, Verdict};
/// let diagnosis = Diagnosis { verdict: Verdict::Healthy, summary: "all is well".into(), ..Diagnosis::default() };
/// let text = busbw_report::text::explain(&Run::default(), &diagnosis, &Default::default());
/// assert_eq!(text, "HEALTHY  all is well\n");
/// ```
pub fn explain(run: &Run, diagnosis: &Diagnosis, style: &Style) -> String {
    let mut page = Page::new(*style);
    verdict(&mut page, diagnosis);
    let (shown, alike) = words::without_alike(&diagnosis.findings);
    for finding in shown {
        findings::finding(&mut page, run, diagnosis, finding);
    }
    findings::alike(&mut page, &alike);
    findings::pages(&mut page, diagnosis);
    peers::peers(&mut page, diagnosis);
    if let Some(expected) = &diagnosis.expected {
        page.heading("Expected");
        page.indented(2, &words::expected(expected));
    }
    cluster::nodes(&mut page, run);
    cluster::communicators(&mut page, run);
    tables::tables(&mut page, run, diagnosis);
    machine::machine(&mut page, run);
    environment(&mut page, run);
    inputs(&mut page, run);
    page.finish_with(style.rows, |page| verdict(page, diagnosis))
}

/// What to run next, ready to print: each question, its command line, and what to do with the output.
pub fn advice(advice: &[Advice], style: &Style) -> String {
    let mut page = Page::new(*style);
    page.heading("What to run next");
    if advice.is_empty() {
        page.indented(2, "Nothing: the input answers all questions.");
    }
    for (at, advice) in advice.iter().enumerate() {
        page.indented(2, &format!("{}. {}", at + 1, advice.question));
        page.text(&format!("     {}", advice.command));
        page.end_line();
        page.indented(5, &advice.then);
    }
    page.finish()
}

fn verdict(page: &mut Page, diagnosis: &Diagnosis) {
    let word = diagnosis.verdict.title();
    let style = match diagnosis.verdict {
        Verdict::Healthy | Verdict::NoErrors => paint::GOOD,
        Verdict::Degraded => paint::WARNING,
        Verdict::Failed => paint::ERROR,
        Verdict::Inconclusive => paint::NOTE,
    };
    page.styled(style, word);
    page.hanging(word.len() + 2, paint::BOLD, &diagnosis.summary);
    if let Some(culprit) = words::culprit(diagnosis) {
        page.indented(2, &culprit);
    }
}

fn environment(page: &mut Page, run: &Run) {
    let versions = words::versions(run);
    let found = words::assignments(run, EnvOrigin::NcclLog);
    let asked: Vec<String> = words::assignments(run, EnvOrigin::CommandLine)
        .into_iter()
        .filter(|setting| !found.contains(setting))
        .collect();
    if versions.is_empty() && found.is_empty() && asked.is_empty() {
        return;
    }
    page.heading("Environment");
    if !versions.is_empty() {
        page.indented(2, &versions.join(", "));
    }
    for (label, settings) in [("", found), ("in the launch command: ", asked)] {
        if !settings.is_empty() {
            let more = more(settings.len(), MAX_SETTINGS).unwrap_or_default();
            let shown = settings.iter().take(MAX_SETTINGS).map(String::as_str).collect::<Vec<_>>().join(" ");
            page.indented(2, &format!("{label}{shown} {more}"));
        }
    }
}

fn inputs(page: &mut Page, run: &Run) {
    if run.inputs.is_empty() {
        return;
    }
    page.heading("Read");
    for input in run.inputs.iter().take(MAX_LISTED) {
        let lines = words::counted(input.lines as usize, "line");
        page.clipped(2, &format!("{}  {lines}, {}", input.path, words::kinds(input)));
    }
    page.more(run.inputs.len(), MAX_LISTED);
    if run.nccl.warn_lines > 0 {
        page.indented(2, &words::counted(run.nccl.warn_lines as usize, "NCCL WARN line"));
    }
    for problem in run.problems.iter().take(MAX_LISTED) {
        page.indented(2, &format!("not read: {}: {}", words::location(run, problem.place), problem.text));
    }
    page.more(run.problems.len(), MAX_LISTED);
}

/// `… and 3 more`, when a list of `total` items shows `shown`.
fn more(total: usize, shown: usize) -> Option<String> {
    (total > shown).then(|| format!("… and {} more", total - shown))
}

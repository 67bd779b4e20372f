//! One self-contained web page: no script, no external resource, light and dark as the reader's system has it.

mod cluster;
mod compare;
mod curve;
mod environment;
mod fabric;
mod findings;
mod link;
mod markup;
mod peers;
mod prediction;
mod profile;
mod simulation;
mod tables;
mod topology;
mod tune;

pub use compare::compare;
pub use link::link;
pub use prediction::predict;
pub use profile::profile;
pub use simulation::simulate;
pub use tune::tune;

use crate::words;
use busbw_model::{Advice, Diagnosis, Input, Place, Reached, Run, SourceLine, Verdict};
use busbw_predict::{Cluster, LinkLoad};
use markup::{escape, folded, section, table, with_code};
use std::collections::BTreeMap;
use std::fmt;

const CSS: &str = include_str!("page.css");
/// Inputs and problems that are listed at most.
const MAX_LISTED: usize = 100;

/// What a page shows beside the run and its diagnosis.
#[derive(Debug, Default)]
pub struct Context {
    /// Lines of the inputs around the evidence, as far as they can be read again.
    pub lines: BTreeMap<Place, SourceLine>,
    /// The cluster that the run was said to be on: its fabric is drawn.
    pub cluster: Option<Cluster>,
    /// How the run's own rings load the links of that fabric, simulated over hash seeds; nothing where it is not known.
    pub loads: Vec<LinkLoad>,
}

impl Context {
    /// Lines before and behind evidence that are shown.
    pub const REACH: u64 = 2;
}

/// The page of a run and its diagnosis: verdict, findings with their evidence in context, the machines with the rings and
/// trees of their channels, the curves and tables, the environment. All text is escaped.
///
/// ```
/// use busbw_model::{Diagnosis, Run};
/// use busbw_report::html::{self, Context};
/// let diagnosis = Diagnosis { summary: "3 < 4".into(), ..Diagnosis::default() };
/// assert!(html::explain(&Run::default(), &diagnosis, &Context::default()).to_string().contains("3 &lt; 4"));
/// ```
pub fn explain(run: &Run, diagnosis: &Diagnosis, context: &Context) -> Page {
    let verdict = diagnosis.verdict.as_str();
    let pictures = [
        tables::tables(run, diagnosis),
        topology::topology(run),
        context.cluster.as_ref().map(|cluster| fabric::section(cluster, &context.loads)).unwrap_or_default(),
    ];
    let (first, others) = findings::findings(run, diagnosis, context);
    // What has failed is told in words; how slow something is, a curve shows at once.
    let answer = match diagnosis.verdict {
        Verdict::Failed => first + &pictures.concat(),
        _ => pictures.concat() + &first,
    };
    let body = [
        words::judged_speed(diagnosis).map(bar).unwrap_or_default(),
        words::culprit(diagnosis)
            .map(|culprit| format!("<p class=\"culprit\">{}</p>\n", escape(&culprit)))
            .unwrap_or_default(),
        figures(run),
        answer,
        peers::peers(diagnosis),
        advice(diagnosis),
        folded("Other findings", &others),
        folded("What is expected, and why", &expected(diagnosis)),
        folded("Machines", &cluster::nodes(run)),
        folded("Communicators and rings", &cluster::communicators(run)),
        folded("Variables and versions", &environment::environment(run, diagnosis)),
        folded("What was read", &inputs(run)),
    ]
    .concat();
    let title = diagnosis.summary.clone();
    Page { class: verdict, badge: diagnosis.verdict.title(), title, command: "explain", body }
}

/// How much of the expected speed was measured.
fn bar(speed: Reached) -> String {
    let percent = 100.0 * speed.share();
    format!(
        "<p class=\"reached\"><strong>{:.2}</strong> of {} expected, {percent:.0}%</p>\n\
         <div class=\"bar\"><div style=\"width: {:.1}%\"></div></div>\n",
        speed.measured.0,
        speed.expected,
        percent.clamp(0.0, 100.0),
    )
}

fn expected(diagnosis: &Diagnosis) -> String {
    diagnosis.expected.iter().map(|expected| format!("<p>{}</p>\n", escape(&words::expected(expected)))).collect()
}

/// A page. Its text has the command's name at the foot; [`Page::signed`] has a signature there.
pub struct Page {
    /// The class of the head, which colours it.
    class: &'static str,
    badge: &'static str,
    /// The summary, in one sentence.
    title: String,
    /// The subcommand that made the page.
    command: &'static str,
    /// HTML.
    body: String,
}

impl Page {
    /// The page with a signature, which makes it evidence a week later: `busbw 0.1.0, run.log, on host a, 2026-11-24`.
    pub fn signed(&self, signature: &str) -> String {
        self.with_foot(&with_code(signature))
    }

    fn with_foot(&self, foot: &str) -> String {
        let Page { class, badge, body, .. } = self;
        let (title, plain) = (with_code(&self.title), escape(&self.title.replace('`', "")));
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{badge}: {plain}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n\
             <header class=\"{class}\">\n<span class=\"verdict\">{badge}</span>\n<h1>{title}</h1>\n</header>\n\
             {body}<footer>{foot}</footer>\n</main>\n</body>\n</html>\n"
        )
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_foot(&format!("busbw {}", self.command)))
    }
}

/// Tiles of a figure and what it is; nothing without figures.
fn tiles(tiles: &[(String, String)]) -> String {
    if tiles.is_empty() {
        return String::new();
    }
    let tile = |(figure, label): &(String, String)| {
        format!("<div><strong>{}</strong><span>{}</span></div>\n", escape(figure), escape(label))
    };
    format!("<div class=\"figures\">\n{}</div>\n", tiles.iter().map(tile).collect::<String>())
}

/// The figures that a reader looks for first.
fn figures(run: &Run) -> String {
    let mut tiles: Vec<(String, String)> = Vec::new();
    if let [table] = run.tables.as_slice() {
        tiles.extend(table.peak().map(|(row, busbw)| (busbw.to_string(), format!("peak busbw, at {}", row.size))));
        let last = table.rows.last().and_then(|row| Some((row.best_busbw()?, row.size)));
        tiles.extend(last.map(|(busbw, size)| (busbw.to_string(), format!("at the last size, {size}"))));
        tiles.extend(table.avg_busbw().map(|busbw| (busbw.to_string(), "average over all sizes".to_string())));
    }
    if let Some(comm) = run.communicators.first() {
        let ranks = comm.nranks.map(|ranks| words::counted(ranks as usize, "rank"));
        let nodes = comm.nnodes.map(|nodes| format!("on {}", words::counted(nodes as usize, "node")));
        tiles.extend(ranks.map(|ranks| (ranks, nodes.unwrap_or_default())));
        let network = comm.transport_names().into_iter().filter(|name| name.starts_with("NET/")).collect::<Vec<_>>();
        let gdr = comm.gdr().map(|gdr| words::gdr(gdr).to_string()).unwrap_or_default();
        if !network.is_empty() {
            tiles.push((network.join(" + "), gdr));
        }
    }
    self::tiles(&tiles)
}

/// Command lines for what is still open; a healthy run leaves nothing to find out.
fn advice(diagnosis: &Diagnosis) -> String {
    if diagnosis.advice.is_empty() || matches!(diagnosis.verdict, Verdict::Healthy | Verdict::NoErrors) {
        return String::new();
    }
    let item = |Advice { question, command, then }: &Advice| {
        format!("<li><p>{}</p>\n<pre>{}</pre>\n<p>{}</p></li>\n", with_code(question), escape(command), with_code(then))
    };
    section("What to run next", &format!("<ol>\n{}</ol>\n", diagnosis.advice.iter().map(item).collect::<String>()))
}

fn inputs(run: &Run) -> String {
    if run.inputs.is_empty() {
        return String::new();
    }
    let row = |input: &Input| vec![input.path.clone(), words::kinds(input), input.lines.to_string()];
    let mut body = table(&["input", "holds", "lines"], run.inputs.iter().take(MAX_LISTED).map(row));
    body.push_str(&markup::more(run.inputs.len(), MAX_LISTED));
    for problem in run.problems.iter().take(MAX_LISTED) {
        let place = words::location(run, problem.place);
        body.push_str(&format!("<p class=\"muted\">not read: {}: {}</p>\n", escape(&place), escape(&problem.text)));
    }
    body.push_str(&markup::more(run.problems.len(), MAX_LISTED));
    body
}

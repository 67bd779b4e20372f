//! A simulation of the fabric as text: the distribution over seeds, alternatives beside it, the links that decide.

use super::Style;
use super::page::{Page, paint};
use super::tables::bar;
use crate::description;
use crate::histogram::bins;
use crate::scenario::{BusbwChange, Comparison, Scenario};
use crate::style::{clip, left, right, widest};
use crate::words::counted;
use busbw_model::GBps;

/// Bins of a histogram at most.
const MAX_BINS: usize = 10;
const MAX_BAR: usize = 50;
/// Links that are listed at most.
const MAX_LINKS: usize = 8;
/// The name of a scenario is cut to this.
const MAX_NAME: usize = 24;

/// The text of a simulation and of the alternatives to it, ready to print.
pub fn simulate(comparison: &Comparison, style: &Style) -> String {
    let mut page = Page::new(*style);
    let cluster = &comparison.base.cluster;
    page.styled_line(paint::BOLD, &description::machines(cluster));
    for part in description::parts(cluster).iter().skip(1) {
        page.indented(2, part);
    }
    for line in comparison.base.simulation.busiest.iter().map(description::busiest) {
        page.indented(2, &line);
    }
    distributions(&mut page, comparison);
    seeds(&mut page, &comparison.base);
    links(&mut page, &comparison.base);
    if !comparison.alternatives.is_empty() {
        page.indented(2, "The same of each change: `-o page.html`, or `--json`");
    }
    let assumptions = comparison.assumptions();
    if !assumptions.is_empty() {
        page.heading("Assumed");
        assumptions.iter().for_each(|assumption| page.indented(2, &format!("- {assumption}")));
    }
    page.finish()
}

/// A line per scenario with its percentiles, then what the alternatives gain.
fn distributions(page: &mut Page, comparison: &Comparison) {
    let seeds = counted(comparison.base.simulation.per_seed.len(), "hash seed");
    page.heading(&format!("busbw of large messages over {seeds}, GB/s"));
    let names = widest(comparison.scenarios().map(|scenario| &scenario.name)).min(MAX_NAME);
    let head = ["p5", "median", "p95", "worst", "best", "unshared"].map(|name| right(name, 8));
    page.clipped(2, &format!("{}  {}", left("", names), head.join("  ")));
    for scenario in comparison.scenarios() {
        let busbw = scenario.simulation.busbw;
        let values = [busbw.p5, busbw.p50, busbw.p95, busbw.min, busbw.max, scenario.simulation.unshared];
        let cells = values.map(|value| format!("{:>8.2}", value.0));
        page.clipped(2, &format!("{}  {}", left(&clip(&scenario.name, names), names), cells.join("  ")));
    }
    page.indented(2, "unshared: what NICs and the nodes' own links allow, if no two flows shared a link of the fabric");
    if !comparison.alternatives.is_empty() {
        page.heading("Gain in the median, and where hashing is unlucky (p5)");
    }
    for scenario in &comparison.alternatives {
        let [median, p5] = [comparison.median_gain(scenario), comparison.p5_gain(scenario)].map(BusbwChange::in_words);
        page.clipped(2, &format!("{}  {median}; p5 {p5}", left(&clip(&scenario.name, names), names)));
    }
}

/// The histogram of a scenario; nothing where all seeds agree.
fn seeds(page: &mut Page, scenario: &Scenario) {
    let bins = bins(&scenario.simulation.per_seed, MAX_BINS);
    if bins.len() < 2 {
        return;
    }
    page.heading(&format!("Seeds by busbw in GB/s, {}", scenario.name));
    let labels: Vec<String> = bins.iter().map(|bin| bin.label()).collect();
    let width = widest(labels.iter());
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1);
    let total = scenario.simulation.per_seed.len().max(1);
    let room = page.width().saturating_sub(width + 16).min(MAX_BAR);
    for (bin, label) in bins.iter().zip(&labels) {
        page.text(&format!("  {}  ", right(label, width)));
        page.text(&right(&format!("{:.1}%", bin.count as f64 * 100.0 / total as f64), 6));
        page.text("  ");
        page.styled_line(paint::BAR, &bar(Some(GBps(bin.count as f64)), GBps(most as f64), room));
    }
}

/// The links that hold the run back, the worst first.
fn links(page: &mut Page, scenario: &Scenario) {
    let links = &scenario.simulation.links;
    if links.is_empty() {
        return;
    }
    page.heading(&format!("Links that carry most, {} ({})", scenario.name, counted(scenario.simulation.flows, "flow")));
    let shown = &links[..links.len().min(MAX_LINKS)];
    let head = ["rate", "flows", "at most", "slowest in"].map(|name| right(name, 10));
    let room = page.width() - 2 - 4 * 12;
    let width = widest(shown.iter().map(|link| &link.name)).min(room);
    page.clipped(2, &format!("{}  {}", left("", width), head.join("  ")));
    for link in shown {
        let cells = [
            description::rate(link.rate),
            format!("{:.2}", link.flows_mean),
            link.flows_max.to_string(),
            format!("{:.1}%", link.decides * 100.0),
        ]
        .map(|cell| right(&cell, 10));
        page.clipped(2, &format!("{}  {}", left(&clip(&link.name, width), width), cells.join("  ")));
    }
    page.more(links.len(), MAX_LINKS);
    page.indented(
        2,
        "flows: mean over seeds; slowest in: share of seeds in which the link holds back the slowest flow",
    );
}

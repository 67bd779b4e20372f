//! The page of a simulation: the distribution over seeds, alternatives beside it, the fabric with the load of its links.

use super::fabric;
use super::markup::{escape, list, section, table};
use super::prediction::assumptions;
use super::{Page, tiles};
use crate::description;
use crate::histogram::{Bin, bins};
use crate::scenario::{Comparison, Scenario};
use crate::words::counted;

/// Bins of a histogram at most.
const MAX_BINS: usize = 16;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 24.0;
/// Where bars begin, and how long the longest is.
const BAR_LEFT: f64 = 150.0;
const BAR: f64 = 760.0;

/// The page of a simulated fabric and the alternatives to it. All text is escaped.
pub fn simulate(comparison: &Comparison) -> Page {
    let title = title(comparison);
    let body = [
        figures(comparison),
        section("busbw of large messages over hash seeds", &distributions(comparison)),
        comparison.scenarios().map(scenario).collect(),
        section("Cluster", &list(description::parts(&comparison.base.cluster).iter().map(String::as_str))),
        assumptions(comparison.assumptions().into_iter()),
    ]
    .concat();
    Page { class: "simulated", badge: "simulated", title, command: "simulate", body }
}

fn title(comparison: &Comparison) -> String {
    let base = &comparison.base;
    let machines = description::machines(&base.cluster);
    let busbw = base.simulation.busbw;
    let range = if busbw.min == busbw.max {
        format!("{} whatever the hash", busbw.p50)
    } else {
        format!("{} in the median of hash seeds, {:.2} to {}", busbw.p50, busbw.min.0, busbw.max)
    };
    let gains = comparison.alternatives.iter().map(|scenario| (comparison.median_gain(scenario), scenario));
    // Of equals the first: it was asked for first.
    let best = gains.reduce(|best, next| if next.0.to.0 > best.0.to.0 { next } else { best });
    let best = best.filter(|(gain, _)| gain.to.0 > gain.from.0 * 1.005);
    let best = best.map(|(gain, scenario)| format!("; {} gives {}", scenario.name, gain.to)).unwrap_or_default();
    format!("{machines}: {range}{best}")
}

fn figures(comparison: &Comparison) -> String {
    let simulation = &comparison.base.simulation;
    tiles(&[
        (simulation.busbw.p50.to_string(), "median of seeds".into()),
        (simulation.busbw.p5.to_string(), "where hashing is unlucky (5th percentile)".into()),
        (simulation.unshared.to_string(), "if no two flows shared a link".into()),
        (counted(simulation.flows, "flow"), format!("over {}", counted(simulation.per_seed.len(), "hash seed"))),
    ])
}

fn distributions(comparison: &Comparison) -> String {
    let row = |scenario: &Scenario| {
        let busbw = scenario.simulation.busbw;
        let mut row = vec![scenario.name.clone()];
        let values = [busbw.p5, busbw.p50, busbw.p95, busbw.min, busbw.max, scenario.simulation.unshared];
        row.extend(values.map(|value| format!("{:.2}", value.0)));
        let is_base = std::ptr::eq(scenario, &comparison.base);
        let gains = [comparison.median_gain(scenario), comparison.p5_gain(scenario)];
        row.extend(gains.map(|gain| if is_base { String::new() } else { gain.in_short() }));
        row
    };
    let head = ["GB/s", "p5", "median", "p95", "worst", "best", "unshared", "gain: median", "gain: p5"];
    let shown = if comparison.alternatives.is_empty() { head.len() - 2 } else { head.len() };
    let rows = comparison.scenarios().map(row).map(|row| row.into_iter().take(shown).collect());
    table(&head[..shown], rows)
        + "<p class=\"muted\">unshared: what NICs and the nodes' own links allow, if no two flows shared a link of the \
           fabric.</p>\n"
}

/// Picture, histogram and links of a scenario.
fn scenario(scenario: &Scenario) -> String {
    let about = format!("<p class=\"muted\">{}</p>\n", escape(&description::fabric(&scenario.cluster.fabric)));
    let heading = format!("Fabric, {}", scenario.name);
    section(
        &heading,
        &(about
            + &fabric::drawing(&scenario.cluster, &scenario.simulation.links)
            + &histogram(scenario)
            + &links(scenario)),
    )
}

fn histogram(scenario: &Scenario) -> String {
    let bins = bins(&scenario.simulation.per_seed, MAX_BINS);
    if bins.len() < 2 {
        return format!("<p>Every seed gives {}.</p>\n", scenario.simulation.busbw.p50);
    }
    let total = scenario.simulation.per_seed.len().max(1) as f64;
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1) as f64;
    let bar = |(row, bin): (usize, &Bin)| {
        let (y, width) = (row as f64 * ROW, bin.count as f64 / most * BAR);
        let share = bin.count as f64 / total * 100.0;
        format!(
            "<text class=\"tick end\" x=\"{}\" y=\"{:.1}\">{}</text><rect class=\"bar\" x=\"{BAR_LEFT}\" y=\"{:.1}\" \
             width=\"{width:.1}\" height=\"{}\" rx=\"2\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{share:.1}%</text>\n",
            BAR_LEFT - 10.0,
            y + 17.0,
            bin.label(),
            y + 3.0,
            ROW - 6.0,
            BAR_LEFT + width + 8.0,
            y + 17.0
        )
    };
    let bars: String = bins.iter().enumerate().map(bar).collect();
    let height = bins.len() as f64 * ROW;
    format!(
        "<h3>Seeds by busbw, GB/s</h3>\n<svg class=\"histogram\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"share of hash seeds by busbw, {}\">\n{bars}</svg>\n",
        escape(&scenario.name)
    )
}

fn links(scenario: &Scenario) -> String {
    let links = &scenario.simulation.links;
    if links.is_empty() {
        return String::new();
    }
    let rows = links.iter().map(|link| {
        let decides = format!("{:.1}%", link.decides * 100.0);
        let flows = [format!("{:.2}", link.flows_mean), link.flows_max.to_string()];
        vec![link.name.clone(), description::rate(link.rate), flows[0].clone(), flows[1].clone(), decides]
    });
    let body = table(&["link", "rate", "flows, mean", "flows, most", "slowest in seeds"], rows);
    format!("<h3>Links that carry most</h3>\n{body}")
}

//! The page of measured links: findings, the heatmap, the figures of every direction.

use super::markup::{escape, section, table};
use super::{Context, Page, findings, tiles};
use crate::link::{Level, Scale, about, cell, loss, quality_of_service};
use crate::words::counted;
use busbw_model::{Diagnosis, Link, LinkFigures, LinkRun, Run, gbit};

/// Directions that are listed at most; the heatmap has all.
const MAX_LISTED: usize = 1000;

/// The page of measured links and of what is wrong with them. All text is escaped.
pub fn link(run: &LinkRun, diagnosis: &Diagnosis) -> Page {
    let verdict = diagnosis.verdict.as_str();
    let body = [
        figures(run),
        <[String; 2]>::from(findings::findings(&Run::default(), diagnosis, &Context::default())).concat(),
        section("Gbit/s, senders by row and receivers by column", &heatmap(run)),
        section("Every direction", &directions(run)),
    ]
    .concat();
    Page { class: verdict, badge: diagnosis.verdict.title(), title: diagnosis.summary.clone(), command: "link", body }
}

fn figures(run: &LinkRun) -> String {
    let rates = || run.links.iter().filter_map(|link| Some(link.outcome.as_ref().ok()?.gbit_s));
    let tile =
        |value: Option<f64>, label: &str| value.map(|value| (format!("{} Gbit/s", gbit(value)), label.to_string()));
    let mut all = vec![(counted(run.ends.len(), "end"), about(run))];
    all.extend(tile(rates().reduce(f64::max), "the fastest link"));
    all.extend(tile(rates().reduce(f64::min), "the slowest link"));
    let settings = quality_of_service(run).map(|settings| format!("<p class=\"muted\">{}</p>\n", escape(&settings)));
    tiles(&all) + &settings.unwrap_or_default()
}

/// A table whose cells are coloured by what they reach.
fn heatmap(run: &LinkRun) -> String {
    let scale = Scale::of(run.links.iter().filter_map(|link| Some(link.outcome.as_ref().ok()?.gbit_s)));
    let names: Vec<String> = (0..run.ends.len()).map(|end| escape(&run.name(end))).collect();
    let head: String = names.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    let row = |(from, name): (usize, &String)| {
        let cells: String = (0..names.len()).map(|to| heat_cell(run, from, to, &scale)).collect();
        format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>\n")
    };
    let rows: String = names.iter().enumerate().map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"heat\">\n<thead><tr><th></th>{head}</tr></thead>\n<tbody>\n\
         {rows}</tbody>\n</table></div>\n<p class=\"muted\">{}</p>\n",
        escape(&scale.legend())
    )
}

fn heat_cell(run: &LinkRun, from: usize, to: usize, scale: &Scale) -> String {
    let about = |text: &str| escape(&format!("{} to {}: {text}", run.name(from), run.name(to)));
    match run.link(from, to).map(|link| &link.outcome) {
        None => "<td></td>".into(),
        Some(Err(reason)) => format!("<td class=\"failed\" title=\"{}\">failed</td>", about(reason)),
        Some(Ok(figures)) => {
            let level = scale.level(figures.gbit_s);
            let class = match level {
                Level::Good => "good",
                Level::Low => "low",
                Level::FarBelow => "far",
            };
            let text = gbit(figures.gbit_s);
            format!("<td class=\"{class}\" title=\"{}\">{}{text}</td>", about(&format!("{text} Gbit/s")), level.mark())
        }
    }
}

fn directions(run: &LinkRun) -> String {
    let list = |values: Vec<(String, f64)>| {
        values.into_iter().map(|(what, value)| format!("{what}: {}", gbit(value))).collect::<Vec<_>>().join(" · ")
    };
    let cells = |figures: &LinkFigures| {
        let [median, p99] = match figures.latency {
            Some(latency) => [latency.median.to_string(), latency.p99.to_string()],
            None => [String::new(), String::new()],
        };
        vec![
            gbit(figures.gbit_s),
            figures.gbit_s_both_ways.map(|value| cell(Some(value))).unwrap_or_default(),
            median,
            p99,
            list(figures.flows.iter().map(|(flows, value)| (flows.to_string(), *value)).collect()),
            list(figures.sizes.iter().map(|(size, value)| (size.to_string(), *value)).collect()),
            loss(figures).unwrap_or_default(),
        ]
    };
    let row = |link: &Link| {
        let mut row = vec![run.name(link.from), run.name(link.to)];
        match &link.outcome {
            Ok(figures) => row.extend(cells(figures)),
            Err(reason) => row.extend([String::new(), String::new(), reason.clone()]),
        }
        row
    };
    let head = ["from", "to", "Gbit/s", "both ways", "latency", "99%", "by flows", "by size", "lost"];
    table(&head, run.links.iter().take(MAX_LISTED).map(row)) + &super::markup::more(run.links.len(), MAX_LISTED)
}

//! Links as text: a matrix of bandwidths whose cells are coloured by what they reach, and for a single pair its curves.

use super::findings::finding;
use super::page::{Page, paint};
use super::{Style, verdict};
use crate::link::{Level, Scale, about, cell, loss, quality_of_service};
use crate::style::{clip, left, right, widest};
use busbw_model::{Diagnosis, Finding, LinkFigures, LinkRun, Run, gbit};

/// A name of an end is cut to this.
const MAX_NAME: usize = 20;

/// The text of measured links and of what is wrong with them, ready to print.
pub fn link(run: &LinkRun, diagnosis: &Diagnosis, style: &Style) -> String {
    let mut page = Page::new(*style);
    verdict(&mut page, diagnosis);
    page.indented(2, &about(run));
    if let Some(settings) = quality_of_service(run) {
        page.indented(2, &settings);
    }
    if run.links.iter().any(|link| link.outcome.is_ok()) {
        matrix(&mut page, run, "Gbit/s", &|figures| (gbit(figures.gbit_s), Some(figures.gbit_s)));
        if run.links.iter().any(|link| link.outcome.as_ref().is_ok_and(|figures| figures.gbit_s_both_ways.is_some())) {
            let both = |figures: &LinkFigures| (cell(figures.gbit_s_both_ways), figures.gbit_s_both_ways);
            matrix(&mut page, run, "Gbit/s while the other direction is busy too", &both);
        }
        if !style.brief {
            latencies(&mut page, run);
            curves(&mut page, run);
        }
    }
    // On a screen, what the first line says is not said twice.
    let is_said = |found: &Finding| style.brief && found.title == diagnosis.summary && found.explanation.is_empty();
    for found in diagnosis.findings.iter().filter(|found| !is_said(found)) {
        finding(&mut page, &Run::default(), diagnosis, found);
    }
    if style.brief {
        page.end_line();
        page.more_by("-v for latencies and curves; -o page.html for a page");
    }
    page.finish_with(style.rows, |page| verdict(page, diagnosis))
}

/// Senders by row, receivers by column. `figure` gives a cell's text, and the value that colours it.
fn matrix(page: &mut Page, run: &LinkRun, title: &str, figure: &dyn Fn(&LinkFigures) -> (String, Option<f64>)) {
    page.heading(title);
    let names: Vec<String> = (0..run.ends.len()).map(|end| clip(&run.name(end), MAX_NAME).into_owned()).collect();
    let first = widest(names.iter()) + 5;
    let width = widest(names.iter()).max(7);
    let scale = Scale::of(run.links.iter().filter_map(|link| figure(link.outcome.as_ref().ok()?).1));
    // Columns that the page has no room for follow in a block of their own.
    let room = ((page.width().saturating_sub(first + 2)) / (width + 1)).max(1);
    let all: Vec<usize> = (0..names.len()).collect();
    for (block, columns) in all.chunks(room).enumerate() {
        if block > 0 {
            page.end_line();
        }
        let head: Vec<String> = columns.iter().map(|to| right(&names[*to], width)).collect();
        page.text(&format!("  {} {}", left("from \\ to", first), head.join(" ")));
        page.end_line();
        for (from, name) in names.iter().enumerate() {
            page.text(&format!("  {}", left(name, first)));
            for &to in columns {
                page.text(" ");
                let (text, value) = match run.link(from, to).map(|link| &link.outcome) {
                    Some(Ok(figures)) => figure(figures),
                    Some(Err(_)) => ("failed".into(), None),
                    None => ("·".into(), None),
                };
                let level = value.map(|value| scale.level(value));
                let style = match (level, text.as_str()) {
                    (_, "failed") => paint::ERROR,
                    (level, _) => level.map_or(paint::DIM, colour),
                };
                // The mark says without colours what the colour says.
                let mark = level.map_or("", Level::mark);
                page.styled(style, &right(&format!("{mark}{text}"), width));
            }
            page.end_line();
        }
    }
    page.indented(2, &scale.legend());
}

fn colour(level: Level) -> anstyle::Style {
    match level {
        Level::Good => paint::GOOD,
        Level::Low => paint::WARNING,
        Level::FarBelow => paint::ERROR,
    }
}

fn latencies(page: &mut Page, run: &LinkRun) {
    let all: Vec<_> = run
        .links
        .iter()
        .filter(|link| link.from < link.to)
        .filter_map(|link| Some((link, link.outcome.as_ref().ok()?.latency?)))
        .collect();
    if all.is_empty() {
        return;
    }
    page.heading("Latency, half a round trip of a small message");
    let name = |link: &busbw_model::Link| format!("{} ↔ {}", run.name(link.from), run.name(link.to));
    let width = widest(all.iter().map(|(link, _)| name(link))).min(2 * MAX_NAME + 3);
    for (link, latency) in &all {
        let figures =
            format!("median {}  99% {}", right(&latency.median.to_string(), 10), right(&latency.p99.to_string(), 10));
        page.clipped(2, &format!("{}  {figures}", left(&clip(&name(link), width), width)));
    }
}

/// Bandwidth by number of flows and by size, a line per direction; of many, the table would say nothing.
fn curves(page: &mut Page, run: &LinkRun) {
    if run.ends.len() > 3 {
        return;
    }
    let measured: Vec<_> = run.links.iter().filter_map(|link| Some((link, link.outcome.as_ref().ok()?))).collect();
    let name = |link: &busbw_model::Link| format!("{} → {}", run.name(link.from), run.name(link.to));
    let width = widest(measured.iter().map(|(link, _)| name(link))).min(2 * MAX_NAME + 3);
    let mut table = |title: &str, heads: Vec<String>, row: &dyn Fn(&LinkFigures) -> Vec<f64>| {
        if heads.len() < 2 {
            return;
        }
        page.heading(title);
        let head: Vec<String> = heads.iter().map(|head| right(head, 8)).collect();
        page.clipped(2, &format!("{}  {}", left("", width), head.join(" ")));
        for (link, figures) in &measured {
            let cells: Vec<String> = row(figures).into_iter().map(|value| right(&gbit(value), 8)).collect();
            page.clipped(2, &format!("{}  {}", left(&clip(&name(link), width), width), cells.join(" ")));
        }
    };
    let Some((_, first)) = measured.first() else { return };
    let flows = first.flows.iter().map(|(flows, _)| flows.to_string()).collect();
    table("Gbit/s by number of flows", flows, &|figures| figures.flows.iter().map(|(_, value)| *value).collect());
    let sizes = first.sizes.iter().map(|(size, _)| size.to_string()).collect();
    table("Gbit/s by message size", sizes, &|figures| figures.sizes.iter().map(|(_, value)| *value).collect());
    for (link, figures) in &measured {
        if let Some(loss) = loss(figures) {
            page.indented(2, &format!("{}: {loss}", name(link)));
        }
    }
}

//! The page of a prediction: the curve under its physical limit, what limits which sizes, every size as a row.

use super::curve::{self, Curve, Line};
use super::markup::{escape, list, section, table};
use super::{Page, tiles};
use crate::description;
use crate::words::counted;
use busbw_model::{Bytes, GBps};
use busbw_predict::{Cluster, Prediction, PredictionRow};

/// The page of what a cluster should reach. All text is escaped.
pub fn predict(cluster: &Cluster, prediction: &Prediction) -> Page {
    let title = title(cluster, prediction);
    let body = [
        figures(prediction),
        section("Expected", &(curve(prediction) + &caption(prediction))),
        section("What limits which sizes", &limits(prediction)),
        section("Every size", &rows(prediction)),
        section("Cluster", &list(description::parts(cluster).iter().map(String::as_str))),
        assumptions(prediction.assumptions.iter().map(String::as_str)),
    ]
    .concat();
    Page { class: "expected", badge: "expected", title, command: "predict", body }
}

/// What was assumed, as a section; nothing where nothing was.
pub(super) fn assumptions<'a>(assumptions: impl Iterator<Item = &'a str>) -> String {
    let list = list(assumptions);
    if list.is_empty() { list } else { section("Assumed", &list) }
}

fn title(cluster: &Cluster, prediction: &Prediction) -> String {
    let machines = description::machines(cluster);
    let best = prediction.rows.iter().reduce(|best, row| if row.busbw.0 > best.busbw.0 { row } else { best });
    let best = best.map(|row| format!(": up to {} at {}", row.busbw, row.size)).unwrap_or_default();
    format!("{} on {machines}{best}", prediction.collective)
}

fn figures(prediction: &Prediction) -> String {
    let Some((first, last)) = prediction.rows.first().zip(prediction.rows.last()) else { return String::new() };
    let mut figures = vec![
        (last.busbw.to_string(), format!("busbw at {}", last.size)),
        (last.limit.to_string(), format!("the physical limit at {}", last.size)),
        (first.time.to_string(), format!("time of {}", first.size)),
    ];
    let half = prediction.rows.iter().find(|row| row.busbw.0 >= last.busbw.0 / 2.0);
    figures.extend(half.map(|row| (row.size.to_string(), format!("reaches half of the busbw of {}", last.size))));
    figures.push((counted(prediction.ranks, "rank"), prediction.collective.to_string()));
    tiles(&figures)
}

fn curve(prediction: &Prediction) -> String {
    let points = |value: fn(&PredictionRow) -> GBps| prediction.rows.iter().map(|row| (row.size, value(row))).collect();
    let band = prediction.rows.iter().map(|row| (row.size, row.band)).collect();
    curve::draw(&Curve {
        label: format!("expected busbw of {} by size, and its physical limit", prediction.collective),
        lines: vec![
            Line::named("limit", points(|row| row.limit)),
            Line::named("expected", points(|row| row.busbw)).dotted().within(band),
        ],
        level: None,
        peak: None,
        notes: prediction.rows.iter().map(|row| (row.size, row.bottleneck.as_str())).collect(),
        legend: true,
    })
}

fn caption(prediction: &Prediction) -> String {
    let ranks = counted(prediction.ranks, "rank");
    let fabric = prediction.fabric.as_ref().map(|effect| format!(" {}.", escape(&description::hashed(effect))));
    let busiest = prediction.busiest.as_ref().map(|busiest| format!(" {}.", escape(&description::busiest(busiest))));
    format!(
        "<p class=\"muted\">{} over {ranks}, computed and not measured. Nine of ten such machines are in the area.{}{}</p>\n",
        prediction.collective,
        fabric.unwrap_or_default(),
        busiest.unwrap_or_default()
    )
}

/// Sizes that follow each other with the same choice and the same bottleneck are one row.
fn limits(prediction: &Prediction) -> String {
    let alike = |a: &PredictionRow, b: &PredictionRow| {
        (a.algorithm, a.protocol, &a.bottleneck) == (b.algorithm, b.protocol, &b.bottleneck)
    };
    let rows = prediction.rows.chunk_by(alike).filter_map(|rows| {
        let (first, last) = (rows.first()?, rows.last()?);
        let reached = if first.size == last.size {
            first.busbw.to_string()
        } else {
            format!("{:.2} to {}", first.busbw.0, last.busbw)
        };
        let choice = format!("{} {}", first.algorithm, first.protocol);
        Some(vec![sizes(first.size, last.size), choice, first.bottleneck.clone(), reached])
    });
    table(&["sizes", "NCCL's choice", "limited by", "busbw"], rows)
}

fn sizes(first: Bytes, last: Bytes) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

fn rows(prediction: &Prediction) -> String {
    let row = |row: &PredictionRow| {
        format!(
            "<tr><td title=\"{} bytes\">{}</td><td>{:.2}</td><td>{:.2}</td><td><b>{:.2}</b></td><td>{:.2} to {:.2}</td><td>{:.2}</td>\
             <td class=\"word\">{} {}</td><td class=\"word\">{}</td></tr>\n",
            row.size.0,
            row.size,
            row.time.0,
            row.algbw.0,
            row.busbw.0,
            row.band.0.0,
            row.band.1.0,
            row.limit.0,
            row.algorithm,
            row.protocol,
            escape(&row.bottleneck)
        )
    };
    let rows: String = prediction.rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"bench single\">\n<thead><tr><th>size</th><th>time µs</th>\
         <th>algbw GB/s</th><th>busbw GB/s</th><th>9 of 10 GB/s</th><th>limit GB/s</th><th class=\"word\">NCCL's choice</th>\
         <th class=\"word\">limited by</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

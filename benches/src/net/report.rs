//! The tables of `bench-net`.

use super::{LATENCY_GOAL, Measured, Report};
use crate::statistics::Spread;
use std::fmt::Write as _;

/// The result as tables in markdown.
pub fn table(report: &Report) -> String {
    let mut out = format!("{} rounds; median (min to max) over rounds\n", report.rounds);
    for measured in &report.networks {
        network(&mut out, measured);
    }
    out
}

fn network(out: &mut String, measured: &Measured) {
    let load = |load: Option<f64>| load.map_or("unknown".to_string(), |load| format!("{load:.1}"));
    let _ = writeln!(
        out,
        "\n## {}\n\nload {} before, {} after\n\n| program | GB/s | 8 bytes, µs | messages/s | CPU s per GB |\n\
         | --- | --- | --- | --- | --- |",
        measured.network.name,
        load(measured.load_before),
        load(measured.load_after)
    );
    for (streams, figures) in &measured.iperf3 {
        let _ = writeln!(out, "| iperf3 -P {streams} | {} | | | |", spread(figures, 3));
    }
    for plugin in &measured.plugins {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            plugin.label,
            spread(&plugin.gb_per_s, 3),
            spread(&plugin.latency_us, 1),
            spread(&plugin.messages_per_second, 0),
            spread(&plugin.cpu_s_per_gb, 2)
        );
    }
    let _ = writeln!(out, "| bare sockets | | {} | | |", spread(&measured.bare_latency_us, 1));
    let _ = writeln!(out, "| bare sockets, one each way | | {} | | |", spread(&measured.each_way_latency_us, 1));
    let met = |met: bool| if met { "met" } else { "missed" };
    let ratio = |ratio: Option<Spread>| {
        ratio.map_or("none".into(), |s| format!("{:.2} ({:.2} to {:.2})", s.median, s.min, s.max))
    };
    let _ = writeln!(
        out,
        "\nBandwidth over {}: {}, goal {}. Latency over bare sockets: {}, goal {LATENCY_GOAL}: {}; over one each way: {}.",
        measured.peer,
        ratio(measured.ratio),
        met(measured.goal_met),
        ratio(measured.latency_ratio),
        met(measured.latency_goal_met),
        ratio(measured.each_way_latency_ratio)
    );
}

fn spread(figures: &[f64], digits: usize) -> String {
    Spread::of(figures.iter().copied())
        .map_or(String::new(), |s| format!("{:.digits$} ({:.digits$} to {:.digits$})", s.median, s.min, s.max))
}

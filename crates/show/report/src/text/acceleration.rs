//! Which all-reduce of gradients is fastest, as text.

use super::Style;
use super::page::Page;
use busbw_model::{counted, gbit};
use busbw_predict::gradients::{Accelerated, Acceleration, Transport, Way};

/// The text of the answer, ready to print.
pub fn accelerate(answer: &Acceleration, style: &Style) -> String {
    let mut page = Page::new(*style);
    page.lead(&asked(answer));
    let (mut transport, knows_step) = (None, answer.step.is_some());
    for way in &answer.ways {
        if transport.replace(way.transport) != Some(way.transport) {
            page.heading(&carried(answer, way));
            page.clipped(2, &head(knows_step));
        }
        page.clipped(2, &row(way, knows_step));
    }
    page.end_line();
    if answer.hosts == 1 {
        page.indented(
            2,
            "Plain all-reduce: with one host there is one level, and no network between hosts to save bytes on.",
        );
    }
    for assumption in &answer.assumptions {
        page.indented(2, &format!("assumed: {assumption}"));
    }
    if let Some(how) = answer.ways.first().and_then(|way| measure(way.transport)) {
        page.indented(2, how);
    }
    page.finish()
}

/// How to replace what is assumed by what is so.
fn measure(transport: Transport) -> Option<&'static str> {
    match transport {
        Transport::Measured => None,
        Transport::Host => Some("Measure yours: `busbw bench all_reduce` on the host, then --host-gbs."),
        _ => Some("Measure yours: `busbw link --hosts a,b`, then --measured-gbit; and --host-gbs, --select-gbs."),
    }
}

fn asked(answer: &Acceleration) -> String {
    let computation = match answer.step {
        None => "the all-reduce alone (--compute-ms for the whole step)".to_string(),
        Some(step) => {
            let batch = step
                .batch_size
                .map_or(String::new(), |batch| format!(" for {} a rank", counted(batch as usize, "sample")));
            format!("{} ms of computation{batch}", gbit(step.compute_ms))
        }
    };
    let (hosts, ranks) = (counted(answer.hosts as usize, "host"), counted(answer.ranks_per_host as usize, "rank"));
    format!("{hosts} of {ranks}, {} of gradients a step, {computation}", answer.gradients_bytes)
}

fn carried(answer: &Acceleration, way: &Accelerated) -> String {
    let (line, carried) = (gbit(answer.line_gbs.gbit_per_s()), gbit(way.network_gbs.gbit_per_s()));
    let name = match way.transport {
        Transport::Measured => return format!("Measured: {carried} Gbit/s between hosts"),
        Transport::Host => return format!("Within the host: {} GB/s a rank", way.network_gbs.0),
        Transport::Tcp => "Kernel TCP",
        Transport::Plugin => "Net plugin",
        Transport::Rdma => "RDMA",
    };
    format!("{name}: {carried} of {line} Gbit/s")
}

fn head(knows_step: bool) -> String {
    let step = if knows_step { format!("{:>12} {:>10} {:>8}", "step", "samples/s", "scaling") } else { String::new() };
    format!("{:10} {:>12}{step} {:>9}  pays below", "", "all-reduce", "speed-up")
}

fn row(way: &Accelerated, knows_step: bool) -> String {
    let shown = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    let step = format!(
        "{:>9} ms {:>10} {:>7}%",
        shown(way.step_ms, 1),
        shown(way.samples_per_s, 0),
        shown(way.scaling_pct, 1)
    );
    let below = match way.pays_below_gbs {
        _ if way.way == Way::Plain => String::new(),
        None => "always".into(),
        Some(0.0) => "never".into(),
        Some(below) => format!("{} Gbit/s", gbit(below * 8.0)),
    };
    let (name, step) = (way.way.name(), if knows_step { step } else { String::new() });
    let fastest = if way.fastest { "  <- fastest" } else { "" };
    format!("{name:10} {:>9.1} ms{step} {:>8.2}x  {below}{fastest}", way.all_reduce_ms, way.speed_up)
}

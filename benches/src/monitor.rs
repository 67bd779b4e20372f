//! The benchmark of the monitor: what a sample of 16 ports costs.

use crate::measure::{Sample, Tool};
use crate::program::{FileError, Outcome};
use crate::results::Origin;
use crate::statistics::Spread;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Ports of the node, each with an interface.
pub const PORTS: usize = 16;
/// Counters of a port and of an interface, as many as ConnectX NICs have under Linux 6.1.
const PORT_COUNTERS: usize = 21;
const HARDWARE_COUNTERS: usize = 38;
const STATISTICS: usize = 24;
/// Processes of the node.
const PROCESSES: u32 = 500;
/// The goal: less than this share of a core at one sample per second.
const GOAL_PCT: f64 = 1.0;

/// How the monitor is called.
const VIEWS: [(&str, &[&str]); 3] = [
    ("alone", &["--quiet"]),
    ("JSON lines", &["--json"]),
    (
        "recording, trace and Prometheus",
        &["--quiet", "--prometheus", "0", "--record", "run.rec", "--perfetto", "run.json"],
    ),
];

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When, of what and on what.
    #[serde(flatten)]
    pub origin: Origin,
    ports: usize,
    counters: usize,
    processes: u32,
    samples_per_run: u32,
    goal_pct_of_a_core: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    view: &'static str,
    cpu_pct_of_a_core: Option<Spread>,
    cpu_us_per_sample: Option<Spread>,
    goal_met: Option<bool>,
    runs: Vec<Sample>,
}

/// A tree of /sys and /proc: 16 RoCE ports of ConnectX' kind, their interfaces, and processes.
pub fn tree(folder: &Path) -> Outcome<()> {
    let write = |path: String, text: &str| {
        let path = folder.join(path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        Ok(written.map_err(FileError::at(&path))?)
    };
    for port in 0..PORTS {
        let at = format!("sys/class/infiniband/mlx5_{port}/ports/1");
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("phys_state", "5: LinkUp\n"),
            ("rate", "400 Gb/sec (4X NDR)\n"),
            ("link_layer", "Ethernet\n"),
        ] {
            write(format!("{at}/{file}"), text)?;
        }
        write(format!("{at}/gid_attrs/ndevs/0"), &format!("eth{port}\n"))?;
        for counter in ["port_xmit_data", "port_rcv_data", "symbol_error"] {
            write(format!("{at}/counters/{counter}"), "123456789012345\n")?;
        }
        for counter in 3..PORT_COUNTERS {
            write(format!("{at}/counters/counter_{counter}"), "123456789012\n")?;
        }
        for counter in 0..HARDWARE_COUNTERS {
            write(format!("{at}/hw_counters/hw_counter_{counter}"), "123456\n")?;
        }
        let net = format!("sys/class/net/eth{port}");
        write(format!("{net}/operstate"), "up\n")?;
        write(format!("{net}/speed"), "400000\n")?;
        for counter in 0..STATISTICS {
            write(format!("{net}/statistics/statistic_{counter}"), "123456789012\n")?;
        }
    }
    for process in 1..=PROCESSES {
        write(format!("proc/{process}/cmdline"), "/usr/bin/python3\0train.py\0--batch=128\0")?;
    }
    write("proc/stat".into(), "cpu  1 2 3 4 5 6 7 8\n")?;
    write("proc/meminfo".into(), "MemTotal: 1 kB\nMemFree: 1 kB\nMemAvailable: 1 kB\n")
}

/// Runs the monitor on a generated tree, `samples` a run at one per second, `runs` times in turn for each view.
pub fn measure(
    busbw: &Path,
    samples: u32,
    runs: u32,
    scratch: &Path,
    mut progress: impl FnMut(&str),
) -> Outcome<Report> {
    let root = scratch.join("tree");
    tree(&root)?;
    let mut found: Vec<(&'static str, Vec<Sample>)> = VIEWS.map(|(view, _)| (view, Vec::new())).into();
    for run in 1..=runs {
        for ((view, flags), (_, samples_of)) in VIEWS.iter().zip(&mut found) {
            progress(&format!("run {run} of {runs}: {view}"));
            let place =
                |flag: &&str| if flag.starts_with("run.") { scratch.join(flag).into() } else { OsString::from(flag) };
            let mut arguments: Vec<OsString> = vec!["monitor".into(), "--root".into(), root.clone().into()];
            arguments.extend(["--count".into(), samples.to_string().into()]);
            arguments.extend(flags.iter().map(place));
            let tool = Tool { program: busbw.into(), arguments, answers: &[0] };
            samples_of.push(tool.run(scratch)?);
        }
    }
    let row = |(view, runs): (&'static str, Vec<Sample>)| {
        let share = Spread::of(runs.iter().map(|run| 100.0 * run.cpu_s / run.wall_s));
        Row {
            view,
            goal_met: share.map(|share| share.median < GOAL_PCT),
            cpu_pct_of_a_core: share,
            // One more than is shown: the first has nothing to be compared with.
            cpu_us_per_sample: Spread::of(runs.iter().map(|run| 1e6 * run.cpu_s / f64::from(samples + 1))),
            runs,
        }
    };
    Ok(Report {
        origin: Origin::now("busbw.bench-monitor/1"),
        ports: PORTS,
        counters: PORTS * (PORT_COUNTERS + HARDWARE_COUNTERS + STATISTICS),
        processes: PROCESSES,
        samples_per_run: samples + 1,
        goal_pct_of_a_core: GOAL_PCT,
        rows: found.into_iter().map(row).collect(),
    })
}

/// The result as a table in markdown.
pub fn table(report: &Report) -> String {
    let mut out = format!(
        "{} ports, {} counters, {} processes, one sample per second; goal: below {}% of a core\n\n\
         | view | % of a core | µs per sample | goal met |\n| --- | --- | --- | --- |\n",
        report.ports, report.counters, report.processes, report.goal_pct_of_a_core
    );
    let median = |spread: &Option<Spread>| spread.as_ref().map_or(f64::NAN, |spread| spread.median);
    for row in &report.rows {
        let (share, each) = (median(&row.cpu_pct_of_a_core), median(&row.cpu_us_per_sample));
        let met = if row.goal_met == Some(true) { "yes" } else { "no" };
        let _ = writeln!(out, "| {} | {share:.3} | {each:.0} | {met} |", row.view);
    }
    out
}

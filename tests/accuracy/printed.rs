//! Published tables, printed as nccl-tests prints them: good ones raise no alarm, slow ones get a finding.

use crate::cases::diagnose;
use busbw_model::{Code, Severity};
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What is known of a table (`tests/data/tables/README.md`).
#[derive(Deserialize)]
struct About {
    collective: String,
    nodes: u32,
    gpus_per_node: u32,
    gpu: String,
    #[serde(default)]
    note: String,
    status: String,
}

/// Slow tables that no rule can know to be slow from what is printed, with the reason.
const CANNOT_TELL: [(&str, &str); 0] = [];

/// What is wrong with the answers to the tables of a folder.
pub fn check(folder: &Path, all: bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder of tables");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    paths.iter().flat_map(|path| judge(path, all)).collect()
}

fn judge(path: &Path, all: bool) -> Vec<String> {
    let about = std::fs::read_to_string(path).expect("the facts of a table");
    let about: About = toml::from_str(&about).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let csv = std::fs::read_to_string(path.with_extension("csv")).expect("the table");
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut failures = Vec::new();
    for with_devices in [true, false] {
        let text = print(&about, &csv, with_devices);
        let findings = diagnose(&[(format!("{name}.txt"), text.into_bytes())]).map(|d| d.findings).unwrap_or_default();
        let alarm = findings.iter().find(|f| f.severity >= Severity::Warning);
        let finding = findings.iter().find(|f| f.code != Code::OkAsExpected);
        let how = if with_devices { "with its device list" } else { "alone" };
        let cannot_tell = CANNOT_TELL.iter().any(|(start, _)| name.starts_with(start));
        let failure = match about.status.as_str() {
            "good" => alarm.map(|f| format!("{name} {how} is good, but busbw says {}: {}", f.code, f.title)),
            "degraded" if with_devices && finding.is_none() && !cannot_tell => {
                Some(format!("{name} {how} is slow ({}), but busbw finds nothing", about.note))
            }
            _ => None,
        };
        if all || failure.is_some() {
            let found: Vec<String> = findings.iter().map(|f| format!("{} ({})", f.code, f.severity.as_str())).collect();
            let mark = if failure.is_some() { "WRONG" } else { "right" };
            println!("  {mark}  {name:<45} {:<9} {how:<20} {}", about.status, found.join(", "));
        }
        failures.extend(failure);
    }
    failures
}

/// The table as nccl-tests prints it (`src/common.cu` of nccl-tests 2.13).
fn print(about: &About, csv: &str, with_devices: bool) -> String {
    let mut text = format!("# Collective test starting: {}_perf\n", about.collective);
    if with_devices {
        text += "# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n";
        for rank in 0..about.nodes * about.gpus_per_node {
            let (node, device) = (rank / about.gpus_per_node, rank % about.gpus_per_node);
            let gpu = about.gpu.split(" (").next().unwrap_or(&about.gpu);
            let (pid, bus) = (4000 + rank, 0x10 + 0x11 * device);
            let _ = writeln!(
                text,
                "#  Rank {rank:2} Group  0 Pid {pid:6} on node{node:04} device {device:2} [{bus:#04x}] {gpu}"
            );
        }
        text += "#\n";
    }
    text += "#                                                              out-of-place                       in-place          \n";
    text += "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
    text += "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";
    for line in csv.lines().skip(1).filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split(',').collect();
        if let [size, count, datatype, redop, root, times @ ..] = cells.as_slice()
            && times.len() == 8
        {
            let _ = write!(text, "{size:>12}  {count:>12}  {datatype:>8}  {redop:>6}  {root:>6}");
            for half in times.chunks(4) {
                let _ = write!(text, "  {:>7}  {:>6}  {:>6}  {:>5}", half[0], half[1], half[2], half[3]);
            }
            text.push('\n');
        }
    }
    text + "# Out of bounds values : 0 OK\n#\n"
}

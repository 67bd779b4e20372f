//! Published tables, as they are and slowed down: no sound one is called slow, no slow one sound, whatever is reported of the
//! machines.

#![allow(clippy::unwrap_used)] // in helpers of tests too

use busbw_diagnose::{NicsOfHost, UserFacts, diagnose_with};
use busbw_model::Verdict;
use busbw_predict::cluster;
use std::fmt::Write;
use std::path::PathBuf;

/// A table of `tests/data/tables`: its facts and its figures.
struct Published {
    name: String,
    facts: String,
    csv: String,
}

impl Published {
    fn all() -> Vec<Published> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/tables");
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let facts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
        let table = |path: PathBuf| Published {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            facts: std::fs::read_to_string(&path).unwrap(),
            csv: std::fs::read_to_string(path.with_extension("csv")).unwrap(),
        };
        facts.map(table).collect()
    }

    fn fact(&self, key: &str) -> &str {
        let line = self.facts.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
        line.unwrap_or("").trim().trim_matches('"')
    }

    fn number(&self, key: &str) -> usize {
        self.fact(key).parse().unwrap_or(0)
    }

    fn nics(&self) -> Option<NicsOfHost> {
        format!("{}x{}", self.number("nics_per_node"), self.fact("nic_gbps")).parse().ok()
    }

    /// The table as nccl-tests prints it, with its bandwidths times `speed`.
    fn printed(&self, speed: f64, with_devices: bool) -> String {
        let mut text = format!("# Collective test starting: {}_perf\n", self.fact("collective"));
        let (nodes, gpus) = (self.number("nodes"), self.number("gpus_per_node"));
        let gpu = self.fact("gpu").split(" (").next().unwrap_or_default();
        for rank in 0..if with_devices { nodes * gpus } else { 0 } {
            let (node, device) = (rank / gpus, rank % gpus);
            let _ = writeln!(
                text,
                "#  Rank {rank:2} Group  0 Pid {rank} on node{node} device {device} [{device:#04x}] {gpu}"
            );
        }
        text += "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
        for cells in self.csv.lines().map(|line| line.split(',').collect::<Vec<_>>()).filter(|cells| cells.len() == 13)
        {
            let scaled = |at: usize| {
                let value: f64 = cells[at].parse().unwrap_or(f64::NAN);
                let by = if matches!(at, 5 | 9) { 1.0 / speed } else { speed };
                if value.is_nan() { cells[at].to_string() } else { format!("{:.2}", value * by) }
            };
            let shown = (0..13).map(|at| if at < 5 || matches!(at, 8 | 12) { cells[at].into() } else { scaled(at) });
            text += &(shown.collect::<Vec<String>>().join(" ") + "\n");
        }
        text + "# Out of bounds values : 0 OK\n"
    }
}

fn verdict(text: &str, given: &UserFacts) -> Verdict {
    let run = busbw_ingest::read_bytes(&[("table", text.as_bytes())]).unwrap();
    diagnose_with(&run, given).verdict
}

const SOUND: [Verdict; 2] = [Verdict::Healthy, Verdict::NoErrors];
const SLOW: [Verdict; 2] = [Verdict::Degraded, Verdict::Failed];

#[test]
fn sound_tables_are_never_slow_and_slow_ones_never_sound() {
    let tables = Published::all();
    assert_eq!(tables.len(), 36);
    let (mut wrong, mut told, mut healthy) = (Vec::new(), 0, 0);
    for table in &tables {
        let cluster = cluster::parse(&table.facts).unwrap();
        let knowledge = [
            (false, UserFacts::default()),
            (true, UserFacts::default()),
            (true, UserFacts { nics: table.nics(), ..UserFacts::default() }),
            (true, UserFacts { cluster: Some(&cluster), ..UserFacts::default() }),
        ];
        for (devices, given) in &knowledge {
            for speed in [1.0, 0.5, 0.3, 0.15] {
                let verdict = verdict(&table.printed(speed, *devices), given);
                let unfit = match (table.fact("status"), speed) {
                    ("good", 1.0) => SLOW.contains(&verdict),
                    ("good", _) | ("degraded", 1.0) => SOUND.contains(&verdict),
                    _ => false,
                };
                if unfit {
                    let (nics, described) = (given.nics.is_some(), given.cluster.is_some());
                    wrong.push(format!("{} x {speed}: {verdict:?} ({devices} {nics} {described})", table.name));
                }
                let counts = speed == 1.0 && given.nics.is_some() && table.fact("status") == "good";
                told += usize::from(counts);
                healthy += usize::from(counts && verdict == Verdict::Healthy);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(10 * healthy >= 9 * told, "{healthy} of {told} good tables are healthy once their NICs are told");
}

/// A table of so many ranks, from 1 GiB on: sizes in GiB, busbw, and wrong elements of every size.
fn table(devices: &str, ranks: f64, rows: &[(u64, f64)], wrong: u64) -> String {
    let factor = 2.0 * (ranks - 1.0) / ranks;
    let mut text = devices.to_string();
    text += "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
    for (gib, busbw) in rows {
        let (bytes, algbw) = (gib << 30, busbw / factor);
        let half = format!("{:.1} {algbw:.2} {busbw:.2} {wrong}", bytes as f64 / algbw / 1e3);
        let _ = writeln!(text, "{bytes} {} float sum -1 {half} {half}", bytes / 4);
    }
    text
}

fn devices(hosts: usize, gpus: usize, name: &str) -> String {
    let line = |rank: usize| {
        let (host, device) = (rank / gpus, rank % gpus);
        format!("#  Rank {rank} Group  0 Pid {rank} on host{host} device {device} [{device:#04x}] {name}\n")
    };
    (0..hosts * gpus).map(line).collect()
}

#[test]
fn one_run_has_one_answer_however_much_of_it_is_told() {
    let plain = UserFacts::default();
    let told = UserFacts {
        nics: "8x400G".parse().ok(),
        gpus_per_node: Some(8),
        gpu: Some("H100".into()),
        ..UserFacts::default()
    };
    let h100 = devices(2, 8, "NVIDIA H100 80GB HBM3");
    let (cores, memory) = (devices(1, 4, "CPU Xeon"), "# Host memory: 4 cores copy 33.0 GB/s, load 0.31\n");
    let (sound, half, fall) =
        ([(1, 450.0), (8, 469.0)], [(1, 216.0), (8, 231.0)], [(1, 300.0), (2, 480.0), (8, 300.0), (16, 280.0)]);
    use Verdict::{Degraded, Failed, Healthy, Inconclusive};
    let cases = [
        ("sound alone", table("", 16.0, &sound, 0), &plain, Inconclusive),
        ("sound", table(&h100, 16.0, &sound, 0), &plain, Healthy),
        ("sound, all told", table("", 16.0, &sound, 0), &told, Healthy),
        ("half alone", table("", 16.0, &half, 0), &plain, Inconclusive),
        ("half", table(&h100, 16.0, &half, 0), &plain, Inconclusive),
        ("half, all told", table("", 16.0, &half, 0), &told, Degraded),
        ("a fall alone", table("", 16.0, &fall, 0), &plain, Degraded),
        ("a fall", table(&h100, 16.0, &fall, 0), &plain, Degraded),
        ("a fall, all told", table("", 16.0, &fall, 0), &told, Degraded),
        ("nothing moves", table(&h100, 16.0, &[(1, 0.0), (8, 0.0)], 0), &plain, Inconclusive),
        ("no hardware is so fast", table(&h100, 16.0, &[(1, 1e15), (8, 1e15)], 0), &plain, Inconclusive),
        ("all is wrong", table(&h100, 16.0, &sound, 1 << 28), &plain, Failed),
        ("a GPU that nobody knows", table(&devices(1, 8, "Foo 9000"), 8.0, &sound, 0), &plain, Inconclusive),
        ("a pair of DGX Spark", table(&devices(2, 1, "NVIDIA GB10"), 2.0, &[(1, 23.5), (4, 23.7)], 0), &plain, Healthy),
        ("a slow pair of them", table(&devices(2, 1, "NVIDIA GB10"), 2.0, &[(1, 3.0), (4, 3.0)], 0), &plain, Degraded),
        ("MI300X", table(&devices(1, 8, "AMD Instinct MI300X"), 8.0, &[(1, 310.0), (8, 320.0)], 0), &plain, Healthy),
        ("cores", table(&cores, 4.0, &[(1, 11.0), (2, 12.0)], 0), &plain, Inconclusive),
        ("cores and their memory", table(&(cores.clone() + memory), 4.0, &[(1, 11.0), (2, 12.0)], 0), &plain, Healthy),
        ("cores far below", table(&(cores.clone() + memory), 4.0, &[(1, 0.3), (2, 0.3)], 0), &plain, Inconclusive),
    ];
    for (what, text, given, expected) in cases {
        assert_eq!(verdict(&text, given), expected, "{what}");
    }
}

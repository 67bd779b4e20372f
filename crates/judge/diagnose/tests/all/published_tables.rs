//! Published tables, as they are and slowed down: no sound one is called slow, no slow one sound, whatever is reported of the
//! machines.

#![allow(clippy::unwrap_used)] // in helpers of tests too

use busbw_diagnose::{NicsOfHost, UserFacts, diagnose_with};
use busbw_model::{Code, Verdict};
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

    /// The table as nccl-tests prints it, with the bandwidths of each size times `speed`.
    fn printed(&self, speed: impl Fn(u64) -> f64, with_devices: bool) -> String {
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
            let speed = speed(cells[0].parse().unwrap_or(0));
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
                let verdict = verdict(&table.printed(|_| speed, *devices), given);
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

/// Small sizes of sound tables that take many times as long, and the same as they are: late or not, whatever is told of the machines.
#[test]
fn small_messages_are_judged_by_the_same_clusters() {
    let tables = Published::all();
    let small = |table: &Published| {
        let sizes = table.csv.lines().filter_map(|line| line.split(',').next()?.parse::<u64>().ok());
        sizes.filter(|size| *size <= 32 << 10).count() >= 3
    };
    let good: Vec<&Published> = tables.iter().filter(|table| table.fact("status") == "good" && small(table)).collect();
    assert!(good.len() >= 10, "{}", good.len());
    let mut wrong = Vec::new();
    for table in good {
        let cluster = cluster::parse(&table.facts).unwrap();
        let described = UserFacts { cluster: Some(&cluster), ..UserFacts::default() };
        let told = UserFacts { nics: table.nics(), ..UserFacts::default() };
        for (what, given) in [("described", &described), ("NICs told", &told), ("", &UserFacts::default())] {
            for (times, is_late) in [(1.0, false), (1.3, false), (10.0, true), (30.0, true)] {
                let text = table.printed(|size| if size <= 1 << 20 { 1.0 / times } else { 1.0 }, true);
                let run = busbw_ingest::read_bytes(&[("table", text.as_bytes())]).unwrap();
                let answer = diagnose_with(&run, given);
                let late = answer.findings.iter().any(|finding| finding.code == Code::LatencyHigh);
                // What is not told leaves slower networks possible.
                let open = what.is_empty() && is_late;
                if late != is_late && !open || late && !SLOW.contains(&answer.verdict) {
                    wrong.push(format!("{} x {times} {what}: {:?} {}", table.name, answer.verdict, answer.summary));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A part of a sound table alone is slow: the largest size, or a stretch of large ones before larger ones that are as they were.
#[test]
fn no_part_of_the_large_sizes_may_be_slow() {
    let tables = Published::all();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for table in tables.iter().filter(|table| table.fact("status") == "good") {
        let sizes: Vec<u64> = table.csv.lines().filter_map(|line| line.split(',').next()?.parse().ok()).collect();
        // A sweep: of a few sizes a stretch is half of the table.
        let doubles = sizes.len() > 9 && sizes.windows(2).all(|two| two[1] <= 2 * two[0]);
        let Some(largest) = sizes.last().filter(|largest| doubles && **largest >= 1 << 30) else { continue };
        tried += 1;
        let stretch = 8 << 20..=largest / 8;
        let parts: [(&str, &dyn Fn(u64) -> f64); 2] = [
            ("the largest", &|size| if size == *largest { 0.1 } else { 1.0 }),
            ("a stretch", &|size| if stretch.contains(&size) { 0.2 } else { 1.0 }),
        ];
        for (what, speed) in parts {
            let given = UserFacts { nics: table.nics(), ..UserFacts::default() };
            let verdict = verdict(&table.printed(speed, true), &given);
            if SOUND.contains(&verdict) {
                wrong.push(format!("{} {what}: {verdict:?}", table.name));
            }
        }
    }
    assert!(tried >= 8, "{tried}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rows that were edited are said, and have no say: in the largest sizes, in all large ones, in time or bandwidth.
#[test]
fn nothing_is_judged_from_a_row_that_contradicts_itself() {
    let tables = Published::all();
    let table = tables.iter().find(|table| table.name == "076-b200-2node-allreduce").unwrap();
    let sound = table.printed(|_| 1.0, true);
    let edited = |from: u64, cell: usize, by: f64| -> String {
        let edit = |line: &str| {
            let mut cells: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let is_meant = cells[0].parse::<u64>().is_ok_and(|size| size >= from);
            if is_meant {
                let value: f64 = cells[cell].parse().unwrap();
                cells[cell] = format!("{:.2}", value * by);
            }
            cells.join(" ")
        };
        sound.lines().map(|line| if line.starts_with('#') { line.into() } else { edit(line) } + "\n").collect()
    };
    let healthy = verdict(&sound, &UserFacts::default());
    let (time, algbw, busbw, largest) = (5, 6, 7, 16 << 30);
    let cases = [
        ("nothing", edited(u64::MAX, time, 1.0), healthy, ""),
        ("as a rounding script has it", edited(16 << 20, busbw, 1.01), healthy, ""),
        ("the largest", edited(largest, busbw, 1.4), healthy, "1 of 32 rows"),
        ("its time", edited(largest, time, 0.5), healthy, "1 of 32 rows"),
        ("its algbw", edited(largest, algbw, 0.5), healthy, "1 of 32 rows"),
        ("all large ones", edited(16 << 20, busbw, 1.4), Verdict::Inconclusive, "11 of 32 rows"),
        ("all, beyond every factor", edited(0, busbw, 3.0), Verdict::Inconclusive, "2"),
    ];
    assert_eq!(healthy, Verdict::Healthy);
    for (what, text, expected, told) in cases {
        let run = busbw_ingest::read_bytes(&[("table", text.as_bytes())]).unwrap();
        let answer = diagnose_with(&run, &UserFacts::default());
        let said = answer.findings.iter().find(|finding| finding.code == Code::TableContradiction);
        let title = said.map_or("", |finding| finding.title.as_str());
        assert_eq!(answer.verdict, expected, "{what}: {}", answer.summary);
        assert!(title.starts_with(told) && title.is_empty() == told.is_empty(), "{what}: {title}");
    }
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

/// Active InfiniBand ports of 400 Gbit/s, as `ibstat` prints them.
fn ibstat(ports: usize) -> String {
    let port = |at| {
        format!(
            "CA 'mlx5_{at}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\
             \t\tRate: 400\n\t\tLink layer: InfiniBand\n"
        )
    };
    (0..ports).map(port).collect()
}

/// The channels of a host's ranks, each to the next.
fn channels(ranks: usize, via: &str) -> String {
    let line = |rank: usize| {
        let next = (rank + 1) % ranks;
        format!(
            "host0:{0}:{0} [{rank}] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {next}[{next}] via {via}\n",
            rank + 100
        )
    };
    (0..ranks).map(line).collect()
}

/// Ends a whole table: what costs speed would show in it.
const FOOTER: &str = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 8.7\n";

/// What holds a machine back stands in the input: the first line names it, and the shortfall with it.
#[test]
fn a_slow_table_is_explained_by_what_the_input_shows() {
    let hca = |value: &str, busbw: f64| {
        let set: String = (0..2).map(|at| format!("host{at}:1:1 [0] NCCL INFO NCCL_IB_HCA set to {value}\n")).collect();
        set + &table(&devices(2, 8, "NVIDIA H100 80GB HBM3"), 16.0, &[(1, busbw), (8, busbw)], 0) + FOOTER
    };
    let one_host = table(&devices(1, 8, "NVIDIA H100 80GB HBM3"), 8.0, &[(1, 8.5), (8, 8.9)], 0) + FOOTER;
    let seven = "^mlx5_0,mlx5_1,mlx5_2,mlx5_4,mlx5_5,mlx5_6,mlx5_7";
    use Code::{NicUnused, P2pDisabled};
    let cases = [
        (hca("mlx5_3", 47.0), ibstat(8), Some((NicUnused, "NCCL_IB_HCA=mlx5_3 takes 1 of 8 NICs"))),
        (hca("=mlx5_3", 47.0), ibstat(8), Some((NicUnused, "takes 1 of 8 NICs"))),
        (hca("mlx5_6:1", 47.0), ibstat(8), Some((NicUnused, "takes 1 of 8 NICs"))),
        (hca(seven, 47.0), ibstat(8), Some((NicUnused, "takes 1 of 8 NICs"))),
        (hca("=mlx5_0,mlx5_1,mlx5_2,mlx5_3", 188.0), ibstat(8), Some((NicUnused, "takes 4 of 8 NICs"))),
        // Prefixes: one name takes three.
        (hca("mlx5_1", 90.0), ibstat(12), Some((NicUnused, "takes 3 of 12 NICs"))),
        (hca("mlx5", 470.0), ibstat(8), None),
        (hca("^mlx5_8,mlx5_9", 470.0), ibstat(10), None),
        (hca("mlx5_3", 470.0), ibstat(8), None),
        (channels(8, "SHM/direct/direct") + &one_host, String::new(), Some((P2pDisabled, "NVLink joins"))),
    ];
    let (told, described) = (
        UserFacts { nics: "8x400G".parse().ok(), ..UserFacts::default() },
        cluster::parse("nodes = 2\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"NVSwitch\"\nnics_per_node = 8\nnic_gbps = 400\ntransport = \"ib\"\n").unwrap(),
    );
    for given in [told, UserFacts { cluster: Some(&described), ..UserFacts::default() }] {
        let run = busbw_ingest::read_bytes(&[("run.log", hca("mlx5_3", 47.0).as_bytes())]).unwrap();
        let first = &diagnose_with(&run, &given).findings[0];
        assert!(first.code == NicUnused && first.title.contains("takes 1 of 8 NICs"), "{}", first.title);
    }
    for (log, ports, expected) in cases {
        let texts = [("run.log", log.as_bytes()), ("ibstat.txt", ports.as_bytes())];
        let inputs = &texts[..if ports.is_empty() { 1 } else { 2 }];
        let answer = diagnose_with(&busbw_ingest::read_bytes(inputs).unwrap(), &UserFacts::default());
        match expected {
            Some((code, told)) => {
                let first = &answer.findings[0];
                assert_eq!((answer.verdict, first.code), (Verdict::Degraded, code), "{told}: {}", answer.summary);
                assert!(first.title.contains(told) && first.title.contains("expected"), "{told}: {}", first.title);
            }
            None => assert!(!SLOW.contains(&answer.verdict), "{}", answer.summary),
        }
    }
}

//! `busbw bench` under every launcher: one table of all ranks, which `busbw explain` reads back to the last digit.

use crate::support::command::BUSBW;
use crate::support::lab::{mpirun_mpich, mpirun_openmpi};
use crate::support::process::{Ended, LIMIT, run};
use crate::support::skip::needed;
use crate::support::table::{Half, Row, ranks, rows};
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

pub const SWEEP: [&str; 6] = ["-b", "8", "-e", "64K", "-f", "8"];
const SWEPT: [u64; 5] = [8, 64, 512, 4096, 32768];

/// A folder with busbw under the name of a program of nccl-tests.
struct Link(TempDir);

impl Link {
    fn all_reduce() -> Self {
        let link = Link(tempfile::tempdir().expect("a new folder"));
        std::os::unix::fs::symlink(BUSBW, link.path()).expect("a link");
        link
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("all_reduce_perf")
    }
}

/// The launcher, then busbw under nccl-tests' name with nccl-tests' flags.
pub fn linked(mut launcher: Command) -> Ended {
    let link = Link::all_reduce();
    launcher.arg(link.path()).args(SWEEP).args(["-g", "1"]);
    run(launcher, LIMIT)
}

/// One table, of `hosts` (one entry per rank), with every size; and the same numbers when busbw reads it.
pub fn assert_one_table(ended: &Ended, hosts: &[&str]) {
    let context = format!("{}\n{}\n{}", ended.status, ended.stdout, ended.stderr);
    assert!(ended.status.success(), "{context}");
    assert_eq!(ended.stdout.matches("(elements)").count(), 1, "one header: {context}");
    assert_eq!(ended.stdout.matches("# Out of bounds values : 0 OK").count(), 1, "one footer: {context}");
    let lines = ranks(&ended.stdout, hosts.len()).unwrap_or_default();
    let named: Vec<(usize, &str)> = lines.iter().map(|line| (line.rank, line.host.as_str())).collect();
    let wanted: Vec<(usize, &str)> = hosts.iter().copied().enumerate().collect();
    assert_eq!(named, wanted, "{context}");
    let printed = rows(&ended.stdout);
    assert_eq!(printed.iter().map(|row| row.size_bytes).collect::<Vec<_>>(), SWEPT, "{context}");
    assert_eq!(explained(&ended.stdout, hosts.len()), printed, "{context}");
}

/// The rows that `busbw explain --json` reads in a table.
fn explained(text: &str, nranks: usize) -> Vec<Row> {
    let mut child = Command::new(BUSBW)
        .args(["explain", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("busbw runs");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("busbw reads");
    let output = child.wait_with_output().expect("busbw ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let tables = json["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 1);
    assert_eq!((&tables[0]["collective"], &tables[0]["nranks"]), (&"all_reduce".into(), &nranks.into()));
    let half = |half: &Value| {
        let number = |name: &str| half[name].as_f64().expect("a number");
        Half {
            time_us: number("time_us"),
            algbw_gbs: number("algbw_gbs"),
            busbw_gbs: number("busbw_gbs"),
            wrong: number("wrong"),
        }
    };
    let row = |row: &Value| Row {
        size_bytes: row["size_bytes"].as_u64().expect("a size"),
        count: row["count"].as_u64().expect("a count"),
        out_of_place: half(&row["out_of_place"]),
        in_place: half(&row["in_place"]),
    };
    tables[0]["rows"].as_array().expect("rows").iter().map(row).collect()
}

pub fn this_host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux says its name");
    // nccl-tests cuts the name at the first dot.
    name.trim().split('.').next().unwrap_or_default().to_string()
}

#[test]
fn local_ranks() {
    let mut command = Command::new(BUSBW);
    command.args(["bench", "all_reduce", "--np", "4"]).args(SWEEP);
    assert_one_table(&run(command, LIMIT), &[this_host().as_str(); 4]);
}

#[test]
fn open_mpi() {
    assert_one_table(&linked(needed!(mpirun_openmpi(4))), &[this_host().as_str(); 4]);
}

#[test]
fn mpich() {
    assert_one_table(&linked(needed!(mpirun_mpich(4))), &[this_host().as_str(); 4]);
}

#[test]
fn one_process_of_four_ranks() {
    let link = Link::all_reduce();
    let mut command = Command::new(link.path());
    command.args(SWEEP).args(["-t", "2", "-g", "2"]);
    assert_one_table(&run(command, LIMIT), &[this_host().as_str(); 4]);
}

#[test]
fn a_misspelt_variable_is_named_once_for_a_job() {
    let ended = run(
        Command::new(BUSBW)
            .args(["bench", "all_reduce", "--np", "3", "-b", "8", "-e", "8", "-n", "1"])
            .env("BUSBW_NET_CHEKSUM", "1"),
        Duration::from_secs(60),
    );
    let told = "busbw: there is no variable BUSBW_NET_CHEKSUM. Did you mean BUSBW_NET_CHECKSUM?";
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr.lines().filter(|line| *line == told).count(), 1, "{ended:?}");
}

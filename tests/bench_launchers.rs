//! `busbw bench` under every launcher: one table of all ranks, which `busbw explain` reads back to the last digit.

#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "support/lab.rs"]
mod lab;
#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "support/process.rs"]
mod process;
#[path = "support/table.rs"]
mod table;

use lab::{NetLab, SlurmLab, mpirun_mpich, mpirun_openmpi, torchrun, unless_skipped};
use process::{Ended, run};
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use table::{Half, Row, ranks, rows};
use tempfile::TempDir;

const BUSBW: &str = env!("CARGO_BIN_EXE_busbw");
/// No run here takes longer, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(120);
const SWEEP: [&str; 6] = ["-b", "8", "-e", "64K", "-f", "8"];
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
fn linked(mut launcher: Command) -> Ended {
    let link = Link::all_reduce();
    launcher.arg(link.path()).args(SWEEP).args(["-g", "1"]);
    run(launcher, LIMIT)
}

/// One table, of `hosts` (one entry per rank), with every size; and the same numbers when busbw reads it.
fn assert_one_table(ended: &Ended, hosts: &[&str]) {
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

fn this_host() -> String {
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
    unless_skipped(|| {
        assert_one_table(&linked(mpirun_openmpi(4)?), &[this_host().as_str(); 4]);
        Ok(())
    });
}

#[test]
fn mpich() {
    unless_skipped(|| {
        assert_one_table(&linked(mpirun_mpich(4)?), &[this_host().as_str(); 4]);
        Ok(())
    });
}

#[test]
fn torchrun_without_python() {
    unless_skipped(|| {
        assert_one_table(&linked(torchrun(4)?), &[this_host().as_str(); 4]);
        Ok(())
    });
}

#[test]
fn srun_without_pmi_and_with() {
    unless_skipped(|| {
        let cluster = SlurmLab::up(2)?;
        for mpi in ["--mpi=none", "--mpi=pmi2"] {
            let ended = linked(cluster.srun(&["-n", "4", "-N", "2", mpi]));
            assert_one_table(&ended, &["node1", "node1", "node2", "node2"]);
        }
        Ok(())
    });
}

#[test]
fn three_hosts() {
    unless_skipped(|| {
        let hosts = NetLab::up(3, &[])?;
        assert_one_table(&linked(hosts.mpirun(2)), &["h1", "h1", "h2", "h2", "h3", "h3"]);
        Ok(())
    });
}

/// Hosts that share a name, a kernel and /dev/shm are still several.
#[test]
fn three_hosts_of_one_name() {
    unless_skipped(|| {
        let hosts = NetLab::up(3, &["--one-name"])?;
        assert_one_table(&linked(hosts.mpirun(1)), &[this_host().as_str(); 3]);
        Ok(())
    });
}

/// `--hosts` builds the mpirun command line by itself; --dry-run prints it as a shell takes it.
#[test]
fn hosts_by_name() {
    unless_skipped(|| {
        let hosts = NetLab::up(2, &[])?;
        let mut command = hosts.exec(1, BUSBW);
        command.args(["bench", "all_reduce", "--hosts", "h1:1,h2:1"]).args(SWEEP);
        hosts.use_remote_shell(&mut command);
        assert_one_table(&run(command, LIMIT), &["h1", "h2"]);
        Ok(())
    });
}

#[test]
fn one_process_of_four_ranks() {
    let link = Link::all_reduce();
    let mut command = Command::new(link.path());
    command.args(SWEEP).args(["-t", "2", "-g", "2"]);
    assert_one_table(&run(command, LIMIT), &[this_host().as_str(); 4]);
}

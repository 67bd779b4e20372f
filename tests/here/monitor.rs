//! `busbw monitor` from end to end: this machine, captured trees, recordings.

use crate::support::command::BUSBW;
use crate::support::process::{Ended, LIMIT, Running, run, signal};
use crate::support::terminal::{OnTerminal, wait_for};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

pub fn monitor(arguments: &[&str]) -> Command {
    let mut command = Command::new(BUSBW);
    command.arg("monitor").args(arguments);
    command
}

fn ended_well(command: Command) -> Ended {
    let ended = run(command, LIMIT);
    ended.printed();
    ended
}

/// A RoCE port on eth0, a network interface, and the host.
pub fn tree(folder: &Path) -> &Path {
    let files = [
        ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "1000\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "no number\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "5\n"),
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/speed", "100000\n"),
        ("sys/class/net/eth0/statistics/tx_bytes", "10\n"),
        ("sys/class/net/lo/operstate", "unknown\n"),
        ("sys/class/net/lo/statistics/tx_bytes", "10\n"),
        ("sys/class/net/bonding_masters", "\n"),
        ("proc/sys/kernel/hostname", "node7\n"),
        ("proc/stat", "cpu  10 0 0 90 0 0 0 0\ncpu0 10 0 0 90\n"),
        ("proc/meminfo", "MemTotal: 2000 kB\nMemFree: 1000 kB\nMemAvailable: 1500 kB\n"),
        ("proc/77/cmdline", "/opt/nccl-tests/all_reduce_perf\0-b\x008\0"),
    ];
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }
    folder
}

pub fn scratch() -> TempDir {
    tempfile::tempdir().expect("a folder can be made")
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn once_shows_this_machine_and_explain_can_read_it() {
    let ended = ended_well(monitor(&["--once", "--interval", "50ms"]));
    let first = ended.stdout.lines().next().unwrap_or_default();
    assert!(first.ends_with("; rates in Gbit/s, durations in µs, counts of the interval"), "{}", ended.stdout);
    for name in ["tx_rate: ", "rx_rate: ", "num_of_qp: ", "cpu_usage: ", "free_mem: "] {
        assert!(ended.stdout.contains(name), "{name} {}", ended.stdout);
    }
    let folder = scratch();
    let file = folder.path().join("monitor.txt");
    fs::write(&file, &ended.stdout).expect("the file can be written");
    let mut explain = Command::new(BUSBW);
    explain.args(["explain", "--json"]).arg(file);
    // Status 2 is for files in which nothing is known.
    assert!(matches!(run(explain, LIMIT).status.code(), Some(0 | 1 | 3)));
}

#[test]
fn a_captured_tree_is_shown_with_what_moved() {
    let folder = scratch();
    let root = tree(folder.path()).to_str().expect("UTF-8").to_owned();
    let beside = scratch();
    let recording = beside.path().join("run.rec");
    let record = ["--record", recording.to_str().expect("UTF-8")];
    let mut running =
        Running::start(monitor(&[&["--root", &root, "--json", "--interval", "50ms"], &record[..]].concat()));
    running.until(LIMIT, "first line", |out| out.lines().next().map(drop));
    let counter = folder.path().join("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence");
    // In one piece: a counter is never empty.
    let mut counter = File::options().write(true).open(counter).expect("the file is there");
    counter.write_all(b"30\n").expect("the file can be written");
    let alert = running.until(LIMIT, "alert", |out| {
        let complete = &out[..out.rfind('\n')?];
        lines(complete).into_iter().find(|line| !line["alerts"].as_array().expect("alerts").is_empty())
    });
    assert_eq!(alert["alerts"][0]["code"], "roce.config");
    assert_eq!(alert["alerts"][0]["moved"], 25);
    assert_eq!(alert["ports"][0]["name"], "mlx5_0/1");
    assert_eq!(alert["ports"][0]["link_gbit_s"], 100.0);
    assert_eq!(alert["ports"][1]["below"], "mlx5_0/1");
    assert_eq!(alert["ports"].as_array().map(Vec::len), Some(2), "lo is left out");
    assert_eq!(alert["jobs"][0]["what"], "all_reduce");
    assert_eq!(alert["host"]["memory_available_kib"], 1500);
    // Ctrl-C ends it, with what moved.
    signal(running.id(), "INT");
    let ended = running.ended(LIMIT);
    assert!(ended.status.success());
    assert!(
        ended.stderr.contains("warning mlx5_0/1 out_of_sequence: packets that came out of order (+25"),
        "{}",
        ended.stderr
    );
    // explain tells the same of the lines and of the recording.
    let lines = folder.path().join("monitor.json");
    fs::write(&lines, running.stdout()).expect("the file can be written");
    let (lines, recording) = (lines.display(), recording.display());
    for input in [format!("'{lines}'"), format!("'{recording}'"), format!("- < '{recording}'")] {
        let answer =
            run(Command::new("sh").args(["-c", &format!("exec '{BUSBW}' explain --json {input}")]), LIMIT).json();
        let finding = &answer["findings"][0];
        assert_eq!((&answer["verdict"], &finding["code"]), (&"degraded".into(), &"roce.config".into()), "{answer}");
        let title = finding["title"].as_str().expect("a title");
        assert!(title.starts_with("mlx5_0/1: packets that came out of order (out_of_sequence) moved by 25"), "{title}");
    }
}

#[test]
fn a_device_that_goes_and_comes_is_followed() {
    let folder = scratch();
    let root = tree(folder.path()).to_str().expect("UTF-8").to_owned();
    let mut running = Running::start(monitor(&["--root", &root, "--json", "--interval", "50ms"]));
    let ports = |out: &str| Some(lines(&out[..out.rfind('\n')?]).last()?["ports"].as_array()?.len());
    running.until(LIMIT, "both ports", |out| ports(out).filter(|&ports| ports == 2));
    let (device, aside) = (folder.path().join("sys/class/infiniband/mlx5_0"), folder.path().join("aside"));
    fs::rename(&device, &aside).expect("a folder can be moved");
    running.until(LIMIT, "the interface alone", |out| ports(out).filter(|&ports| ports == 1));
    fs::rename(&aside, &device).expect("a folder can be moved");
    running.until(LIMIT, "both ports again", |out| ports(out).filter(|&ports| ports == 2));
    signal(running.id(), "TERM");
    assert!(running.ended(LIMIT).status.success());
}

#[test]
fn a_recording_replays_as_it_was_and_as_far_as_it_goes() {
    let folder = scratch();
    let root = tree(folder.path()).to_str().expect("UTF-8").to_owned();
    let file = folder.path().join("run.rec");
    let path = file.to_str().expect("UTF-8");
    let live = ended_well(monitor(&["--root", &root, "--json", "-i", "50ms", "-n", "4", "--record", path]));
    let replayed = ended_well(monitor(&["--replay", path, "--json"]));
    assert_eq!(replayed.stdout, live.stdout);
    assert_eq!(lines(&live.stdout).len(), 4);
    let text = ended_well(monitor(&["--replay", path]));
    assert_eq!(text.stdout.matches("tx_rate: ").count(), 4);
    let bytes = fs::read(&file).expect("the recording is there");
    fs::write(&file, &bytes[..bytes.len() - 3]).expect("the file can be written");
    let cut = ended_well(monitor(&["--replay", path, "--json", "--speed", "1000"]));
    assert_eq!(lines(&cut.stdout), lines(&live.stdout)[..3]);
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let folder = scratch();
    let wrong = folder.path().join("wrong.toml");
    fs::write(&wrong, "rdma.port_xmit_data.per_second = 1").expect("the file can be written");
    let wrong = wrong.to_str().expect("UTF-8");
    let cases: [(&[&str], &str); 6] = [
        (&["--replay", "/absent"], "/absent: no such file; check the path"),
        (&["--replay", wrong], "no recording of busbw monitor"),
        (&["--root", "/absent"], "/absent: No such file"),
        (&["--thresholds", wrong], "no alert for rdma.port_xmit_data"),
        (&["--once", "--record", "/absent/file"], "choose a place that can be written"),
        (&["--interval", "1ms"], "give a time from 50ms to 3600s"),
    ];
    for (arguments, message) in cases {
        run(monitor(arguments), LIMIT).refused(message);
    }
}

#[test]
fn scrapes_are_served_on_loopback_while_it_runs() {
    let folder = scratch();
    let root = tree(folder.path()).to_str().expect("UTF-8").to_owned();
    let mut running = Running::start(monitor(&["--root", &root, "--quiet", "--interval", "50ms", "--prometheus", "0"]));
    let address = running.until_said(LIMIT, "address", |err| {
        let address = err.strip_prefix("busbw: http://")?.split_once("/metrics\n")?.0;
        Some(address.to_owned())
    });
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    running.retry(LIMIT, "sample", || {
        let mut connection = TcpStream::connect(&address).ok()?;
        connection.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let metric = "busbw_port_tx_bytes_total{device=\"mlx5_0\",port=\"1\",counter=\"port_xmit_data\"} 4000\n";
        answer.contains(metric).then_some(())
    });
    signal(running.id(), "INT");
    assert!(running.ended(LIMIT).status.success());
}

#[test]
fn a_trace_and_the_list_of_alerts_are_for_other_programs() {
    let folder = scratch();
    let root = tree(folder.path()).to_str().expect("UTF-8").to_owned();
    let trace = folder.path().join("trace.json");
    let path = trace.to_str().expect("UTF-8");
    ended_well(monitor(&["--root", &root, "--quiet", "-i", "50ms", "-n", "2", "--perfetto", path]));
    let events: Value = serde_json::from_slice(&fs::read(&trace).expect("the trace is there")).expect("JSON");
    let named = |name: &str| events.as_array().expect("events").iter().filter(|event| event["name"] == name).count();
    assert_eq!((named("mlx5_0/1 tx Gbit/s"), named("all_reduce")), (2, 1));
    let list = ended_well(monitor(&["--list-alerts"])).stdout;
    let file = folder.path().join("thresholds.toml");
    fs::write(&file, list).expect("the file can be written");
    let file = file.to_str().expect("UTF-8");
    ended_well(monitor(&["--root", &root, "--once", "-i", "50ms", "--thresholds", file]));
}

#[test]
fn the_screen_ends_with_its_terminal_and_a_recording_goes_on_without() {
    let folder = scratch();
    let root = tree(folder.path()).display().to_string();
    let mut screen = OnTerminal::alone(monitor(&["--root", &root, "-i", "50ms"]));
    screen.see("node7");
    screen.close();
    screen.ended();

    let file = folder.path().join("run.rec");
    let recording = monitor(&["--root", &root, "-i", "50ms", "--record", file.to_str().expect("UTF-8")]);
    let mut screen = OnTerminal::alone(recording);
    screen.see("node7");
    screen.close();
    thread::sleep(Duration::from_millis(500)); // the screen is gone by now
    let size = || file.metadata().expect("the recording is there").len();
    let before = size();
    wait_for("more of the recording", || size() > before);
    signal(screen.child.id(), "TERM");
    screen.ended();
}

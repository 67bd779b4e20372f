//! `busbw watch` around real torchruns on hosts of a lab, with Gloo: what is named when a cable is cut, a rank is stopped, raises or sleeps.

use crate::support::command::BUSBW;
use crate::support::lab::NetLab;
use crate::support::process::{LIMIT, Running, signal};
use crate::support::skip::{Skip, needed, root_folder};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const HOSTS: usize = 3;
const RANKS: usize = 2;
/// Rank 4 is the first on host 3.
const TRAIN: &str = r#"
import datetime, os, sys, time
import torch, torch.distributed as dist
what = sys.argv[1]
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=10))
rank, gradient = dist.get_rank(), torch.ones(1 << 16)

def load(step):
    if step == 30 and rank == 4:
        print("now", os.getpid(), flush=True)
        if what == "sleep":
            time.sleep(1000)
    time.sleep(0.05)

for step in range(10**9):
    load(step)
    if step == 30 and rank == 4 and what == "raise":
        raise ValueError("batch 7 has no labels")
    dist.all_reduce(gradient)
"#;

/// One torchrun on each host, each below a busbw watch.
struct Job {
    hosts: Vec<Running>,
    folder: tempfile::TempDir,
}

fn torchrun() -> Result<PathBuf, Skip> {
    let torchrun = root_folder().join("target/python/bin/torchrun");
    if torchrun.is_file() { Ok(torchrun) } else { Err(Skip("PyTorch is missing; make setup installs it".into())) }
}

impl Job {
    fn start(lab: &NetLab, what: &str) -> Result<Self, Skip> {
        let folder = tempfile::tempdir().expect("a folder");
        let (torchrun, script) = (torchrun()?, folder.path().join("train.py"));
        fs::write(&script, TRAIN).expect("room");
        let start = |host: usize| Running::start(Self::command(lab, host, &torchrun, &script, folder.path(), what));
        Ok(Job { hosts: (1..=HOSTS).map(start).collect(), folder })
    }

    fn command(lab: &NetLab, host: usize, torchrun: &Path, script: &Path, folder: &Path, what: &str) -> Command {
        let mut command = lab.exec(host, BUSBW);
        command
            .args(["watch", "--stall", "5s", "--folder"])
            .arg(folder.join(format!("h{host}")))
            .arg("--")
            .arg(torchrun);
        command.args([format!("--nnodes={HOSTS}"), format!("--nproc-per-node={RANKS}")]);
        command.args([format!("--node-rank={}", host - 1), format!("--master-addr={}", NetLab::address(1))]);
        command.arg("--master-port=29517").arg(script).arg(what).env("GLOO_SOCKET_IFNAME", "eth0");
        // py-spy, where it is installed beside PyTorch.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", torchrun.parent().expect("a folder").display()));
        command
    }

    /// The process of rank 4, once it has come to its step.
    fn victim(&mut self) -> u32 {
        self.hosts[2]
            .until(LIMIT, "step 30", |out| out.lines().find_map(|line| line.strip_prefix("now ")?.trim().parse().ok()))
    }

    /// The first line in which a host's busbw names somebody.
    fn named(&mut self, host: usize) -> String {
        self.hosts[host - 1].until_said(LIMIT, "somebody named", |said| {
            said.lines().find_map(|line| line.strip_prefix("busbw watch: ")).map(str::to_owned)
        })
    }

    /// What explain says of all folders together.
    fn explained(&self) -> String {
        let output = Command::new(BUSBW).arg("explain").arg(self.folder.path()).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn told(what: &str, since: Instant, line: &str) {
    eprintln!("{what}: after {:.1} s: {line}", since.elapsed().as_secs_f64());
}

#[test]
fn a_host_whose_cable_is_cut_is_named() {
    let lab = needed!(NetLab::up(HOSTS, &[]));
    let mut job = needed!(Job::start(&lab, "cut"));
    job.victim();
    let since = Instant::now();
    lab.link_down(3);
    for host in [1, 2, 3] {
        let line = job.named(host);
        told("cut", since, &line);
        assert!(line.starts_with("Host h3 "), "host {host}: {line}");
    }
    assert!(job.explained().starts_with("FAILED  Host h3 (ranks 4, 5)"), "{}", job.explained());
}

#[test]
fn a_rank_that_is_stopped_raises_or_sleeps_is_named_on_its_host() {
    let lab = needed!(NetLab::up(HOSTS, &[]));
    for (what, says) in
        [("stop", "Rank 4 on h3 is stopped"), ("raise", "Rank 4 on h3 failed"), ("sleep", "Rank 4 on h3 is elsewhere")]
    {
        let mut job = needed!(Job::start(&lab, what));
        let victim = job.victim();
        let since = Instant::now();
        if what == "stop" {
            signal(victim, "STOP");
        }
        let line = job.named(3);
        told(what, since, &line);
        assert!(line.starts_with(says), "{what}: {line}");
        if what == "raise" {
            assert!(line.contains("ValueError"), "{line}");
        }
        // The other hosts see that they wait, and that the fault is none of theirs.
        if what != "raise" {
            let line = job.named(1);
            assert!(!line.contains("Rank 0") && !line.contains("Rank 1"), "{what}: {line}");
        }
        assert!(job.explained().contains(says), "{what}: {}", job.explained());
        signal(victim, "CONT");
    }
}

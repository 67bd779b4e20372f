//! `examples/slurm/node-health` in a real Slurm: as HealthCheckProgram, and as epilog.

use crate::support::command::BUSBW;
use crate::support::lab::SlurmLab;
use crate::support::process::{LIMIT, run};
use crate::support::script::executable;
use crate::support::skip::{needed, root_folder};
use crate::support::tree::Tree;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A node with eight GPUs whose first port is down.
fn broken_node() -> Tree {
    let tree = Tree::unpack("oci-h100");
    tree.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    tree
}

const BROKEN: &str = "broken";

/// The program as slurmd runs it: a machine like this tree is what node2 finds once the file [`BROKEN`] is there.
fn program(folder: &Path, tree: &Tree) -> PathBuf {
    let file = folder.join("node-health");
    let health = root_folder().join("examples/slurm/node-health");
    let check = format!("{BUSBW} check --root {}", tree.path().display());
    // slurmd hands on no SLURM_CONF, which only a lab needs.
    let conf = "export SLURM_CONF=$(tr '\\0' '\\n' </proc/$PPID/environ | sed -n 's/^SLURM_CONF=//p')";
    let script = format!(
        "#!/bin/sh\n{conf}\n[ \"$SLURMD_NODENAME\" = node2 ] && [ -e {} ] || exit 0\nexport CHECK='{check}'\nexec {}\n",
        folder.join(BROKEN).display(),
        health.display()
    );
    executable(&file, &script);
    file
}

fn reason(lab: &SlurmLab, node: &str) -> String {
    run(lab.with(Command::new("sinfo")).args(["--noheader", "--nodes", node, "--format=%T %E"]), LIMIT)
        .stdout
        .trim()
        .to_owned()
}

fn wait_for_drain(lab: &SlurmLab) -> String {
    let until = Instant::now() + LIMIT;
    loop {
        let told = reason(lab, "node2");
        if told.starts_with("drain") {
            return told;
        }
        assert!(Instant::now() < until, "node2 is not drained: {told}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_node_whose_check_fails_is_drained_with_the_reason() {
    let (tree, folder) = (broken_node(), tempfile::tempdir().expect("a folder"));
    let health = program(folder.path(), &tree);
    let lines = format!("HealthCheckProgram={}\nHealthCheckInterval=1\nHealthCheckNodeState=ANY\n", health.display());
    let lab = needed!(SlurmLab::with_more(2, &lines));
    fs::write(folder.path().join(BROKEN), "").expect("written");
    let told = wait_for_drain(&lab);
    assert!(told.contains("busbw: port state: mlx5_0/1: DOWN"), "{told}");
    assert_eq!(reason(&lab, "node1"), "idle none");
}

#[test]
fn a_node_that_a_job_leaves_broken_is_drained_by_the_epilog() {
    let (tree, folder) = (broken_node(), tempfile::tempdir().expect("a folder"));
    let epilog = program(folder.path(), &tree);
    let lab = needed!(SlurmLab::with_more(2, &format!("Epilog={}\n", epilog.display())));
    assert_eq!(reason(&lab, "node2"), "idle none");
    fs::write(folder.path().join(BROKEN), "").expect("written");
    let mut job = lab.srun(&["--nodes=2", "--ntasks=2"]);
    job.arg("true");
    assert!(run(job, LIMIT).status.success());
    let told = wait_for_drain(&lab);
    assert!(told.contains("busbw: port state: mlx5_0/1: DOWN"), "{told}");
    assert_eq!(reason(&lab, "node1"), "idle none");
}

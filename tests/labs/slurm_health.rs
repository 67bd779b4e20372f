//! `examples/slurm/node-health` in a real Slurm: as HealthCheckProgram, and as epilog.

use crate::support::command::BUSBW;
use crate::support::lab::SlurmLab;
use crate::support::process::run;
use crate::support::skip::{root_folder, unless_skipped};
use crate::support::tree::Tree;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A node with eight GPUs whose first port is down.
fn broken_node() -> Tree {
    let tree = Tree::unpack("oci-h100");
    tree.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    tree
}

/// No daemon of the lab needs longer, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(120);

/// The program as slurmd runs it: a machine like this tree is what it checks, and `broken` is which node is like it.
fn program(folder: &Path, tree: &Tree, broken: &str) -> PathBuf {
    let file = folder.join("node-health");
    let health = root_folder().join("examples/slurm/node-health");
    let check = format!("{BUSBW} check --root {}", tree.path().display());
    let script = format!(
        "#!/bin/sh\n[ \"$SLURMD_NODENAME\" = {broken} ] || exit 0\nexport CHECK='{check}'\nexec {}\n",
        health.display()
    );
    fs::write(&file, script).expect("written");
    fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("executable");
    file
}

fn reason(lab: &SlurmLab, node: &str) -> String {
    let mut sinfo = lab.with(Command::new("sinfo"));
    sinfo.args(["--noheader", "--nodes", node, "--format=%T %E"]);
    run(sinfo, LIMIT).stdout.trim().to_owned()
}

fn wait_for_drain(lab: &SlurmLab, node: &str) -> String {
    let until = Instant::now() + LIMIT;
    loop {
        let told = reason(lab, node);
        if told.starts_with("drain") {
            return told;
        }
        assert!(Instant::now() < until, "{node} is not drained: {told}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_node_whose_check_fails_is_drained_with_the_reason() {
    unless_skipped(|| {
        let (tree, folder) = (broken_node(), tempfile::tempdir().expect("a folder"));
        let health = program(folder.path(), &tree, "node2");
        let lines = format!(
            "HealthCheckProgram={}\nHealthCheckInterval=1\nHealthCheckNodeState=ANY\n",
            health.display()
        );
        let lab = SlurmLab::with_more(2, &lines)?;
        let told = wait_for_drain(&lab, "node2");
        assert!(told.contains("busbw: port state: mlx5_0/1: DOWN"), "{told}");
        assert_eq!(reason(&lab, "node1"), "idle none");
        Ok(())
    });
}

#[test]
fn a_node_that_a_job_leaves_broken_is_drained_by_the_epilog() {
    unless_skipped(|| {
        let (tree, folder) = (broken_node(), tempfile::tempdir().expect("a folder"));
        let epilog = program(folder.path(), &tree, "node2");
        let lab = SlurmLab::with_more(2, &format!("Epilog={}\n", epilog.display()))?;
        assert_eq!(reason(&lab, "node2"), "idle none");
        let mut job = lab.srun(&["--nodes=2", "--ntasks=2"]);
        job.arg("true");
        assert!(run(job, LIMIT).status.success());
        let told = wait_for_drain(&lab, "node2");
        assert!(told.contains("busbw: port state: mlx5_0/1: DOWN"), "{told}");
        assert_eq!(reason(&lab, "node1"), "idle none");
        Ok(())
    });
}

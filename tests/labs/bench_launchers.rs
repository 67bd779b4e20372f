//! `busbw bench` on several hosts, under Slurm and under torchrun.

use crate::here::bench_launchers::{SWEEP, assert_one_table, linked, this_host};
use crate::support::command::BUSBW;
use crate::support::lab::{NetLab, SlurmLab, torchrun};
use crate::support::process::{LIMIT, run};
use crate::support::skip::needed;

#[test]
fn torchrun_without_python() {
    assert_one_table(&linked(needed!(torchrun(4))), &[this_host().as_str(); 4]);
}

#[test]
fn srun_without_pmi_and_with() {
    let cluster = needed!(SlurmLab::up(2));
    for mpi in ["--mpi=none", "--mpi=pmi2"] {
        let ended = linked(cluster.srun(&["-n", "4", "-N", "2", mpi]));
        assert_one_table(&ended, &["node1", "node1", "node2", "node2"]);
    }
}

#[test]
fn three_hosts() {
    let hosts = needed!(NetLab::up(3, &[]));
    assert_one_table(&linked(hosts.mpirun(2)), &["h1", "h1", "h2", "h2", "h3", "h3"]);
}

/// Hosts that share a name, a kernel and /dev/shm are still several.
#[test]
fn three_hosts_of_one_name() {
    let hosts = needed!(NetLab::up(3, &["--one-name"]));
    assert_one_table(&linked(hosts.mpirun(1)), &[this_host().as_str(); 3]);
}

/// `--hosts` builds the mpirun command line by itself; --dry-run prints it as a shell takes it.
#[test]
fn hosts_by_name() {
    let hosts = needed!(NetLab::up(2, &[]));
    let mut command = hosts.exec(1, BUSBW);
    command.args(["bench", "all_reduce", "--hosts", "h1:1,h2:1"]).args(SWEEP);
    assert_one_table(&run(command, LIMIT), &["h1", "h2"]);
}

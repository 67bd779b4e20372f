//! The example `who` under Slurm.

use crate::here::launchers::{command, hosts_by_command_line, joined, output, who};
use crate::lab::SlurmLab;
use crate::skip::unless_skipped;
use busbw_launch::command::Tool;

#[test]
fn slurm() {
    unless_skipped(|| {
        let cluster = SlurmLab::up(2)?;
        for (kind, way) in [("none", "Derived"), ("pmi2", "Pmi2")] {
            let mut srun = cluster.srun(&["-N2", "-n4", &format!("--mpi={kind}")]);
            joined(&output(srun.arg(who())), &format!("launcher Srun way {way} size 4 gathered 0,1,2,3 here 4"));
        }
        for hosts in ["node1:2,node2:2", "node1:1,node2:2"] {
            let words = hosts_by_command_line(Tool::Srun, "srun", hosts, &[who().to_str().unwrap()]);
            let mut srun = cluster.with(command(&words[0]));
            joined(&output(srun.args(&words[1..])), "launcher Srun way Derived size ");
        }
        Ok(())
    });
}

//! Hosts to measure on: a lab of `tests/lab/netlab`, up while it is measured.

use crate::program::Outcome;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Labs of the benchmark have numbers of their own, so that those of tests may be up too.
const FIRST_NUMBER: usize = 31;

/// Hosts 1 to N, gone when dropped.
#[derive(Debug)]
pub struct Lab {
    script: PathBuf,
    number: String,
}

impl Lab {
    /// Brings up lab number `index` of the benchmarks, with the options of `netlab up`.
    pub fn up(root: &Path, index: usize, hosts: u32, options: &[&str]) -> Outcome<Self> {
        let lab = Lab { script: root.join("tests/lab/netlab"), number: (FIRST_NUMBER + index).to_string() };
        let mut command = Command::new(&lab.script);
        command.env("NETLAB", &lab.number).arg("up").arg(hosts.to_string()).args(options);
        let output = command.output().map_err(|error| format!("the lab of hosts: {error}"))?;
        if output.status.success() {
            Ok(lab)
        } else {
            Err(format!("the lab of hosts: {} (only root may)", String::from_utf8_lossy(&output.stderr).trim()).into())
        }
    }

    /// A command that runs `program` on a host.
    pub fn exec(&self, host: u32, program: &Path) -> Command {
        let mut command = Command::new(&self.script);
        command.env("NETLAB", &self.number).arg("exec").arg(host.to_string()).arg(program);
        command
    }

    /// A command on host 1 that may start ranks on every host with Open MPI's mpirun.
    pub fn leading(&self, program: &Path) -> Command {
        let mut command = self.exec(1, program);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_plm_rsh_agent", self.remote_shell());
        // Open MPI 4.1's daemons of one machine write their picture of it to one file, and at times crash on it.
        command.env("OMPI_MCA_rtc", "^hwloc");
        command
    }

    /// What a launcher runs as its remote shell, as one command line.
    pub fn remote_shell(&self) -> String {
        format!("{} rsh", self.script.display())
    }

    pub fn address(host: u32) -> String {
        format!("10.77.0.{host}")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = Command::new(&self.script).env("NETLAB", &self.number).arg("down").status();
        if !down.is_ok_and(|status| status.success()) {
            eprintln!(
                "the lab of hosts could not be taken down: NETLAB={} {} down",
                self.number,
                self.script.display()
            );
        }
    }
}

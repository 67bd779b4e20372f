//! The contestants' programs: what they need, and the command lines that measure some sizes.

use super::plan::Step;
use super::scenario::Case;
use crate::lab::Lab;
use crate::machine::tool_version;
use crate::program::{FileError, Outcome};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// `busbw bench`.
    Busbw,
    /// Open MPI, through `benches/peers/mpi_collectives.c`.
    OpenMpi,
    /// MPICH, through the same.
    Mpich,
    /// Gloo, through `benches/peers/gloo_collectives.py`.
    Gloo,
}

/// Where everything that is measured lies. Paths are whole.
#[derive(Debug, Clone)]
pub struct Kit {
    /// The repository.
    pub root: PathBuf,
    /// The busbw to measure.
    pub busbw: PathBuf,
    /// What scripts/setup-peers has built.
    pub built: PathBuf,
    /// The Python that has PyTorch.
    pub python: PathBuf,
    /// A folder for files of one run.
    pub scratch: PathBuf,
}

/// Commands that run at the same time, the ranks of one job or their launcher. The first one prints the times.
pub type Job = Vec<Command>;

const MPICH_AGENT: &str = "netlab-rsh";

impl Program {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Program::Busbw => "busbw",
            Program::OpenMpi => "Open MPI",
            Program::Mpich => "MPICH",
            Program::Gloo => "Gloo",
        }
    }

    /// Looks for what it needs.
    pub fn check(self, kit: &Kit) -> Outcome<()> {
        let peers = "run scripts/setup-peers";
        let (file, remedy) = match self {
            Program::Busbw => (kit.busbw.clone(), "build it with `make build` or name one with --busbw PATH"),
            Program::OpenMpi => (kit.mpi_program("openmpi"), peers),
            Program::Mpich => (kit.mpi_program("mpich"), peers),
            Program::Gloo => (kit.python.clone(), peers),
        };
        if file.is_file() { Ok(()) } else { Err(format!("{} is missing; {remedy}", file.display()).into()) }
    }

    /// Its name and the version that it prints of itself: `Open MPI 4.1.4`.
    pub fn version(self, kit: &Kit) -> Option<String> {
        let line = match self {
            Program::Busbw => tool_version(&kit.busbw),
            Program::OpenMpi => tool_version(Path::new("mpirun.openmpi")),
            Program::Mpich => first_line(&mut Command::new("mpichversion")),
            Program::Gloo => {
                first_line(Command::new(&kit.python).args(["-c", "import torch; print(torch.__version__)"]))
            }
        };
        let library = if self == Program::Gloo { "Gloo of PyTorch" } else { self.name() };
        line.as_deref()?.split_whitespace().last().map(|version| format!("{library} {version}"))
    }

    /// The jobs, one after the other, that measure `steps`.
    pub fn jobs(self, case: &Case, steps: &[Step], kit: &Kit, lab: Option<&Lab>) -> Outcome<Vec<Job>> {
        Ok(match self {
            Program::Busbw => {
                // One job per size: in a sweep, nccl-tests' small sizes walk through the largest size's buffer, which
                // the peers' programs do not.
                steps.iter().map(|step| vec![busbw(case, step, kit, lab)]).collect()
            }
            Program::OpenMpi => vec![vec![open_mpi(kit.mpi_program("openmpi"), mpi_arguments(case, steps), case, lab)]],
            Program::Mpich => vec![vec![mpich(case, steps, kit, lab)?]],
            Program::Gloo => vec![gloo(case, steps, kit, lab)?],
        })
    }
}

impl Kit {
    fn mpi_program(&self, library: &str) -> PathBuf {
        self.built.join(format!("mpi_collectives.{library}"))
    }

    /// Where busbw leaves its times, with all digits.
    pub fn times_file(&self) -> PathBuf {
        self.scratch.join("busbw.json")
    }

    /// Name and version of the programs.
    pub fn versions(&self, programs: &[Program]) -> BTreeMap<&'static str, Option<String>> {
        programs.iter().map(|program| (program.name(), program.version(self))).collect()
    }
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().map(str::to_string)).flatten()
}

fn busbw(case: &Case, step: &Step, kit: &Kit, lab: Option<&Lab>) -> Command {
    let mut arguments = vec!["bench".to_string(), case.collective.name().to_string()];
    if lab.is_none() {
        arguments.extend(["--np".to_string(), case.ranks.to_string()]);
    }
    let size = step.size.to_string();
    for (flag, value) in [
        ("-b", &size),
        ("-e", &size),
        ("-n", &step.iterations.to_string()),
        ("-w", &step.warmup.to_string()),
        ("-c", &"0".to_string()),
        ("-J", &kit.times_file().display().to_string()),
    ] {
        arguments.extend([flag.to_string(), value.clone()]);
    }
    match lab {
        Some(_) => open_mpi(kit.busbw.clone(), arguments, case, lab),
        None => {
            let mut command = Command::new(&kit.busbw);
            command.args(arguments);
            command
        }
    }
}

fn mpi_arguments(case: &Case, steps: &[Step]) -> Vec<String> {
    let step = |step: &Step| format!("{}:{}:{}", step.size, step.iterations, step.warmup);
    std::iter::once(case.collective.name().to_string()).chain(steps.iter().map(step)).collect()
}

/// Open MPI with its own defaults, but for what the lab asks: over the network, and not both ranks on one core.
fn open_mpi(program: PathBuf, arguments: Vec<String>, case: &Case, lab: Option<&Lab>) -> Command {
    let mut command = match lab {
        None => {
            let mut command = Command::new("mpirun.openmpi");
            command.args(["--oversubscribe", "-np", &case.ranks.to_string()]);
            command
        }
        Some(lab) => {
            let mut command = lab.exec(1, Path::new("mpirun.openmpi"));
            let hosts: Vec<String> = (1..=case.ranks).map(|host| format!("{}:1", Lab::address(host))).collect();
            command.args(["--host", &hosts.join(","), "--bind-to", "none", "--mca", "btl", "tcp,self"]);
            command.args(["--mca", "plm_rsh_agent", &lab.remote_shell()]);
            command
        }
    };
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.arg(program).args(arguments);
    command
}

fn mpich(case: &Case, steps: &[Step], kit: &Kit, lab: Option<&Lab>) -> Outcome<Command> {
    let ranks = case.ranks.to_string();
    let mut command = match lab {
        None => Command::new("mpirun.mpich"),
        Some(lab) => {
            let mut command = lab.exec(1, Path::new("mpirun.mpich"));
            let hosts: Vec<String> = (1..=case.ranks).map(Lab::address).collect();
            let agent = write_agent(kit, lab)?;
            command.args(["-launcher", "rsh", "-launcher-exec"]).arg(agent).args(["-hosts", &hosts.join(",")]);
            // UCX tells hosts apart by the machine's boot id, which the lab's share: left alone it uses shared memory.
            command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "eth0");
            command
        }
    };
    command.args(["-n", &ranks]).arg(kit.mpi_program("mpich")).args(mpi_arguments(case, steps));
    Ok(command)
}

/// Hydra takes the remote shell as one path, without arguments.
fn write_agent(kit: &Kit, lab: &Lab) -> Outcome<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = kit.scratch.join(MPICH_AGENT);
    let write = || {
        std::fs::write(&path, format!("#!/bin/sh\nexec {} \"$@\"\n", lab.remote_shell()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
    };
    write().map_err(FileError::at(&path))?;
    Ok(path)
}

fn gloo(case: &Case, steps: &[Step], kit: &Kit, lab: Option<&Lab>) -> Outcome<Job> {
    let port = free_port().map_err(|error| format!("no free port: {error}"))?;
    let program = kit.root.join("benches/peers/gloo_collectives.py");
    let rank = |rank: u32| {
        let mut command = match lab {
            None => Command::new(&kit.python),
            Some(lab) => lab.exec(rank + 1, &kit.python),
        };
        let (address, interface) = if lab.is_some() { (Lab::address(1), "eth0") } else { ("127.0.0.1".into(), "lo") };
        command.arg(&program).args(mpi_arguments(case, steps));
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", case.ranks.to_string());
        command.env("MASTER_ADDR", address).env("MASTER_PORT", port.to_string());
        // torchrun's own default of one thread per rank.
        command.env("GLOO_SOCKET_IFNAME", interface).env("OMP_NUM_THREADS", "1");
        command
    };
    Ok((0..case.ranks).map(rank).collect())
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

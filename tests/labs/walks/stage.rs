//! Where a page is walked: an empty folder with what the page needs, and the machine, lab or guest that runs its commands.

use super::page::{Command, Lab, Needs};
use crate::support::command::BUSBW;
use crate::support::guest::Guest;
use crate::support::lab::{NetLab, SlurmLab};
use crate::support::process::run;
use crate::support::script::executable;
use crate::support::skip::{self, Skip};
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;
use tempfile::TempDir;

/// No command of a page takes as long, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(400);
/// What Open MPI 4.1 prints on standard error when a child was faster than its parent, on busy machines only.
const CHATTER: &str = "plm:rsh: Warning: setpgid(";
/// How variables start that change what busbw, or a launcher, does or prints.
const SPEAKING: [&str; 6] = ["NCCL_", "OMPI_", "SLURM_", "BUSBW_", "MASTER_", "COLUMNS"];
/// What a page names that needs busbw's Python package, with PyTorch.
const PYTHON: &str = "python";

/// What a command printed, to either stream, and its exit status (none: it was ended by a signal).
pub struct Printed {
    pub text: String,
    pub status: Option<i32>,
}

/// Runs a page's commands one after the other, in a fresh folder.
pub fn play(needs: &Needs, commands: &[Command]) -> Result<Vec<Printed>, Skip> {
    let (python, programs): (Vec<&str>, Vec<&str>) =
        needs.programs.iter().map(String::as_str).partition(|name| *name == PYTHON);
    skip::programs(&programs)?;
    let stage = Stage::set(&needs.files);
    if !python.is_empty() {
        stage.lay_out_python()?;
    }
    match &needs.lab {
        Lab::Rdma => stage.in_guest(commands),
        Lab::None => {
            let bash = || Process::new("bash");
            Ok(stage.each(commands, bash))
        }
        Lab::Net { hosts, options } => {
            let hosts = net(*hosts, options)?;
            Ok(stage.each(commands, || host_1(&hosts)))
        }
        Lab::NetSlurm { hosts, options } => {
            let hosts = net(*hosts, options)?;
            let cluster = SlurmLab::on(&hosts)?;
            Ok(stage.each(commands, || cluster.with(host_1(&hosts))))
        }
        Lab::Slurm { nodes } => {
            let lab = SlurmLab::up(*nodes)?;
            Ok(stage.each(commands, || lab.with(Process::new("bash"))))
        }
    }
}

fn net(hosts: usize, options: &[String]) -> Result<NetLab, Skip> {
    NetLab::up(hosts, &options.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The bash of somebody on host 1.
fn host_1(hosts: &NetLab) -> Process {
    hosts.exec(1, "bash")
}

/// The folder of a page, and beside it one with the programs that the page calls by names of their own.
struct Stage {
    root: TempDir,
}

impl Stage {
    fn set(files: &[(PathBuf, String)]) -> Self {
        let stage = Stage { root: tempfile::tempdir().expect("a temporary folder can be made") };
        for folder in [stage.folder(), stage.programs()] {
            std::fs::create_dir(folder).expect("the folder is new");
        }
        for (path, name) in files {
            let mut copy = Process::new("cp");
            copy.arg("-r").arg(skip::root_folder().join(path)).arg(stage.folder().join(name));
            assert!(copy.status().is_ok_and(|status| status.success()), "{}: cannot be copied", path.display());
        }
        symlink(BUSBW, stage.programs().join("busbw")).expect("the folder is ours");
        // A machine may have several; the labs are made for this one. No link: mpirun expects its daemon beside itself.
        if skip::find("mpirun.openmpi").is_some() {
            stage.script("mpirun", "#!/bin/sh\nexec mpirun.openmpi \"$@\"\n");
        }
        stage
    }

    /// Python as scripts/test-python has laid it out, with busbw's package.
    fn lay_out_python(&self) -> Result<(), Skip> {
        let python = skip::root_folder().join("target/python/bin/python").display().to_string();
        let has_all = Process::new(&python).args(["-c", "import busbw, torch, torchvision"]).output();
        if !has_all.is_ok_and(|output| output.status.success()) {
            return Err(Skip(
                "busbw's Python package or PyTorch is missing in target/python; make setup installs it".into(),
            ));
        }
        // No links, beside which a virtual environment would not be found.
        self.script(PYTHON, &format!("#!/bin/sh\nexec '{python}' \"$@\"\n"));
        self.script("torchrun", &format!("#!/bin/sh\nexec '{python}' -m torch.distributed.run \"$@\"\n"));
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("walk")
    }

    fn programs(&self) -> PathBuf {
        self.root.path().join("bin")
    }

    fn script(&self, name: &str, text: &str) {
        executable(&self.programs().join(name), text);
    }

    /// Runs each command by what `bash` starts.
    fn each(&self, commands: &[Command], bash: impl Fn() -> Process) -> Vec<Printed> {
        let perform = |command: &Command| {
            let mut bash = bash();
            bash.args(["-o", "pipefail", "-c", &format!("exec 2>&1\n{}", command.text)]);
            self.dress(&mut bash);
            let ended = run(bash, LIMIT);
            let text = ended.stdout.lines().filter(|line| !line.contains(CHATTER)).map(|line| format!("{line}\n"));
            Printed { text: text.collect(), status: ended.status.code() }
        };
        commands.iter().map(perform).collect()
    }

    /// The environment of somebody who has just logged in, whatever the tests run in.
    fn dress(&self, bash: &mut Process) {
        let path = std::env::var("PATH").unwrap_or_default();
        let of_the_lab: Vec<OsString> = bash.get_envs().map(|(name, _)| name.to_owned()).collect();
        for (name, _) in std::env::vars_os() {
            let speaks = SPEAKING.iter().any(|start| name.to_string_lossy().starts_with(start));
            if speaks && !of_the_lab.contains(&name) {
                bash.env_remove(name);
            }
        }
        bash.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.programs().display()));
        bash.env("HOME", self.folder()).env("LC_ALL", "C.UTF-8").current_dir(self.folder());
    }

    /// Runs the commands in the RDMA guest, in a folder of the same name.
    fn in_guest(&self, commands: &[Command]) -> Result<Vec<Printed>, Skip> {
        let folder = self.folder();
        let entries = std::fs::read_dir(&folder).expect("the folder can be read");
        let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let files: Vec<&Path> = [Path::new(BUSBW)].into_iter().chain(files.iter().map(PathBuf::as_path)).collect();
        let bin = Path::new(BUSBW).parent().expect("a program lies in a folder");
        let enter = format!(
            "mkdir -p '{folder}' && cd '{folder}' && PATH='{}':$PATH",
            bin.display(),
            folder = folder.display()
        );
        let lines: Vec<String> =
            commands.iter().map(|command| format!("exec 2>&1\n{enter}\n{}", command.text)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let steps = Guest::run_all(&files, &lines)?;
        Ok(steps.into_iter().map(|step| Printed { text: step.stdout, status: Some(step.status) }).collect())
    }
}

//! The command line that starts a job on other hosts: Open MPI's mpirun, MPICH's, or srun inside a Slurm allocation.

use crate::Lookup;
use crate::hosts::{Hosts, Slots};
use crate::launcher::MARK;
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that starts processes on other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Open MPI's mpirun, 4 or 5.
    OpenMpi,
    /// MPICH's mpirun (hydra).
    Mpich,
    Srun,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starter {
    pub tool: Tool,
    pub program: PathBuf,
}

/// Variables that are one process's own, or that only our local spawn sets.
const OF_ONE_PROCESS: &[&str] = &[
    "BUSBW_RANK",
    "BUSBW_SIZE",
    "BUSBW_LOCAL_RANK",
    "BUSBW_LOCAL_SIZE",
    "BUSBW_LISTENER",
    "BUSBW_HOST",
    "NCCL_HOSTID",
    MARK,
];

/// This program's file, to start ranks with.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::system("this program's own path", error))
}

/// The names of this process's variables that every rank should have: ours and NCCL's.
pub fn variables() -> Vec<String> {
    passed_on(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}

fn passed_on(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let wanted = |name: &String| {
        (name.starts_with("BUSBW_") || name.starts_with("NCCL_")) && !OF_ONE_PROCESS.contains(&name.as_str())
    };
    let mut names: Vec<String> = names.into_iter().filter(wanted).collect();
    names.sort_unstable();
    names
}

impl Starter {
    /// Finds how jobs are started here: srun inside a Slurm allocation, else the mpirun on PATH.
    pub fn find(look: Lookup) -> Result<Starter> {
        let path = look("PATH").unwrap_or_default();
        let on_path = |name: &str| {
            let directories = std::env::split_paths(&path);
            directories.map(|directory| directory.join(name)).find(|program| is_program(program))
        };
        if look("SLURM_JOB_ID").is_some()
            && let Some(program) = on_path("srun")
        {
            return Ok(Starter { tool: Tool::Srun, program });
        }
        let mut unknown = Vec::new();
        for program in
            ["mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra", "mpiexec"].into_iter().filter_map(on_path)
        {
            match version(&program).as_deref().and_then(recognise) {
                Some(tool) => return Ok(Starter { tool, program }),
                None => unknown.push(program.display().to_string()),
            }
        }
        let seen = if unknown.is_empty() {
            "mpirun is not on PATH".to_owned()
        } else {
            format!("{} is neither Open MPI's nor MPICH's", unknown.join(", "))
        };
        Err(Error::Missing(format!(
            "--hosts: {seen}: install Open MPI (Debian: openmpi-bin) or MPICH, add it to PATH, or start busbw with your own launcher"
        )))
    }

    /// The command line that runs `command` (a program and its arguments) on `hosts`, with the variables named in
    /// `variables`.
    pub fn command_line(&self, hosts: &Hosts, variables: &[String], command: &[String]) -> Vec<String> {
        let mut words = vec![self.program.display().to_string()];
        words.extend(match self.tool {
            Tool::OpenMpi => open_mpi(hosts, variables),
            Tool::Mpich => mpich(hosts, variables),
            Tool::Srun => srun(hosts),
        });
        words.extend_from_slice(command);
        words
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Ranks follow each other on a host, and are not bound: busbw's threads share the cores themselves.
fn open_mpi(hosts: &Hosts, variables: &[String]) -> Vec<String> {
    let (count, list) = (hosts.ranks().to_string(), hosts.to_string());
    let mut line = words(["-np", &count, "--host", &list, "--map-by", "slot", "--bind-to", "none"]);
    if nix::unistd::geteuid().is_root() {
        line.push("--allow-run-as-root".into());
    }
    line.extend(variables.iter().flat_map(|name| words(["-x", name])));
    line
}

fn mpich(hosts: &Hosts, variables: &[String]) -> Vec<String> {
    let mut line = words(["-n", &hosts.ranks().to_string(), "-hosts", &hosts.to_string()]);
    if !variables.is_empty() {
        line.extend(words(["-genvlist", &variables.join(",")]));
    }
    line
}

fn srun(hosts: &Hosts) -> Vec<String> {
    let slots = hosts.slots();
    let mut line = vec![format!("--nodes={}", slots.len()), format!("--ntasks={}", hosts.ranks())];
    let per_node = slots.first().map_or(1, |first| first.ranks);
    if slots.iter().all(|slots| slots.ranks == per_node) {
        line.push(format!("--ntasks-per-node={per_node}"));
        line.push(format!("--nodelist={}", join(slots.iter().map(|slots| &slots.host))));
    } else {
        // With this distribution, a node is named once for each of its tasks.
        line.push("--distribution=arbitrary".into());
        let tasks = slots.iter().flat_map(|Slots { host, ranks }| std::iter::repeat_n(host, *ranks));
        line.push(format!("--nodelist={}", join(tasks)));
    }
    line.extend(words(["--cpu-bind=none", "--kill-on-bad-exit=1", "--export=ALL"]));
    line
}

fn join<'a>(hosts: impl Iterator<Item = &'a String>) -> String {
    hosts.map(String::as_str).collect::<Vec<_>>().join(",")
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn version(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Whose mpirun it is, by what it says to `--version`.
fn recognise(version: &str) -> Option<Tool> {
    if ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| version.contains(name)) {
        return Some(Tool::OpenMpi);
    }
    // Intel's and MVAPICH's hydra are like it, but Intel's does not take HOST:RANKS.
    version.contains("HYDRA build details").then_some(Tool::Mpich)
}

/// The words as a shell takes them.
pub fn shell_quoted(words: &[String]) -> String {
    let plain =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,=+@%^".contains(c));
    let quoted = |word: &String| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(tool: Tool, program: &str, hosts: &str, variables: &[&str]) -> String {
        let starter = Starter { tool, program: program.into() };
        let variables: Vec<String> = variables.iter().map(|&name| name.to_owned()).collect();
        let command = words(["/opt/busbw", "bench", "all_reduce", "-e", "1G"]);
        let words = starter.command_line(&hosts.parse().unwrap(), &variables, &command);
        shell_quoted(&words).replace(" --allow-run-as-root", "")
    }

    #[test]
    fn command_lines() {
        let job = "/opt/busbw bench all_reduce -e 1G";
        assert_eq!(
            line(Tool::OpenMpi, "mpirun", "a:8,b:8", &["NCCL_ALGO", "NCCL_DEBUG"]),
            format!("mpirun -np 16 --host a:8,b:8 --map-by slot --bind-to none -x NCCL_ALGO -x NCCL_DEBUG {job}")
        );
        assert_eq!(
            line(Tool::Mpich, "/usr/bin/mpirun.mpich", "a:2,b", &["NCCL_ALGO", "NCCL_DEBUG"]),
            format!("/usr/bin/mpirun.mpich -n 3 -hosts a:2,b:1 -genvlist NCCL_ALGO,NCCL_DEBUG {job}")
        );
        assert_eq!(
            line(Tool::Srun, "srun", "a:8,b:8", &[]),
            format!(
                "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --nodelist=a,b --cpu-bind=none --kill-on-bad-exit=1 --export=ALL {job}"
            )
        );
        assert_eq!(
            line(Tool::Srun, "srun", "a:2,b:1", &[]),
            format!(
                "srun --nodes=2 --ntasks=3 --distribution=arbitrary --nodelist=a,a,b --cpu-bind=none --kill-on-bad-exit=1 --export=ALL {job}"
            )
        );
    }

    #[test]
    fn whose_mpirun_it_is() {
        for (version, tool) in [
            (
                "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
                Some(Tool::OpenMpi),
            ),
            ("mpirun (Open MPI) 5.0.3\n\nReport bugs to https://www.open-mpi.org/community/help/", Some(Tool::OpenMpi)),
            ("HYDRA build details:\n    Version:                                 4.0.2", Some(Tool::Mpich)),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230306", None),
            ("", None),
        ] {
            assert_eq!(recognise(version), tool, "{version}");
        }
    }

    #[test]
    fn variables_that_every_rank_should_have() {
        let names = ["PATH", "NCCL_DEBUG", "BUSBW_TOKEN", "BUSBW_RANK", "NCCL_ALGO", "MY_NCCL_ALGO"];
        assert_eq!(passed_on(names.map(str::to_owned)), ["BUSBW_TOKEN", "NCCL_ALGO", "NCCL_DEBUG"]);
    }

    #[test]
    fn without_any_mpirun_it_is_said() {
        let error = Starter::find(&|_| None).unwrap_err().to_string();
        assert!(error.starts_with("--hosts: mpirun is not on PATH: install Open MPI"), "{error}");
    }

    proptest! {
        #[test]
        fn a_shell_reads_back_what_was_quoted(words in prop::collection::vec("[ -~\u{e9}\n]{0,12}", 1..4)) {
            let script = format!("printf '%s\\0' {}", shell_quoted(&words));
            let shell = Command::new("sh").arg("-c").arg(script).output().unwrap();
            let expected: String = words.iter().map(|word| format!("{word}\0")).collect();
            prop_assert_eq!(String::from_utf8(shell.stdout).unwrap(), expected);
        }
    }
}

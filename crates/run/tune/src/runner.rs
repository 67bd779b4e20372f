//! Running a trial on this machine: the command as a process group with a time limit.

use crate::space::Setting;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getppid, setpgid};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a command that is told to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The command of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Program and arguments. `{NAME}` in them stands for a variable's value.
    pub words: Vec<String>,
    pub limit: Duration,
}

/// What starts a command's processes on the hosts of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's, or MPICH's: variables are named on its command line.
    Mpirun,
    /// Slurm's, which hands on the whole environment.
    Srun,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// By itself, without error.
    Well,
    Badly(String),
    TimedOut,
    Interrupted,
}

/// Where output goes in a trial's folder.
pub const LOG: &str = "output.log";

impl Workload {
    /// Runs the command under a setting, its output going to a file of `folder`. `stop` is asked all the while whether to end.
    /// Returns how it ended, and the wall time.
    pub fn run(&self, setting: &Setting, folder: &Path, stop: &dyn Fn() -> bool) -> io::Result<(Ended, Duration)> {
        fs::create_dir_all(folder)?;
        let log = File::create(folder.join(LOG))?;
        let began = Instant::now();
        let child = match self.command(setting, log)?.spawn() {
            Ok(child) => child,
            Err(error) => return Ok((Ended::Badly(format!("{}: {error}", self.words[0])), began.elapsed())),
        };
        let mut group = Group::guarded(child);
        loop {
            if let Some(status) = group.child.try_wait()? {
                return Ok((judge(status), began.elapsed()));
            }
            if began.elapsed() >= self.limit {
                group.end();
                return Ok((Ended::TimedOut, self.limit));
            }
            if stop() {
                group.end();
                return Ok((Ended::Interrupted, began.elapsed()));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn command(&self, setting: &Setting, log: File) -> io::Result<Command> {
        let mut words = self.words_for(setting).into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log).process_group(0);
        command.envs(setting.assignments.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// What of the command starts processes on the hosts of a job; none where the command does not.
    pub fn launcher(&self) -> Option<Launcher> {
        let srun = self.words.first().filter(|word| word.rsplit('/').next() == Some("srun"));
        let mpirun = self.words.iter().find(|word| is_mpirun(word));
        srun.map(|_| Launcher::Srun).or(mpirun.map(|_| Launcher::Mpirun))
    }

    /// The hosts that the command names: for mpirun or srun, or for busbw, which starts them.
    pub fn hosts(&self) -> Option<&str> {
        const FLAGS: [&str; 6] = ["-H", "-host", "--host", "-hosts", "--hosts", "--nodelist"];
        self.words.iter().zip(self.words.iter().skip(1)).find_map(|(word, next)| match word.split_once('=') {
            Some((flag, hosts)) if FLAGS.contains(&flag) => Some(hosts),
            None if FLAGS.contains(&word.as_str()) => Some(next),
            _ => None,
        })
    }

    /// The words of the command under a setting: Open MPI's mpirun hands on only variables that are named, MPICH's all.
    pub fn words_for(&self, setting: &Setting) -> Vec<String> {
        let fill = |word: &String| {
            setting
                .assignments
                .iter()
                .fold(word.clone(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
        };
        let words: Vec<String> = self.words.iter().map(fill).collect();
        let Some(at) = words.iter().position(|word| is_mpirun(word)).filter(|_| !setting.is_default()) else {
            return words;
        };
        let flags = setting.assignments.iter().flat_map(|(name, value)| mpirun_flag(&words[at], name, value));
        let (before, after) = words.split_at(at + 1);
        before.iter().cloned().chain(flags).chain(after.iter().cloned()).collect()
    }
}

/// Whether a word names an mpirun, by whatever path.
pub(crate) fn is_mpirun(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    ["mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.hydra"].contains(&name)
}

/// Both take a variable by name, and both know these flags under the plain name.
fn mpirun_flag(launcher: &str, name: &str, value: &str) -> Vec<String> {
    if launcher.contains("mpich") || launcher.contains("hydra") {
        vec!["-genv".into(), name.into(), value.into()]
    } else {
        vec!["-x".into(), format!("{name}={value}")]
    }
}

fn judge(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ended::Well,
        (Some(code), _) => Ended::Badly(format!("exit status {code}")),
        (None, Some(signal)) => Ended::Badly(format!("killed by signal {signal}")),
        (None, None) => Ended::Badly("it ended in an unknown way".into()),
    }
}

/// A command with all that it started in its process group; nothing of it is left when this is dropped, nor when this process is
/// killed: a guard, a process of the group that outlives this one by a moment, then ends the group.
struct Group {
    child: Child,
    guard: Option<Pid>,
}

impl Group {
    fn guarded(child: Child) -> Self {
        let (parent, group) = (Pid::this(), Pid::from_raw(child.id().cast_signed()));
        // SAFETY: the child of a process with threads may only make system calls, and `stand_guard` does nothing else.
        let guard = match unsafe { fork() } {
            Ok(ForkResult::Child) => stand_guard(parent, group),
            Ok(ForkResult::Parent { child }) => Some(child),
            // The command runs all the same; only kill -9 of busbw would leave it.
            Err(_) => None,
        };
        Group { child, guard }
    }

    /// Asks it to end, so that a launcher can clean up on its hosts, and kills it if it does not.
    fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        let since = Instant::now();
        while since.elapsed() < GRACE && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn signal(&self, signal: Signal) {
        // A process group that has already ended is fine.
        let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), signal);
    }
}

/// Waits in the group for the end of the process that it was forked from, and takes the group along. What asks the group to end is
/// not for the guard: only SIGKILL ends it.
fn stand_guard(parent: Pid, group: Pid) -> ! {
    let at_its_end = SigSet::from(Signal::SIGUSR1);
    let stands = SigSet::all().thread_set_mask().and_then(|()| setpgid(Pid::from_raw(0), group));
    if stands.and_then(|()| set_pdeathsig(Signal::SIGUSR1)).is_ok() {
        while getppid() == parent {
            let _ = at_its_end.wait();
        }
        let _ = killpg(group, Signal::SIGKILL);
    }
    // SAFETY: ends this process at once, and runs nothing of what it was forked from.
    unsafe { nix::libc::_exit(0) }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(guard) = self.guard {
            // It may not have joined the group yet.
            let _ = kill(guard, Signal::SIGKILL);
        }
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
        let _ = self.guard.map(|guard| waitpid(guard, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting { assignments: vec![("A".into(), "1".into())] }
    }

    fn run(script: &str, limit: Duration) -> (Ended, String) {
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload { words: ["sh", "-c", script].map(String::from).to_vec(), limit };
        let (ended, _) = workload.run(&setting(), folder.path(), &|| false).unwrap();
        (ended, fs::read_to_string(folder.path().join(LOG)).unwrap())
    }

    #[test]
    fn commands_end_well_badly_or_not_in_time() {
        let long = Duration::from_secs(60);
        assert_eq!(run("echo $A; echo b >&2", long), (Ended::Well, "1\nb\n".into()));
        assert_eq!(run("exit 3", long).0, Ended::Badly("exit status 3".into()));
        assert_eq!(run("kill -9 $$", long).0, Ended::Badly("killed by signal 9".into()));
        assert_eq!(run("sleep 600", Duration::from_millis(50)).0, Ended::TimedOut);
    }

    #[test]
    fn hosts_that_a_command_names() {
        for (command, hosts) in [
            ("mpirun -np 2 -H a:1,b:1 all_reduce_perf -b 8", Some("a:1,b:1")),
            ("busbw bench all_reduce --hosts=a,b -b 8", Some("a,b")),
            ("all_reduce_perf -b 8", None),
        ] {
            let words = shlex::split(command).unwrap();
            assert_eq!(Workload { words, limit: Duration::ZERO }.hosts(), hosts, "{command}");
        }
    }

    #[test]
    fn launchers_are_told_the_variables() {
        let words = |text: &str| {
            let workload = Workload { words: shlex::split(text).unwrap(), limit: Duration::ZERO };
            workload.words_for(&setting()).join(" ")
        };
        assert_eq!(words("mpirun -np 2 train"), "mpirun -x A=1 -np 2 train");
        assert_eq!(words("/opt/bin/mpirun.mpich -n 2 train"), "/opt/bin/mpirun.mpich -genv A 1 -n 2 train");
        assert_eq!(words("train --threads {A}"), "train --threads 1");
    }
}

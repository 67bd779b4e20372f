//! Asks a program: a fixed vector of arguments, a limit of time, a limit of what it may say. Never a shell.

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// More than this of what a program says is not kept.
const MOST_SAID: u64 = 1 << 30;
/// How long a program that was asked to end may take before it is killed.
const AFTER_ASKING: Duration = Duration::from_secs(3);

/// A program to ask.
pub struct Program {
    command: Command,
    limit: Duration,
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; none when it was ended because its time was over.
    pub status: Option<ExitStatus>,
    /// What it wrote on standard output.
    pub output: Vec<u8>,
    /// What it wrote on standard error.
    pub errors: Vec<u8>,
}

impl Ended {
    /// Whether it ended by itself, and well.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

impl Program {
    /// A program and its arguments; it may take as long as `limit`.
    pub fn new<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Program { command, limit }
    }

    /// Where a program is, by the PATH.
    pub fn find(name: &str) -> Option<PathBuf> {
        let path: OsString = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
    }

    /// A variable that it gets beside this process's own.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it in a process group of its own. It is asked to end when this thread ends, too: a Ctrl-C at the terminal does
    /// not reach its group.
    fn spawn(&mut self) -> io::Result<Child> {
        // SAFETY: between fork and exec, this makes a system call; it allocates nothing and takes no lock.
        unsafe { self.command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGTERM)?)) };
        self.command.process_group(0).spawn()
    }

    /// Starts it, for what it writes to be read as it comes; it may take any time.
    pub fn start(mut self) -> io::Result<Started> {
        self.spawn().map(Started)
    }

    /// Runs it to its end, or to the end of its time: then it is ended, with all that it started in its process group.
    pub fn run(mut self) -> io::Result<Ended> {
        let deadline = Instant::now() + self.limit;
        let mut child = self.spawn()?;
        let output = child.stdout.take().map(collect);
        let errors = child.stderr.take().map(collect);
        let (mut said, mut in_time) = ([Vec::new(), Vec::new()], true);
        for (pipe, said) in [output, errors].into_iter().flatten().zip(&mut said) {
            match until(&pipe, deadline) {
                Ok(bytes) => *said = bytes,
                Err(_) => {
                    in_time = false;
                    end(&child);
                    // What it has said up to its end.
                    *said = until(&pipe, Instant::now() + AFTER_ASKING).unwrap_or_default();
                }
            }
        }
        let status = in_time.then(|| wait_until(&mut child, deadline)).flatten();
        if status.is_none() {
            kill(&mut child)?;
        }
        let [output, errors] = said;
        Ok(Ended { status, output, errors })
    }
}

/// A program that goes on. Ended when dropped, with all that it started in its process group.
#[derive(Debug)]
pub struct Started(Child);

impl Started {
    /// What it writes on standard output and on standard error. None where they were taken before.
    pub fn outputs(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        self.0.stdout.take().zip(self.0.stderr.take())
    }

    /// Asks it to end, without waiting.
    pub fn end(&self) {
        end(&self.0);
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill(&mut self.0);
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Reads a pipe to its end in a thread of its own.
fn collect(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (done, collected) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // An error ends the reading as the pipe's end does.
        let _ = pipe.take(MOST_SAID).read_to_end(&mut bytes);
        // Nobody waits for a pipe that some descendant of an ended program still holds.
        let _ = done.send(bytes);
    });
    collected
}

fn until(pipe: &Receiver<Vec<u8>>, deadline: Instant) -> Result<Vec<u8>, RecvTimeoutError> {
    pipe.recv_timeout(deadline.saturating_duration_since(Instant::now()))
}

/// The status of a child that has closed its outputs; few go on after that.
fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            _ => return None,
        }
    }
}

/// Asks a child's process group to end, so that a launcher ends what it started elsewhere. The child was not waited for, so
/// its number is still its own.
fn end(child: &Child) {
    // It may have ended by itself.
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
}

fn kill(child: &mut Child) -> io::Result<()> {
    end(child);
    if wait_until(child, Instant::now() + AFTER_ASKING).is_none() {
        let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        child.wait()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_a_program_says_is_kept() {
        let ended = Program::new("sh", ["-c", "echo out; echo err >&2; exit 3"], LONG).run().expect("a shell");
        assert_eq!((&ended.output[..], &ended.errors[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
        assert!(!ended.succeeded());
        assert!(Program::new("/no/such/program", [""; 0], LONG).run().is_err());
    }

    /// Ends far sooner than the program would, whether it listens to SIGTERM or not, and whether it has closed its outputs.
    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        for script in
            ["echo begun; sleep 1000", "trap '' TERM; echo begun; sleep 1000", "echo begun; exec >&- 2>&-; sleep 1000"]
        {
            let ended = Program::new("sh", ["-c", script], Duration::from_secs(1)).run().expect("a shell");
            assert!(ended.status.is_none(), "{script}: {ended:?}");
        }
    }
}

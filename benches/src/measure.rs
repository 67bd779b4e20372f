//! One run of one command: wall time, CPU time, peak memory. Linux only, as the private memory is read from `/proc`.

use crate::machine::kilobytes;
use crate::program::{self, FileError, Outcome};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often private memory is looked at: a peak that is shorter may be missed.
const MEMORY_PERIOD: Duration = Duration::from_millis(5);
/// How much of what a failing command says is repeated.
const REPEATED_LINES: usize = 5;

/// A command to measure.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The program's name or path.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Exit statuses that are answers and no failure: those of `busbw explain` tell its verdict.
    pub answers: &'static [i32],
}

/// What one run took.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    /// From before the process starts until after it ended.
    pub wall_s: f64,
    /// User and system time of all its threads.
    pub cpu_s: f64,
    /// The most memory resident at one time, mapped files included (`ru_maxrss`). Never below this program's own.
    pub peak_rss_bytes: u64,
    /// The most anonymous memory seen: heap and stacks, without mapped files. None when the run was too short to look.
    pub peak_private_bytes: Option<u64>,
    /// The exit status.
    pub status: i32,
}

impl Tool {
    /// Runs the command once. Its output goes to `output.out` and `output.err` in `scratch`, not to /dev/null, which
    /// some programs recognise.
    pub fn run(&self, scratch: &Path) -> Outcome<Sample> {
        let create = |path: &Path| File::create(path).map_err(FileError::at(path));
        let (out, err) = (output_path(scratch), scratch.join("output.err"));
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);

        let program = || self.program.display().to_string();
        let started = Instant::now();
        let child = command.spawn().map_err(|error| format!("{} cannot be started: {error}", program()))?;
        let pid = child.id();
        let (ended, watching) = channel::<()>();
        let (waited, peak_private_bytes) = std::thread::scope(|scope| {
            let watcher = scope.spawn(move || watch_private_memory(pid, &watching));
            let waited = wait_for_end(pid).map(|()| started.elapsed());
            drop(ended);
            (waited, watcher.join().unwrap_or(None))
        });
        let wait_error = |error| format!("waiting for {} failed: {error}", program());
        let wall = waited.map_err(wait_error)?;
        let (status, usage) = reap(pid).map_err(wait_error)?;
        let Some(code) = status.code().filter(|code| self.answers.contains(code)) else {
            return Err(program::failed(&self.line(), &format!("ended with {status}"), &beginning(&err)));
        };
        Ok(Sample {
            wall_s: wall.as_secs_f64(),
            cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            // Kilobytes on Linux, see getrusage(2).
            peak_rss_bytes: usage.ru_maxrss.unsigned_abs() * 1024,
            peak_private_bytes,
            status: code,
        })
    }

    fn line(&self) -> String {
        let arguments = self.arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
        [self.program.display().to_string()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
    }
}

/// Where [`Tool::run`] leaves the standard output of the last run.
pub fn output_path(scratch: &Path) -> PathBuf {
    scratch.join("output.out")
}

/// The memory that this program has had resident: the floor of [`Sample::peak_rss_bytes`], because a process carries
/// the peak of the one that started it.
pub fn own_peak_rss_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// Looks at the private memory of a process until `ended` is dropped.
fn watch_private_memory(pid: u32, ended: &Receiver<()>) -> Option<u64> {
    let path = format!("/proc/{pid}/status");
    let mut peak = None;
    loop {
        let now = fs::read_to_string(&path).ok().and_then(|text| kilobytes(&text, "RssAnon"));
        peak = peak.max(now);
        if ended.recv_timeout(MEMORY_PERIOD) != Err(RecvTimeoutError::Timeout) {
            return peak;
        }
    }
}

/// Waits until the process ended and leaves it a zombie: its number is not given to another while memory is watched.
fn wait_for_end(pid: u32) -> io::Result<()> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is a siginfo_t that lives through the call; waitid writes nothing else.
        let result = unsafe { libc::waitid(libc::P_PID, pid, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes the exit status and the resource usage of a process that ended.
fn reap(pid: u32) -> io::Result<(ExitStatus, libc::rusage)> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to values of the types that wait4 writes, and live through the call.
        if unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) } == pid {
            // SAFETY: wait4 succeeded and filled it; all zeros, as it started, is a valid rusage too.
            return Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

fn beginning(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().take(REPEATED_LINES).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    fn shell(script: &str, answers: &'static [i32]) -> Tool {
        Tool { program: "sh".into(), arguments: vec!["-c".into(), script.into()], answers }
    }

    #[test]
    fn time_memory_and_output_are_those_of_the_command() {
        let scratch = tempfile::tempdir().unwrap();
        let sample = shell("x=$(head -c 20000000 /dev/zero | tr '\\0' a); sleep 0.1; echo ${#x}", &[0]);
        let sample = sample.run(scratch.path()).unwrap();
        assert!(sample.wall_s >= 0.1, "{sample:?}");
        assert!(sample.cpu_s > 0.0, "{sample:?}");
        assert!(sample.peak_rss_bytes > 20_000_000, "{sample:?}");
        assert!(sample.peak_private_bytes.unwrap() > 20_000_000, "{sample:?}");
        assert_eq!(fs::read_to_string(output_path(scratch.path())).unwrap(), "20000000\n");
    }

    #[test]
    fn findings_are_no_failure_but_anything_else_is() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(shell("exit 3", &[0, 3]).run(scratch.path()).unwrap().status, 3);
        let failed = shell("echo unreadable >&2; exit 2", &[0, 1, 3]).run(scratch.path()).unwrap_err().to_string();
        assert!(failed.contains("exit status: 2") && failed.contains("unreadable"), "{failed}");
        let killed = shell("kill -9 $$", &[0, 1]).run(scratch.path()).unwrap_err().to_string();
        assert!(killed.contains("signal: 9"), "{killed}");
        let tool = Tool { program: "/nowhere/busbw".into(), arguments: Vec::new(), answers: &[0] };
        assert!(tool.run(scratch.path()).unwrap_err().to_string().contains("cannot be started"));
    }
}

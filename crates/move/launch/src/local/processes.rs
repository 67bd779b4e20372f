//! Processes that this one has started and answers for: signals are passed on to them, and none outlives it.

use super::signals::Signals;
use crate::{Error, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Ranks that are still there this long after the first failed are asked to end (SIGTERM).
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
/// Processes that are still there this long after they were asked to end are killed.
const AFTER_ASKING: Duration = Duration::from_secs(3);

/// A process: a rank, or the launcher of ranks.
pub(crate) struct Process {
    pub child: Child,
    /// Whether it leads a process group, which then has its signals, too.
    pub leads: bool,
    /// 128 + signal, or the exit status.
    status: Option<i32>,
}

pub(crate) struct End {
    /// 128 + the signal that asked this process to end.
    pub interrupted: Option<i32>,
    /// Whether they had to be asked to end.
    pub asked: bool,
    /// 128 + signal if one was killed by a signal, else the status of the first that ended badly.
    pub status: i32,
}

impl Process {
    pub fn new(child: Child, leads: bool) -> Self {
        Process { child, leads, status: None }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // It may have ended in this moment; it is not reaped yet, so its number is still its own.
            let _ = kill(Pid::from_raw(if self.leads { -self.pid() } else { self.pid() }), signal);
        }
    }

    /// Looks whether it has ended; then ends what it left in its group, and reaps it.
    fn look(&mut self) -> std::io::Result<bool> {
        if self.status.is_some() {
            return Ok(false);
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if matches!(waitid(Id::Pid(Pid::from_raw(self.pid())), flags)?, WaitStatus::StillAlive) {
            return Ok(false);
        }
        self.signal(Signal::SIGKILL);
        let status = self.child.wait()?;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        self.status = Some(status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1));
        Ok(true)
    }

    /// Its status once it has ended: 128 + signal, or the exit status.
    pub fn ended(&mut self) -> std::io::Result<Option<i32>> {
        self.look()?;
        Ok(self.status)
    }
}

/// Kills those that are left.
pub(crate) fn kill_all(processes: &mut [Process]) {
    processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
    for process in processes.iter_mut().filter(|process| process.status.is_none()) {
        let _ = process.child.wait();
    }
}

/// What a child does to itself before it becomes the program: it has the signals that were not blocked before, keeps a
/// descriptor, and gets `at_our_end` when this process dies.
pub(crate) fn prepare(command: &mut Command, kept: Option<RawFd>, signals: &Signals, at_our_end: Signal) {
    let (parent, mask) = (std::process::id(), signals.before());
    let prepare = move || {
        nix::sys::prctl::set_pdeathsig(at_our_end)?;
        if std::os::unix::process::parent_id() != parent {
            // The parent ended before the line above could take effect.
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        mask.thread_set_mask()?;
        if let Some(fd) = kept {
            // SAFETY: a system call on a number; clears close-on-exec.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec, the closure makes system calls only; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Waits for all processes; passes signals on, and ends the others some time after one has failed, or once `overdue` says so.
pub(crate) fn attend(signals: &Signals, processes: &mut [Process], overdue: impl Fn() -> bool) -> Result<End> {
    let wait = |error| Error::system("wait for the ranks", error);
    let (mut first, mut killed, mut interrupted, mut asked) = (None, None, None, false);
    let (mut ask_at, mut kill_at): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        for process in processes.iter_mut() {
            if process.look().map_err(wait)? && process.status != Some(0) {
                first = first.or(process.status);
                let by_signal = process.status.is_some_and(|status| status > 128);
                // The others end of its death, and may be seen to have ended before it.
                if by_signal && kill_at.is_none() {
                    killed = killed.or(process.status);
                }
                ask_at = ask_at.or(Some(Instant::now() + AFTER_A_FAILURE));
            }
        }
        if processes.iter().all(|process| process.status.is_some()) {
            return Ok(End { interrupted, asked, status: killed.or(first).unwrap_or(0) });
        }
        let now = Instant::now();
        if ask_at.is_some_and(|at| now >= at) || (!asked && overdue()) {
            processes.iter().for_each(|process| process.signal(Signal::SIGTERM));
            // A stopped process would not see it.
            processes.iter().for_each(|process| process.signal(Signal::SIGCONT));
            (ask_at, kill_at, asked) = (None, kill_at.or(Some(now + AFTER_ASKING)), true);
        }
        if kill_at.is_some_and(|at| now >= at) {
            processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
        }
        let until = [ask_at, kill_at].into_iter().flatten().min();
        let patience = until.map_or(Duration::from_secs(1), |at| at.saturating_duration_since(now));
        if let Some(asked) =
            signals.wait(patience.clamp(Duration::from_millis(10), Duration::from_secs(1))).map_err(wait)?
        {
            // mpirun takes a second Ctrl-C for the wish to leave its ranks behind.
            let unheard = processes.iter().filter(|process| process.leads || !asked.at_a_terminal);
            unheard.for_each(|process| process.signal(asked.signal));
            interrupted = interrupted.or(Some(128 + asked.signal as i32));
            kill_at = kill_at.or(Some(now + AFTER_A_FAILURE));
        }
    }
}

//! Starts a job's ranks on this host, forwards what they print, and sees to it that none outlives it.

mod forward;
mod signals;

use crate::Lookup;
use crate::job_rank::JobRank;
use crate::{Error, Result};
use busbw_transport::Token;
use forward::Forwarder;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use signals::Signals;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ranks that are still there this long after the first failed are asked to end (SIGTERM).
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
/// Ranks that are still there this long after they were asked to end are killed.
const AFTER_ASKING: Duration = Duration::from_secs(3);

/// What to start.
#[derive(Debug, Clone)]
pub struct Local {
    pub np: usize,
    /// The program, usually our own.
    pub program: PathBuf,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Variables beside those that we set (BUSBW_RANK and its companions).
    pub environment: Vec<(String, String)>,
}

/// A rank's process.
struct Rank {
    child: Child,
    /// 128 + signal, or the exit status.
    status: Option<i32>,
}

impl Rank {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Signals the rank and what it started: each rank leads a process group.
    fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // It may have ended in this moment; it is not reaped yet, so its number is still its own.
            let _ = kill(Pid::from_raw(-self.pid().as_raw()), signal);
        }
    }

    /// Looks whether it has ended; then ends what it left behind, and reaps it.
    fn look(&mut self) -> std::io::Result<bool> {
        if self.status.is_some() {
            return Ok(false);
        }
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if matches!(waitid(Id::Pid(self.pid()), flags)?, WaitStatus::StillAlive) {
            return Ok(false);
        }
        self.signal(Signal::SIGKILL);
        let status = self.child.wait()?;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        self.status = Some(status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1));
        Ok(true)
    }
}

impl Local {
    /// Runs the ranks to their end. Gives 0, or the exit status of the rank that failed first: 128 + signal if one was killed
    /// by a signal (also that which asked this process to end), else that of the first that ended badly.
    ///
    /// Rank 0 has this process's standard output; the other ranks' lines are forwarded whole, as are all ranks' errors.
    ///
    /// # Errors
    /// When no rank can be started, or this process is itself one of several ranks.
    pub fn run(&self, look: Lookup) -> Result<i32> {
        if self.np == 0 {
            return Err(Error::Usage("--np 0 starts nothing: give at least 1".into()));
        }
        let job_rank = JobRank::detect(look)?;
        if job_rank.size > 1 {
            return Err(Error::Usage(format!(
                "--np {} would start as many ranks in each of the {} processes of {:?}: leave --np away, or start busbw once",
                self.np, job_rank.size, job_rank.launcher
            )));
        }
        let signals = Signals::block()?;
        let mut ranks = Vec::with_capacity(self.np);
        let mut forwarders = Vec::new();
        let started = self.start(&signals, &mut ranks, &mut forwarders);
        let ended = started.and_then(|()| attend(&signals, &mut ranks));
        // On any error: nobody is left behind.
        for rank in &mut ranks {
            rank.signal(Signal::SIGKILL);
            if rank.status.is_none() {
                let _ = rank.child.wait();
            }
        }
        forwarders.into_iter().for_each(Forwarder::finish);
        ended
    }

    fn start(&self, signals: &Signals, ranks: &mut Vec<Rank>, forwarders: &mut Vec<Forwarder>) -> Result<()> {
        let listen = |error| Error::system("listen on the loopback interface", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let token = Token::random()?;
        for rank in 0..self.np {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
            for (name, value) in [
                ("BUSBW_RANK", rank.to_string()),
                ("BUSBW_SIZE", self.np.to_string()),
                ("BUSBW_LOCAL_RANK", rank.to_string()),
                ("BUSBW_LOCAL_SIZE", self.np.to_string()),
                ("BUSBW_RENDEZVOUS", address.to_string()),
                ("BUSBW_TOKEN", token.to_string()),
            ] {
                command.env(name, value);
            }
            let inherited = (rank == 0).then(|| listener.as_raw_fd());
            if let Some(fd) = inherited {
                command.env("BUSBW_LISTENER", fd.to_string());
            }
            command.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
            if rank > 0 {
                command.stdout(Stdio::piped());
            }
            prepare(&mut command, inherited, signals);
            let mut child =
                command.spawn().map_err(|e| Error::system(format!("start {}", self.program.display()), e))?;
            forwarders.extend(child.stdout.take().map(Forwarder::to_output));
            forwarders.extend(child.stderr.take().map(Forwarder::to_errors));
            ranks.push(Rank { child, status: None });
        }
        // Only rank 0 listens: if it dies, those who come are refused at once.
        Ok(())
    }
}

/// What the child does to itself before it becomes the program.
fn prepare(command: &mut Command, inherited: Option<RawFd>, signals: &Signals) {
    let (parent, mask) = (std::process::id(), signals.before());
    let prepare = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if std::os::unix::process::parent_id() != parent {
            // The parent ended before the line above could take effect.
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        mask.thread_set_mask()?;
        if let Some(fd) = inherited {
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

/// Waits for all ranks; passes signals on, and ends the others some time after one has failed.
fn attend(signals: &Signals, ranks: &mut [Rank]) -> Result<i32> {
    let wait = |error| Error::system("wait for the ranks", error);
    let (mut first, mut killed, mut interrupted) = (None, None, None);
    let (mut ask_at, mut kill_at): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        for rank in ranks.iter_mut() {
            if rank.look().map_err(wait)? && rank.status != Some(0) {
                first = first.or(rank.status);
                let by_signal = rank.status.is_some_and(|status| status > 128);
                // The others end of its death, and may be seen to have ended before it.
                if by_signal && kill_at.is_none() {
                    killed = killed.or(rank.status);
                }
                ask_at = ask_at.or(Some(Instant::now() + AFTER_A_FAILURE));
            }
        }
        if ranks.iter().all(|rank| rank.status.is_some()) {
            return Ok(interrupted.or(killed).or(first).unwrap_or(0));
        }
        let now = Instant::now();
        if ask_at.is_some_and(|at| now >= at) {
            ranks.iter().for_each(|rank| rank.signal(Signal::SIGTERM));
            // A stopped rank would not see it.
            ranks.iter().for_each(|rank| rank.signal(Signal::SIGCONT));
            (ask_at, kill_at) = (None, kill_at.or(Some(now + AFTER_ASKING)));
        }
        if kill_at.is_some_and(|at| now >= at) {
            ranks.iter().for_each(|rank| rank.signal(Signal::SIGKILL));
        }
        let until = [ask_at, kill_at].into_iter().flatten().min();
        let patience = until.map_or(Duration::from_secs(1), |at| at.saturating_duration_since(now));
        if let Some(signal) =
            signals.wait(patience.clamp(Duration::from_millis(10), Duration::from_secs(1))).map_err(wait)?
        {
            ranks.iter().for_each(|rank| rank.signal(signal));
            interrupted = interrupted.or(Some(128 + signal as i32));
            kill_at = kill_at.or(Some(now + AFTER_A_FAILURE));
        }
    }
}

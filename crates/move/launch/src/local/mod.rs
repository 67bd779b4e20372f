//! Starts a job's ranks on this host, forwards what they print, and sees to it that none outlives it.

mod capacity;
pub(crate) mod forward;
pub(crate) mod processes;
pub(crate) mod signals;

use crate::Lookup;
use crate::job_rank::JobRank;
use crate::{Error, Result};
use busbw_transport::Token;
use forward::Forwarder;
use nix::sys::signal::Signal;
use processes::{Process, attend, kill_all, prepare};
use signals::Signals;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

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
        capacity::check(self.np)?;
        let signals = Signals::block()?;
        let mut ranks = Vec::with_capacity(self.np);
        let mut forwarders = Vec::new();
        let ended = match self.start(&signals, &mut ranks) {
            // Nothing has been measured, and what ranks say of each other's end says nothing.
            Ok(Some(signal)) => Ok(128 + signal as i32),
            Ok(None) => {
                // Threads that were there before would make every fork slower: it copies the mappings of their stacks.
                forwarders.extend(ranks.iter_mut().flat_map(forward_from));
                attend(&signals, &mut ranks, || false).map(|end| end.interrupted.unwrap_or(end.status))
            }
            Err(error) => Err(error),
        };
        kill_all(&mut ranks);
        forwarders.into_iter().for_each(Forwarder::finish);
        ended
    }

    /// Starts the ranks, until a signal asks to end: that one.
    fn start(&self, signals: &Signals, ranks: &mut Vec<Process>) -> Result<Option<Signal>> {
        let listen = |error| Error::system("listen on the loopback interface", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let token = Token::random()?;
        for rank in 0..self.np {
            if let Some(asked) = signals.wait(Duration::ZERO).map_err(|e| Error::system("look at signals", e))? {
                return Ok(Some(asked.signal));
            }
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
            // Ranks do not outlive this process.
            prepare(&mut command, inherited, signals, Signal::SIGKILL);
            let child = command.spawn().map_err(|e| Error::system(format!("start {}", self.program.display()), e))?;
            ranks.push(Process::new(child, true));
        }
        // Only rank 0 listens: if it dies, those who come are refused at once.
        Ok(None)
    }
}

/// Passes on what a rank prints.
fn forward_from(rank: &mut Process) -> impl Iterator<Item = Forwarder> {
    let output = rank.child.stdout.take().map(Forwarder::to_output);
    output.into_iter().chain(rank.child.stderr.take().map(Forwarder::to_errors))
}

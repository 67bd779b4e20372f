//! How a command that runs with several ranks begins and ends: as a rank of a job, as ranks that it starts here itself, or on
//! hosts that are named.

use crate::Lookup;
use crate::command::{self, Starter, this_program};
use crate::hosts::Hosts;
use crate::launcher;
use crate::local::Local;
pub use crate::local::signals::heeded;
use crate::{Error, JobRank, Result};
use busbw_transport::Cancellation;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// How a command was called, as far as it matters for its ranks.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The hosts to start on: `a,b:2`.
    pub hosts: Option<String>,
    /// Fewer ranks than this on the hosts are refused.
    pub fewest: usize,
    /// Ranks to start on this host, where no launcher has started several already.
    pub np: Option<usize>,
    /// Whether the command line that starts the job on other hosts is only wanted as text.
    pub dry_run: bool,
    /// This program, to start ranks with.
    pub program: PathBuf,
    /// The arguments that it got, without its name.
    pub arguments: Vec<OsString>,
}

/// What a command has come to.
#[derive(Debug)]
pub enum Started<T> {
    /// This process is a rank: at first its [`JobRank`], in the end the answer of rank 0.
    Here(T),
    /// The command line that would have started the job.
    CommandLine(String),
    /// Nothing more to say: the exit status of a rank, or of the ranks that this process started.
    Ended(i32),
}

impl<T> Started<T> {
    /// Goes on with what a rank does.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Result<Started<U>>) -> Result<Started<U>> {
        match self {
            Started::Here(value) => next(value),
            Started::CommandLine(line) => Ok(Started::CommandLine(line)),
            Started::Ended(status) => Ok(Started::Ended(status)),
        }
    }
}

/// Has SIGINT, SIGTERM and SIGHUP, as far as they are heeded, cancel the run, so that it ends in order; a second one ends the
/// process. Called before any thread is started, for all of them must leave the signals to one.
pub fn cancel_on_signal(cancel: &Arc<Cancellation>) -> Result<()> {
    let awaited = heeded([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    awaited.thread_block().map_err(|error| Error::system("wait for signals", error.into()))?;
    let cancel = Arc::clone(cancel);
    std::thread::spawn(move || {
        while let Ok(signal) = awaited.wait() {
            if cancel.reason().is_some() {
                std::process::exit(128 + signal as i32);
            }
            cancel.trigger(format!("interrupted by {signal}"));
        }
    });
    Ok(())
}

impl Invocation {
    /// Of this program, as it was called, between two ends.
    pub fn of_two_ends(hosts: Option<String>, np: Option<usize>, dry_run: bool) -> Result<Self> {
        let (program, arguments) = (this_program()?, std::env::args_os().skip(1).collect());
        Ok(Invocation { hosts, fewest: 2, np, dry_run, program, arguments })
    }

    /// Begins. Ranks are started with the same arguments, and then find themselves to be ranks.
    pub fn begin(&self, look: Lookup) -> Result<Started<JobRank>> {
        let job_rank = JobRank::detect(look)?;
        // A launcher that has started one process may have started a shell: srun does, for the shell of an allocation.
        if self.dry_run && self.hosts.is_none() {
            return Err(Error::Usage(
                "--dry-run shows how ranks are started on other hosts; name them by --hosts".into(),
            ));
        }
        match (job_rank.size, &self.hosts, self.np) {
            (1, Some(hosts), _) => self.on_hosts(hosts, look),
            (1, None, Some(np)) if np > 1 => self.on_this_host(np, look).map(Started::Ended),
            _ => Ok(Started::Here(job_rank)),
        }
    }

    /// Starts `np` ranks here and waits for their end: the exit status.
    pub fn on_this_host(&self, np: usize, look: Lookup) -> Result<i32> {
        let (program, arguments) = (self.program.clone(), self.arguments.clone());
        Local { np, program, arguments, environment: Vec::new() }.run(look)
    }

    /// Builds the command line that runs this on other hosts; runs it, unless it is only to be shown.
    pub fn on_hosts(&self, list: &str, look: Lookup) -> Result<Started<JobRank>> {
        let hosts: Hosts = list.parse()?;
        if hosts.ranks() < self.fewest {
            return Err(Error::Usage(format!("{list}: this needs {} ends; name another host", self.fewest)));
        }
        let starter = Starter::find(look)?;
        let program = self.program.display().to_string();
        let arguments = self.arguments.iter().map(|word| word.to_string_lossy().into_owned());
        let command: Vec<String> = std::iter::once(program).chain(arguments).collect();
        let mut variables = command::variables();
        if self.dry_run {
            return Ok(Started::CommandLine(command::shell_quoted(
                &starter.command_line(&hosts, &variables, &command),
            )));
        }
        hosts.resolve()?;
        variables.push(launcher::MARK.into());
        launcher::run(&starter.command_line(&hosts, &variables, &command), list, hosts.ranks()).map(Started::Ended)
    }
}

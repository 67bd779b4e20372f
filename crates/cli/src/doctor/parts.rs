//! The parts of `busbw doctor` on several hosts: busbw itself, started on hosts that are named or by the ranks of a job.

use crate::output::Refusal;
use busbw_launch::attendant::{Attendant, Attended};
use busbw_launch::command::this_program;
use busbw_launch::hosts::Hosts;
use busbw_launch::relay::{Part, Relay};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// Where parts run.
pub enum Parts {
    /// On hosts that are named, each part by a launcher of its own.
    Hosts { attendant: Attendant, program: PathBuf, hosts: Hosts },
    /// Within a job.
    Job(Box<Relay>),
}

/// What is shown of a part while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Nothing,
    /// What it says on standard error: its progress.
    Progress,
    /// And the table that it prints.
    Table,
}

/// What a part has told.
pub struct Told {
    /// The command as a person would type it.
    pub line: String,
    pub output: String,
    pub errors: String,
    pub status: i32,
}

impl Told {
    /// The last line that busbw itself said.
    pub fn reason(&self) -> &str {
        let said = self.errors.lines().rev().find_map(|line| line.strip_prefix("busbw: "));
        said.unwrap_or("it said nothing")
    }
}

impl Parts {
    /// On these hosts.
    pub fn on(list: &str) -> Result<Self, Refusal> {
        let program = this_program()?;
        Ok(Parts::Hosts { hosts: list.parse()?, attendant: Attendant::begin()?, program })
    }

    /// In this job.
    pub fn of(relay: Relay) -> Self {
        Parts::Job(Box::new(relay))
    }

    /// The hosts, where they are named.
    pub fn hosts(&self) -> Option<&Hosts> {
        match self {
            Parts::Hosts { hosts, .. } => Some(hosts),
            Parts::Job(_) => None,
        }
    }

    /// Leaves all but these of the hosts that are named.
    pub fn keep(&mut self, stays: impl Fn(&str) -> bool) -> Result<(), Refusal> {
        if let Parts::Hosts { hosts, .. } = self {
            let left: Vec<&str> =
                hosts.slots().iter().map(|slots| slots.host.as_str()).filter(|host| stays(host)).collect();
            *hosts = left.join(",").parse()?;
        }
        Ok(())
    }

    /// Runs a part to its end. A signal that asks to end reaches what it runs, and ends all.
    pub fn run(&mut self, part: Part, shown: Shown) -> Result<Told, Refusal> {
        let (output, errors) = (Arc::default(), Arc::default());
        let out = kept(&output, shown == Shown::Table, io::stdout());
        let err = kept(&errors, shown != Shown::Nothing, io::stderr());
        let mut words = part.words.clone();
        let ended = match self {
            Parts::Job(relay) => relay.order(&part, out, err)?,
            Parts::Hosts { attendant, program, hosts } => {
                words.extend(["--hosts".into(), list(hosts, part.per_host)]);
                let mut command = Command::new(program);
                command.args(&words).envs(part.environment);
                attendant.run(command, None, out, err)?
            }
        };
        let Attended { status, interrupted } = ended;
        if let Some(status) = interrupted {
            let message = "interrupted: what ran on the hosts was ended".to_owned();
            return Err(Refusal { message, status: u8::try_from(status).unwrap_or(1) });
        }
        Ok(Told { line: format!("busbw {}", words.join(" ")), output: text(&output), errors: text(&errors), status })
    }

    /// Nothing more runs.
    pub fn end(self) -> Result<(), Refusal> {
        match self {
            Parts::Job(relay) => Ok(relay.end()?),
            Parts::Hosts { .. } => Ok(()),
        }
    }
}

fn list(hosts: &Hosts, ranks: usize) -> String {
    hosts.slots().iter().map(|slots| format!("{}:{ranks}", slots.host)).collect::<Vec<_>>().join(",")
}

type Lines = Arc<Mutex<Vec<u8>>>;

/// Takes lines into `lines`, and shows them, but for those of NCCL's log.
fn kept(lines: &Lines, shown: bool, mut screen: impl Write + Send + 'static) -> impl FnMut(&[u8]) + Send + 'static {
    const OF_NCCL: &[u8] = b" NCCL ";
    let lines = Arc::clone(lines);
    move |line| {
        lines.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(line);
        if shown && !line.windows(OF_NCCL.len()).any(|part| part == OF_NCCL) {
            // If the terminal is closed, the part still runs to its end, and the report is written.
            let _ = screen.write_all(line).and_then(|()| screen.flush());
        }
    }
}

fn text(lines: &Lines) -> String {
    String::from_utf8_lossy(&lines.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}

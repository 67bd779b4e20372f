//! Runs commands one after the other as parts of this one: their lines are handed over, signals are passed on to them, and none
//! outlives this process, nor what a launcher of theirs leaves behind.

use crate::launcher::{become_subreaper, end_orphans};
use crate::local::forward::Forwarder;
use crate::local::processes::{Process, attend, prepare};
use crate::local::signals::Signals;
use crate::{Error, Result};
use nix::sys::signal::Signal;
use std::os::fd::RawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Waits for what it runs, with the signals that ask to end kept for it.
pub struct Attendant(Signals);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attended {
    /// Its exit status; 128 + signal if one killed it.
    pub status: i32,
    /// 128 + the signal that asked this process to end meanwhile.
    pub interrupted: Option<i32>,
}

impl Attendant {
    /// Begins. Called before any thread is started, for all of them must leave the signals to this one.
    pub fn begin() -> Result<Self> {
        become_subreaper()?;
        Signals::block().map(Attendant)
    }

    /// Runs a command to its end, with descriptor `kept` open if one is given. It stays in this process's group: so ssh can ask for
    /// a password, and Ctrl-C reaches it. Each line goes to `output`, or to `errors`.
    pub fn run(
        &self,
        mut command: Command,
        kept: Option<RawFd>,
        output: impl FnMut(&[u8]) + Send + 'static,
        errors: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Attended> {
        let program = command.get_program().display().to_string();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        prepare(&mut command, kept, &self.0, Signal::SIGTERM);
        let mut child = command.spawn().map_err(|error| Error::system(format!("start {program}"), error))?;
        let output = child.stdout.take().map(|pipe| Forwarder::to(pipe, output));
        let errors = child.stderr.take().map(|pipe| Forwarder::to(pipe, errors));
        let end = attend(&self.0, &mut [Process::new(child, false)], || false)?;
        end_orphans();
        [output, errors].into_iter().flatten().for_each(Forwarder::finish);
        Ok(Attended { status: end.status, interrupted: end.interrupted })
    }
}

/// A job that was started for a user: what it prints passes through as it comes, and it is nobody else's to end.
pub struct Wrapped<'a> {
    signals: &'a Signals,
    process: Process,
    copies: Vec<Forwarder>,
    interrupted: Option<i32>,
}

/// A stream of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Output,
    Errors,
}

impl Attendant {
    /// Starts a job in this process's group, with this process's input. What it prints is passed on and handed to `take`, byte by byte
    /// as it comes: progress bars are no lines.
    pub fn wrap(
        &self,
        mut command: Command,
        take: impl Fn(Stream, &[u8]) + Clone + Send + 'static,
    ) -> Result<Wrapped<'_>> {
        let program = command.get_program().display().to_string();
        command.stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::piped());
        prepare(&mut command, None, &self.0, Signal::SIGTERM);
        let mut child = command.spawn().map_err(|error| Error::system(format!("start {program}"), error))?;
        let taken = take.clone();
        let output = child
            .stdout
            .take()
            .map(|pipe| Forwarder::raw(pipe, std::io::stdout(), move |bytes| taken(Stream::Output, bytes)));
        let errors = child
            .stderr
            .take()
            .map(|pipe| Forwarder::raw(pipe, std::io::stderr(), move |bytes| take(Stream::Errors, bytes)));
        let copies = [output, errors].into_iter().flatten().collect();
        Ok(Wrapped { signals: &self.0, process: Process::new(child, false), copies, interrupted: None })
    }
}

impl Wrapped<'_> {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Waits, at most until the job ends; passes signals on, and leaves it to the job what it makes of them: it may save before it
    /// ends. Its exit status once it has ended.
    pub fn wait(&mut self, time: Duration) -> Result<Option<i32>> {
        let failed = |error| Error::system("wait for the job", error);
        if let Some(status) = self.process.ended().map_err(failed)? {
            return Ok(Some(status));
        }
        if let Some(asked) = self.signals.wait(time).map_err(failed)? {
            // Ctrl-C has reached the job as well: it is in this process's group.
            if !asked.at_a_terminal {
                self.process.signal(asked.signal);
            }
            self.interrupted = self.interrupted.or(Some(128 + asked.signal as i32));
        }
        self.process.ended().map_err(failed)
    }

    /// Whether somebody asked this process, and with it the job, to end.
    pub fn interrupted(&self) -> Option<i32> {
        self.interrupted
    }

    /// Asks the job to end.
    pub fn ask_to_end(&self) {
        self.process.signal(Signal::SIGTERM);
        // What is stopped would not see it.
        self.process.signal(Signal::SIGCONT);
    }

    /// Ends what the job left behind, once it has ended, and copies what it printed last.
    pub fn finish(self) {
        end_orphans();
        self.copies.into_iter().for_each(Forwarder::finish);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn lines_and_status_are_handed_over_and_nothing_is_left() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let into = |mark: &'static str| {
            let said = Arc::clone(&said);
            move |line: &[u8]| said.lock().unwrap().push(format!("{mark}{}", String::from_utf8_lossy(line)))
        };
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; sleep 1000 & echo $! >&2; exit 3"]);
        let attended = Attendant::begin().unwrap().run(command, None, into("1 "), into("2 ")).unwrap();
        assert_eq!(attended, Attended { status: 3, interrupted: None });
        let said = said.lock().unwrap();
        let pid = said.iter().find_map(|line| line.strip_prefix("2 ")).unwrap().trim();
        assert!(said.contains(&"1 out\n".to_owned()) && !std::path::Path::new("/proc").join(pid).exists(), "{said:?}");
    }
}

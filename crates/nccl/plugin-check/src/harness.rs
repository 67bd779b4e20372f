//! A rank's side of a test: starts a subprocess that loads the plugin, has it run the steps that the other rank's runs too, and
//! notices when it crashes or hangs.

use crate::wire::{self, Ending, FromSubprocess, Outcome, Setup, Step, ToSubprocess};
use crate::{Error, Result};
use busbw_launch::ProcessGroup;
use busbw_transport::Exchange;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A subprocess may take this many times its plugin's patience before it is counted as lost: its own watchdog comes first.
const BEYOND_PATIENCE: u32 = 4;

/// A process whose socket is closed has ended within that, on a busy machine too.
const END: Duration = Duration::from_secs(5);

/// How ranks start subprocesses.
pub(crate) struct SubprocessCommand<'a> {
    pub program: &'a Path,
    pub arguments: &'a [OsString],
    pub environment: &'a [(String, String)],
}

/// How far a rank's subprocess is with a step, as the ranks tell each other.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Status {
    /// It waits for what the other subprocess sends, and sends this.
    Relay(Vec<u8>),
    Done(Ending),
}

/// The process that loads a plugin.
pub(crate) struct Subprocess {
    child: Child,
    socket: UnixStream,
    began: Instant,
    /// Why nothing more can be asked of it.
    lost: Option<Outcome>,
}

impl Subprocess {
    /// Starts it. It dies with this process.
    pub fn start(how: &SubprocessCommand<'_>, setup: &Setup) -> Result<Self> {
        let starting = |error| Error::system("start the process that loads the plugin", error);
        let (socket, theirs) = UnixStream::pair().map_err(starting)?;
        socket.set_read_timeout(Some(setup.patience * BEYOND_PATIENCE)).map_err(starting)?;
        let mut command = Command::new(how.program);
        command.args(how.arguments).envs(how.environment.iter().map(|(name, value)| (name, value)));
        command.env_remove(busbw_launch::launcher::MARK);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0);
        // SAFETY: between fork and exec this makes one system call.
        unsafe { command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)) };
        let child = command.spawn().map_err(starting)?;
        drop(command);
        let mut subprocess = Subprocess { child, socket, began: Instant::now(), lost: None };
        subprocess.send(&ToSubprocess::Setup(setup.clone()));
        Ok(subprocess)
    }

    fn begin(&mut self, step: Step) {
        self.began = Instant::now();
        self.send(&ToSubprocess::Step(step));
    }

    fn send(&mut self, message: &ToSubprocess) {
        // If it is dead, its next answer shows that.
        let _ = wire::send(&mut self.socket, message);
    }

    /// What it answers next; a crash or a silence ends the step as well.
    fn next(&mut self) -> Status {
        if let Some(lost) = &self.lost {
            return self.done(lost.clone());
        }
        let lost = match wire::receive(&mut self.socket) {
            Ok(FromSubprocess::Relay(relayed)) => return Status::Relay(relayed),
            Ok(FromSubprocess::Done(outcome)) => return self.done(outcome),
            Ok(FromSubprocess::Kill) => {
                self.kill();
                Outcome::Killed
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Outcome::Lost(self.silent().into())
            }
            Err(_) => Outcome::Lost(self.crashed().into()),
        };
        self.lost = Some(lost.clone());
        self.done(lost)
    }

    fn done(&self, outcome: Outcome) -> Status {
        Status::Done(Ending { outcome, after: self.began.elapsed() })
    }

    fn silent(&mut self) -> String {
        self.kill();
        "the process that uses the plugin stopped answering".into()
    }

    fn crashed(&mut self) -> String {
        match self.end() {
            Ok(None) => {
                self.kill();
                "the process that uses the plugin is still running, but closed its connection to its rank".into()
            }
            Ok(Some(status)) => match status.signal().and_then(|number| Signal::try_from(number).ok()) {
                Some(signal) => format!("the process that uses the plugin was ended by {signal}"),
                None => format!("the plugin ended its process ({status})"),
            },
            Err(error) => format!("the process that uses the plugin is lost: {error}"),
        }
    }

    /// How it ended: a subprocess whose socket is closed or gives nonsense has ended, or ends soon. A plugin that closed what is
    /// not its own goes on.
    fn end(&mut self) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + END;
        loop {
            match self.child.try_wait()? {
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                ended => return Ok(ended),
            }
        }
    }

    fn kill(&mut self) {
        // It may have ended already; either way it is gone after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Subprocess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Has both ranks' subprocesses run `step`; what came of it on either side, the first end first. Both ranks call it.
pub(crate) fn run_step(world: &mut ProcessGroup, subprocess: &mut Subprocess, step: Step) -> Result<[Ending; 2]> {
    subprocess.begin(step);
    let mut mine = subprocess.next();
    loop {
        let statuses = world.all_gather_values(&mine)?;
        if let [Status::Done(first), Status::Done(second)] = statuses.as_slice() {
            return Ok([first.clone(), second.clone()]);
        }
        if let Status::Relay(_) = mine {
            let relayed = match statuses.get(1 - world.rank()) {
                Some(Status::Relay(relayed)) => Some(relayed.clone()),
                _ => None,
            };
            subprocess.send(&ToSubprocess::Relay(relayed));
            mine = subprocess.next();
        }
    }
}

/// How long a rank may wait for the other: as long as a subprocess may take, and some for the processes.
pub(crate) fn patience_of_ranks(patience: Duration) -> Duration {
    patience * (BEYOND_PATIENCE + 1) + Duration::from_secs(30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Side;

    /// What comes of a shell's script in place of the subprocess.
    fn outcome_of(script: &str) -> Outcome {
        let setup = Setup {
            path: "none".into(),
            version: None,
            device: 0,
            side: Side::First,
            patience: Duration::from_secs(15),
        };
        let arguments = ["-c".into(), script.into()];
        let command = SubprocessCommand { program: Path::new("sh"), arguments: &arguments, environment: &[] };
        let mut subprocess = Subprocess::start(&command, &setup).unwrap();
        subprocess.begin(Step::Offer);
        match subprocess.next() {
            Status::Done(ending) => ending.outcome,
            Status::Relay(relayed) => panic!("{relayed:?} from {script}"),
        }
    }

    #[test]
    fn a_subprocess_that_cannot_be_understood_is_lost_and_not_waited_for() {
        let lives = "the process that uses the plugin is still running, but closed its connection to its rank";
        for (script, says) in [
            ("exit 3", "the plugin ended its process (exit status: 3)"),
            ("kill -SEGV $$", "the process that uses the plugin was ended by SIGSEGV"),
            ("exec 0<&-; exec sleep 60", lives),
            // Not a frame.
            ("echo nonsense >&0; exec sleep 60", lives),
        ] {
            let began = Instant::now();
            assert_eq!(outcome_of(script), Outcome::Lost(says.to_owned().into()), "{script}");
            assert!(began.elapsed() < Duration::from_secs(50), "{script} was waited for");
        }
    }
}

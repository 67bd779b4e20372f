//! A rank's side of a play: starts an actor, has it act while the other rank's does, and notices when it crashes or hangs.

use crate::wire::{self, Act, Ending, FromActor, Outcome, Part, ToActor};
use crate::{Error, Result};
use busbw_launch::ProcessGroup;
use busbw_net::Exchange;
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

/// An actor may take this many times its plugin's patience before it is counted as lost: its own watchdog comes first.
const BEYOND_PATIENCE: u32 = 4;

/// A process whose socket is closed has ended within that, on a busy machine too.
const END: Duration = Duration::from_secs(5);

/// How ranks start actors: their program, and the arguments that make it one.
pub(crate) struct Casting<'a> {
    pub program: &'a Path,
    pub arguments: &'a [OsString],
    pub environment: &'a [(String, String)],
}

/// What ranks tell each other at each step of a play.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Turn {
    Word(Vec<u8>),
    Over(Ending),
}

/// An actor's process.
pub(crate) struct Actor {
    child: Child,
    socket: UnixStream,
    /// When it got its last order.
    ordered: Instant,
    /// Why nothing more can be asked of it.
    lost: Option<Outcome>,
}

impl Actor {
    /// Starts an actor. It dies with this process.
    pub fn start(casting: &Casting<'_>, part: &Part) -> Result<Self> {
        let starting = |error| Error::system("start the process that loads the plugin", error);
        let (mut socket, theirs) = UnixStream::pair().map_err(starting)?;
        socket.set_read_timeout(Some(part.patience * BEYOND_PATIENCE)).map_err(starting)?;
        let mut command = Command::new(casting.program);
        command.args(casting.arguments).envs(casting.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0);
        // SAFETY: between fork and exec this makes one system call.
        unsafe { command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)) };
        let child = command.spawn().map_err(starting)?;
        drop(command);
        // An actor that is dead already is found out when it is first asked.
        let _ = wire::send(&mut socket, &ToActor::Part(part.clone()));
        Ok(Actor { child, socket, ordered: Instant::now(), lost: None })
    }

    fn order(&mut self, act: Act) {
        self.ordered = Instant::now();
        // As above.
        let _ = wire::send(&mut self.socket, &ToActor::Act(act));
    }

    fn hear(&mut self, word: Option<Vec<u8>>) {
        // As above.
        let _ = wire::send(&mut self.socket, &ToActor::Word(word));
    }

    /// What it says next; a crash or a silence is an end as well.
    fn next(&mut self) -> Turn {
        if let Some(lost) = &self.lost {
            return self.over(lost.clone());
        }
        let lost = match wire::receive(&mut self.socket) {
            Ok(FromActor::Word(word)) => return Turn::Word(word),
            Ok(FromActor::Done(outcome)) => return self.over(outcome),
            Ok(FromActor::Kill) => {
                self.kill();
                Outcome::Killed
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Outcome::Lost(self.silent())
            }
            Err(_) => Outcome::Lost(self.crashed()),
        };
        self.lost = Some(lost.clone());
        self.over(lost)
    }

    fn over(&self, outcome: Outcome) -> Turn {
        Turn::Over(Ending { outcome, after: self.ordered.elapsed() })
    }

    fn silent(&mut self) -> String {
        self.kill();
        "the process that uses the plugin fell silent".into()
    }

    fn crashed(&mut self) -> String {
        match self.end() {
            Ok(None) => {
                self.kill();
                "the process that uses the plugin lives on, but no longer speaks to its rank".into()
            }
            Ok(Some(status)) => match status.signal().and_then(|number| Signal::try_from(number).ok()) {
                Some(signal) => format!("the process that uses the plugin was ended by {signal}"),
                None => format!("the plugin ended its process ({status})"),
            },
            Err(error) => format!("the process that uses the plugin is lost: {error}"),
        }
    }

    /// How it ended: an actor whose socket is closed or says nonsense has ended, or ends soon. A plugin that closed what is
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
        // It may have ended by itself; either way it is gone after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Has both ends' actors do `act`; what came of it on either side, the first end first. Both ranks call it.
pub(crate) fn play(world: &mut ProcessGroup, actor: &mut Actor, act: Act) -> Result<[Ending; 2]> {
    actor.order(act);
    let mut mine = actor.next();
    loop {
        let told = wire::encode(&mine).map_err(|error| Error::system("tell the other rank", error))?;
        let all = world.all_gather(&told)?;
        let turns: Vec<Turn> = all
            .iter()
            .map(|bytes| wire::decode(bytes))
            .collect::<io::Result<_>>()
            .map_err(|error| Error::system("understand the other rank (do both run the same busbw?)", error))?;
        let theirs = turns.get(1 - world.rank()).cloned();
        match (mine, theirs, turns.as_slice()) {
            (_, _, [Turn::Over(first), Turn::Over(second)]) => return Ok([first.clone(), second.clone()]),
            (Turn::Over(ending), _, _) => mine = Turn::Over(ending),
            (Turn::Word(_), Some(Turn::Word(word)), _) => {
                actor.hear(Some(word));
                mine = actor.next();
            }
            (Turn::Word(_), _, _) => {
                actor.hear(None);
                mine = actor.next();
            }
        }
    }
}

/// How long a rank may wait for the other: as long as an actor may take, and some for the processes.
pub(crate) fn patience_of_ranks(patience: Duration) -> Duration {
    patience * (BEYOND_PATIENCE + 1) + Duration::from_secs(30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Side;

    /// What comes of a shell's script that plays the actor.
    fn outcome_of(script: &str) -> Outcome {
        let part = Part {
            path: "none".into(),
            version: None,
            device: 0,
            side: Side::First,
            patience: Duration::from_secs(15),
        };
        let arguments = ["-c".into(), script.into()];
        let casting = Casting { program: Path::new("sh"), arguments: &arguments, environment: &[] };
        let mut actor = Actor::start(&casting, &part).unwrap();
        actor.order(Act::Offer);
        match actor.next() {
            Turn::Over(ending) => ending.outcome,
            Turn::Word(word) => panic!("{word:?} from {script}"),
        }
    }

    #[test]
    fn an_actor_that_cannot_be_understood_is_lost_and_not_waited_for() {
        let lives = "the process that uses the plugin lives on, but no longer speaks to its rank";
        for (script, says) in [
            ("exit 3", "the plugin ended its process (exit status: 3)"),
            ("kill -SEGV $$", "the process that uses the plugin was ended by SIGSEGV"),
            ("exec 0<&-; exec sleep 60", lives),
            // Not a frame.
            ("echo nonsense >&0; exec sleep 60", lives),
        ] {
            let began = Instant::now();
            assert_eq!(outcome_of(script), Outcome::Lost(says.into()), "{script}");
            assert!(began.elapsed() < Duration::from_secs(50), "{script} was waited for");
        }
    }
}

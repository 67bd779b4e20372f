//! The process that loads a plugin: it does what its rank orders, and ends.

use crate::api::{Failed, Memory, Plugin, Receiver, Registration, Request, Room, Sender, Watchdog};
use crate::job::PEER_GONE;
use crate::measure::Stand;
use crate::rules;
use crate::wire::{self, Act, FromActor, Outcome, Part, Side, ToActor};
use busbw_model::RuleOutcome;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// NCCL's number of a communicator, of which actors need one each.
const COMMUNICATOR: u64 = 0xB0B;

/// Long enough for a message to be on its way, on a busy machine too.
const MOMENT: Duration = Duration::from_millis(300);

/// Why an act ended before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The plugin does not what it should.
    Wrong(String),
    /// The other end's act is over.
    PeerGone,
    /// The rank is gone, and with it the reason to be here.
    RankGone,
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Stop::Wrong(failed.0)
    }
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Stop::RankGone
    }
}

pub(crate) type Acted<T> = Result<T, Stop>;

/// Runs an actor, whose rank is at the other end of standard input. Called by the hidden flag that ranks start actors with.
pub fn run() -> ExitCode {
    // SAFETY: standard input is the socket that the rank made for this process, and nothing else here reads it.
    let mut rank = unsafe { UnixStream::from_raw_fd(0) };
    // A rank that is gone leaves nobody to tell.
    let Ok(ToActor::Part(part)) = wire::receive(&mut rank) else { return ExitCode::from(2) };
    let _ = play(rank, part);
    // Threads of the plugin may still run; the process ends without asking them.
    ExitCode::SUCCESS
}

fn play(mut rank: UnixStream, part: Part) -> Acted<()> {
    watch(&rank, part.patience)?;
    let mut plugin = match Plugin::open(&part.path, part.version) {
        Ok(plugin) => plugin,
        Err(error) => return refuse(&mut rank, &error),
    };
    if let Err(Failed(error)) = plugin.init(COMMUNICATOR) {
        return refuse(&mut rank, &error);
    }
    let mut scene = Scene { plugin, part, rank };
    let mut stand = None;
    loop {
        let ToActor::Act(act) = wire::receive(&mut scene.rank)? else { continue };
        let outcome = match scene.act(act, &mut stand) {
            Ok(outcome) => outcome,
            Err(Stop::Wrong(what)) if matches!(act, Act::Rule(_)) => Outcome::Rule(RuleOutcome::Broken(what)),
            Err(Stop::Wrong(what)) => Outcome::Failed(what),
            Err(Stop::PeerGone) => Outcome::Failed(PEER_GONE.into()),
            Err(Stop::RankGone) => return Err(Stop::RankGone),
        };
        wire::send(&mut scene.rank, &FromActor::Done(outcome))?;
    }
}

/// Answers whatever is asked with the reason why the plugin cannot be used.
fn refuse(rank: &mut UnixStream, why: &str) -> Acted<()> {
    loop {
        if let ToActor::Act(_) = wire::receive(rank)? {
            wire::send(rank, &FromActor::Done(Outcome::Failed(why.to_owned())))?;
        }
    }
}

/// A call that does not come back is told to the rank, and the process ends: nothing else can be done with it.
fn watch(rank: &UnixStream, patience: Duration) -> Acted<()> {
    let rank = rank.try_clone()?;
    let bark = move |call: &'static str| {
        let told = format!("{call} did not come back within {} s; no call may wait", patience.as_secs_f64());
        // The act's own thread is in the plugin and writes nothing now.
        let _ = wire::send(&mut &rank, &FromActor::Done(Outcome::Lost(told)));
        std::process::exit(1);
    };
    Ok(Watchdog::start(patience, Arc::new(bark))?)
}

/// What an act works with: the plugin, this end, and the other end's ear.
pub(crate) struct Scene {
    pub plugin: Plugin,
    pub part: Part,
    rank: UnixStream,
}

/// One end of a connection.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Sender(Sender),
    Receiver(Receiver),
}

impl Scene {
    fn act(&mut self, act: Act, stand: &mut Option<Stand>) -> Acted<Outcome> {
        let missing = || Stop::Wrong("a measurement was asked for before the connection".into());
        match act {
            Act::Offer => Ok(Outcome::Offer(self.plugin.offer()?)),
            Act::Rule(number) => match rules::ALL.get(number) {
                Some(rule) => (rule.run)(self).map(Outcome::Rule),
                None => Err(Stop::Wrong(format!("there is no rule {number}; do both ends run the same busbw?"))),
            },
            Act::Connect { most_bytes, in_flight } => {
                *stand = Some(Stand::connect(self, most_bytes, in_flight)?);
                Ok(Outcome::Connected)
            }
            Act::Bandwidth { bytes, duration } => stand.as_mut().ok_or_else(missing)?.bandwidth(self, bytes, duration),
            Act::Latency { duration } => stand.as_mut().ok_or_else(missing)?.latency(self, duration),
            Act::MessageRate { duration } => stand.as_mut().ok_or_else(missing)?.message_rate(self, duration),
        }
    }

    pub fn side(&self) -> Side {
        self.part.side
    }

    pub fn is_first(&self) -> bool {
        self.part.side == Side::First
    }

    pub fn device(&self) -> i32 {
        self.part.device
    }

    /// Says something to the other end and hears what it says.
    pub fn exchange(&mut self, word: &[u8]) -> Acted<Vec<u8>> {
        wire::send(&mut self.rank, &FromActor::Word(word.to_vec()))?;
        match wire::receive(&mut self.rank)? {
            ToActor::Word(Some(word)) => Ok(word),
            _ => Err(Stop::PeerGone),
        }
    }

    /// Waits until the other end is as far.
    pub fn meet(&mut self) -> Acted<()> {
        self.exchange(&[]).map(drop)
    }

    /// Has this process killed, as a peer may be at any time.
    pub fn be_killed(&mut self) -> Acted<()> {
        wire::send(&mut self.rank, &FromActor::Kill)?;
        wire::receive::<ToActor>(&mut self.rank)?;
        Err(Stop::RankGone)
    }

    /// Tries until something is there, as NCCL's proxy does: it gives up its core when nothing moves.
    pub fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Acted<Option<T>>) -> Acted<T> {
        let deadline = Instant::now() + self.part.patience;
        loop {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                return Err(Stop::Wrong(format!("{what} did not come within {} s", self.part.patience.as_secs_f64())));
            }
            std::thread::yield_now();
        }
    }

    /// A connection from the first end to the second.
    pub fn one_way(&mut self) -> Acted<End> {
        self.connection(Side::First)
    }

    /// A connection that `sender` sends on.
    pub fn connection(&mut self, sender: Side) -> Acted<End> {
        if self.side() == sender {
            let told = self.exchange(&[])?;
            let mut handle = told.try_into().map_err(|_| Stop::PeerGone)?;
            let sender = self.until("a connection", || Ok(self.plugin.connect(self.part.device, &mut handle)?))?;
            self.meet()?;
            return Ok(End::Sender(sender));
        }
        let (handle, listener) = self.plugin.listen(self.part.device)?;
        self.exchange(&handle)?;
        let receiver = self.until("a connection", || Ok(self.plugin.accept(listener)?))?;
        self.plugin.close_listen(listener)?;
        self.meet()?;
        Ok(End::Receiver(receiver))
    }

    /// Has a request go as far as it does in a moment: plugins without threads work when they are tested.
    pub fn nudge(&self, request: Request) {
        let deadline = Instant::now() + MOMENT;
        while Instant::now() < deadline && matches!(self.plugin.test(request, 1), Ok(None)) {
            std::thread::yield_now();
        }
    }

    /// Posts a send, waiting while the plugin is busy.
    pub fn send(&self, sender: Sender, memory: Memory, tag: i32, registration: Registration) -> Acted<Request> {
        self.until("room for a send", || Ok(self.plugin.isend(sender, memory, tag, registration)?))
    }

    /// Posts a group of receives, waiting while the plugin is busy.
    pub fn receive(&self, receiver: Receiver, rooms: &[Room]) -> Acted<Request> {
        self.until("room for a receive", || Ok(self.plugin.irecv(receiver, rooms)?))
    }

    /// Waits until a request of `n` messages is done; their sizes.
    pub fn finish(&self, request: Request, n: usize, what: &str) -> Acted<Vec<usize>> {
        self.until(what, || Ok(self.plugin.test(request, n)?))
    }
}

//! The process that loads a plugin: it runs the steps that its rank asks for, and ends.

use crate::api::{Failed, Memory, Plugin, Receiver, Registration, Request, Room, Sender, Watchdog};
use crate::job::PEER_GONE;
use crate::measure::Measurement;
use crate::rules;
use crate::wire::{self, FromSubprocess, Outcome, Setup, Side, Step, ToSubprocess};
use busbw_model::RuleOutcome;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// NCCL's number of a communicator, of which subprocesses need one each.
const COMMUNICATOR: u64 = 0xB0B;

/// Long enough for a message to be on its way, on a busy machine too.
const MOMENT: Duration = Duration::from_millis(300);

/// Why a step ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The plugin does not do what it should.
    Wrong(String),
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

/// What a part of a test case gives.
pub(crate) type CaseResult<T> = Result<T, Stop>;

/// Serves the rank at the other end of standard input. Called by the hidden flag with which ranks start subprocesses.
pub fn run() -> ExitCode {
    // SAFETY: standard input is the socket that the rank made for this process, and nothing else here reads it.
    let mut rank = unsafe { UnixStream::from_raw_fd(0) };
    // If the rank is gone, there is no one to report to.
    let Ok(ToSubprocess::Setup(setup)) = wire::receive(&mut rank) else { return ExitCode::from(2) };
    let _ = serve(rank, setup);
    // Threads of the plugin may still run; the process ends without asking them.
    ExitCode::SUCCESS
}

fn serve(mut rank: UnixStream, setup: Setup) -> CaseResult<()> {
    watch(&rank, setup.patience)?;
    let mut plugin = match Plugin::open(&setup.path, setup.version) {
        Ok(plugin) => plugin,
        Err(error) => return refuse(&mut rank, &error),
    };
    if let Err(Failed(error)) = plugin.init(COMMUNICATOR) {
        return refuse(&mut rank, &error);
    }
    let mut case = Case { plugin, setup, rank };
    let mut measurement = None;
    loop {
        let ToSubprocess::Step(step) = wire::receive(&mut case.rank)? else { continue };
        let outcome = match case.run(step, &mut measurement) {
            Ok(outcome) => outcome,
            Err(Stop::Wrong(what)) if matches!(step, Step::Rule(_)) => Outcome::Rule(RuleOutcome::Broken(what)),
            Err(Stop::Wrong(what)) => Outcome::Failed(what),
            Err(Stop::PeerGone) => Outcome::Failed(PEER_GONE.into()),
            Err(Stop::RankGone) => return Err(Stop::RankGone),
        };
        wire::send(&mut case.rank, &FromSubprocess::Done(outcome))?;
    }
}

/// Answers whatever is asked with the reason why the plugin cannot be used.
fn refuse(rank: &mut UnixStream, why: &str) -> CaseResult<()> {
    loop {
        if let ToSubprocess::Step(_) = wire::receive(rank)? {
            wire::send(rank, &FromSubprocess::Done(Outcome::Failed(why.to_owned())))?;
        }
    }
}

/// A call that does not come back is told to the rank, and the process ends: nothing else can be done with it.
fn watch(rank: &UnixStream, patience: Duration) -> CaseResult<()> {
    let rank = rank.try_clone()?;
    let expired = move |call: &'static str| {
        let told = format!("{call} did not come back within {} s; no call may wait", patience.as_secs_f64());
        // The step's own thread is in the plugin and writes nothing now.
        let _ = wire::send(&mut &rank, &FromSubprocess::Done(Outcome::Lost(told)));
        std::process::exit(1);
    };
    Ok(Watchdog::start(patience, Arc::new(expired))?)
}

/// What a step works with: the plugin, which end this is, and the way to the other end.
pub(crate) struct Case {
    pub plugin: Plugin,
    pub setup: Setup,
    rank: UnixStream,
}

/// One end of a connection.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Sender(Sender),
    Receiver(Receiver),
}

impl Case {
    fn run(&mut self, step: Step, measurement: &mut Option<Measurement>) -> CaseResult<Outcome> {
        let missing = || Stop::Wrong("a measurement was asked for before the connection".into());
        match step {
            Step::Offer => Ok(Outcome::Offer(self.plugin.offer()?)),
            Step::Rule(number) => match rules::ALL.get(number) {
                Some(rule) => (rule.run)(self).map(Outcome::Rule),
                None => Err(Stop::Wrong(format!("there is no rule {number}; do both ends run the same busbw?"))),
            },
            Step::Connect { most_bytes, in_flight } => {
                *measurement = Some(Measurement::connect(self, most_bytes, in_flight)?);
                Ok(Outcome::Connected)
            }
            Step::Bandwidth { bytes, duration } => {
                measurement.as_mut().ok_or_else(missing)?.bandwidth(self, bytes, duration)
            }
            Step::Latency { duration } => measurement.as_mut().ok_or_else(missing)?.latency(self, duration),
            Step::MessageRate { duration } => measurement.as_mut().ok_or_else(missing)?.message_rate(self, duration),
        }
    }

    pub fn side(&self) -> Side {
        self.setup.side
    }

    pub fn is_first(&self) -> bool {
        self.setup.side == Side::First
    }

    pub fn device(&self) -> i32 {
        self.setup.device
    }

    /// Sends bytes to the other end and receives what it sends.
    pub fn exchange(&mut self, mine: &[u8]) -> CaseResult<Vec<u8>> {
        wire::send(&mut self.rank, &FromSubprocess::Relay(mine.to_vec()))?;
        match wire::receive(&mut self.rank)? {
            ToSubprocess::Relay(Some(relayed)) => Ok(relayed),
            _ => Err(Stop::PeerGone),
        }
    }

    /// Waits until the other end is as far.
    pub fn barrier(&mut self) -> CaseResult<()> {
        self.exchange(&[]).map(drop)
    }

    /// Has this process killed, as a peer may be at any time.
    pub fn be_killed(&mut self) -> CaseResult<()> {
        wire::send(&mut self.rank, &FromSubprocess::Kill)?;
        wire::receive::<ToSubprocess>(&mut self.rank)?;
        Err(Stop::RankGone)
    }

    /// Tries until something is there, as NCCL's proxy does: it gives up its core when nothing moves.
    pub fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> CaseResult<Option<T>>) -> CaseResult<T> {
        let deadline = Instant::now() + self.setup.patience;
        loop {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                return Err(Stop::Wrong(format!("{what} did not come within {} s", self.setup.patience.as_secs_f64())));
            }
            std::thread::yield_now();
        }
    }

    /// A connection from the first end to the second.
    pub fn one_way(&mut self) -> CaseResult<End> {
        self.connection(Side::First)
    }

    /// A connection that `sender` sends on.
    pub fn connection(&mut self, sender: Side) -> CaseResult<End> {
        if self.side() == sender {
            let told = self.exchange(&[])?;
            let mut handle = told.try_into().map_err(|_| Stop::PeerGone)?;
            let sender = self.until("a connection", || Ok(self.plugin.connect(self.setup.device, &mut handle)?))?;
            self.barrier()?;
            return Ok(End::Sender(sender));
        }
        let (handle, listener) = self.plugin.listen(self.setup.device)?;
        self.exchange(&handle)?;
        let receiver = self.until("a connection", || Ok(self.plugin.accept(listener)?))?;
        self.plugin.close_listen(listener)?;
        self.barrier()?;
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
    pub fn send(&self, sender: Sender, memory: Memory, tag: i32, registration: Registration) -> CaseResult<Request> {
        self.until("room for a send", || Ok(self.plugin.isend(sender, memory, tag, registration)?))
    }

    /// Posts a group of receives, waiting while the plugin is busy.
    pub fn receive(&self, receiver: Receiver, rooms: &[Room]) -> CaseResult<Request> {
        self.until("room for a receive", || Ok(self.plugin.irecv(receiver, rooms)?))
    }

    /// Waits until a request of `n` messages is done; their sizes.
    pub fn finish(&self, request: Request, n: usize, what: &str) -> CaseResult<Vec<usize>> {
        self.until(what, || Ok(self.plugin.test(request, n)?))
    }
}

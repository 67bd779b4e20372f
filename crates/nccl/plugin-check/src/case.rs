//! What a test case works with on each of its two ends.

use crate::api::{Memory, MessageSizes, Plugin, Receiver, Registration, Request, Room, Sender};
use crate::wire::{self, FromSubprocess, Setup, Side, ToSubprocess, Wrong};
use busbw_nccl_abi::net::MOST_GROUPED;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Long enough for a message to be on its way, on a busy machine too.
const MOMENT: Duration = Duration::from_millis(300);

/// What a subprocess gives when the other end's step ended before its own.
pub(crate) const PEER_GONE: &str = "the other end gave up";

/// Why a step ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The plugin does not do what it should.
    Wrong(Wrong),
    PeerGone,
    /// The rank is gone, and with it the reason to be here.
    RankGone,
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Stop::Wrong(wrong)
    }
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Stop::RankGone
    }
}

/// What a part of a test case gives.
pub(crate) type CaseResult<T> = Result<T, Stop>;

/// What a step works with: the plugin, which end this is, and the way to the other end.
pub(crate) struct Case<P = Plugin> {
    pub plugin: P,
    pub setup: Setup,
    pub rank: UnixStream,
}

/// One end of a connection.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Sender(Sender),
    Receiver(Receiver),
}

impl<P> Case<P> {
    pub fn side(&self) -> Side {
        self.setup.side
    }

    pub fn is_first(&self) -> bool {
        self.setup.side == Side::First
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
    pub fn until<T>(&self, what: &str, attempt: impl FnMut() -> CaseResult<Option<T>>) -> CaseResult<T> {
        self.wait(what, "", attempt)
    }

    fn wait<T>(&self, what: &str, detail: &str, mut attempt: impl FnMut() -> CaseResult<Option<T>>) -> CaseResult<T> {
        let deadline = Instant::now() + self.setup.patience;
        loop {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                let cause = format!("{what} did not come within {} s", self.setup.patience.as_secs_f64());
                return Err(Stop::Wrong(Wrong { cause, detail: detail.to_owned() }));
            }
            std::thread::yield_now();
        }
    }

    /// Does something in a child of a fork; what went wrong there.
    pub fn in_child(&self, act: impl FnOnce() -> bool) -> CaseResult<Option<String>> {
        // SAFETY: the child calls the plugin, and ends without running anybody's destructors.
        let child = match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                let status = i32::from(!act());
                // SAFETY: ends the process.
                unsafe { libc::_exit(status) }
            }
            Ok(ForkResult::Parent { child }) => child,
            Err(error) => return Err(Stop::Wrong(format!("this process cannot fork: {error}").into())),
        };
        let ended = self.until("the end of a child of a fork", || match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => Ok(None),
            Ok(WaitStatus::Exited(_, 0)) => Ok(Some(None)),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                Ok(Some(Some(format!("a child of a fork was ended by {signal}"))))
            }
            Ok(_) => Ok(Some(Some("a child of a fork gets another answer".to_owned()))),
            Err(error) => Err(Stop::Wrong(format!("a child of a fork is lost: {error}").into())),
        });
        if ended.is_err() {
            // It may have ended since; its parent ends soon.
            let _ = kill(child, Signal::SIGKILL);
        }
        ended
    }
}

impl Case {
    pub fn device(&self) -> i32 {
        self.setup.device
    }

    /// How many receives the device takes in one call; 1 where it takes no groups.
    pub fn most_grouped(&self) -> CaseResult<usize> {
        let most = self.plugin.properties(self.device())?.most_grouped;
        Ok(usize::try_from(most).unwrap_or(1).clamp(1, MOST_GROUPED))
    }

    /// A connection from the first end to the second.
    pub fn one_way(&mut self) -> CaseResult<End> {
        self.connection(Side::First)
    }

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

    /// Posts a request. While the plugin is busy, what is in flight is ended first: NCCL's proxy goes on testing then
    /// (`src/transport/net.cc:1416` and `:1436` in 2.30.7).
    pub fn post<T>(
        &self,
        in_flight: &mut VecDeque<T>,
        end: impl Fn(T) -> CaseResult<()>,
        post: impl Fn() -> CaseResult<Option<Request>>,
    ) -> CaseResult<Request> {
        loop {
            if let Some(request) = post()? {
                return Ok(request);
            }
            match in_flight.pop_front() {
                Some(first) => end(first)?,
                None => return self.until("room for a request", &post),
            }
        }
    }

    /// Waits until a request of `n` messages is done; their sizes. Requests that do not end have one cause, whatever they are.
    pub fn finish(&self, request: Request, n: usize, what: &str) -> CaseResult<MessageSizes> {
        self.wait("the end of a request", what, || Ok(self.plugin.test(request, n)?))
    }
}

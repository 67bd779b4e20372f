//! One pair over TCP, with busbw-transport's transport: what streams carry, and how long a small message takes.

use crate::limit::Limit;
use crate::{Error, Result, losses};
use busbw_model::{Bytes, LinkLatency, Micros};
use busbw_transport::interfaces::Interface;
use busbw_transport::tcp::{Config, Handle, Listener, MOST_REQUESTS, Net, RecvComm, SendComm};
use busbw_transport::wait::{Cores, Waiter};
use busbw_transport::{Cancellation, Receiver, Sender, Token};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads that share the flows of a connection, as NCCL_SOCKET_NTHREADS would have it.
const MOST_THREADS: u32 = 4;
/// Bytes of all messages under way, where more than two are.
const UNDER_WAY: u64 = 16 << 20;
/// A message of the ping-pong.
const SMALL: usize = 8;
/// Round trips before those that count.
const WARM_UP: usize = 64;

/// What to move.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Messages of this size, one after the other, for so long.
    Stream { size: Bytes, duration: Duration },
    /// Small messages to and fro; one end leads.
    PingPong { leads: bool, duration: Duration },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// What arrived here, in Gbit/s.
    pub received_gbit_s: Option<f64>,
    /// Of the end that led.
    pub latency: Option<LinkLatency>,
    /// Segments that this host's TCP retransmitted, and all that it sent, during the test.
    pub resent: u64,
    pub sent: u64,
}

impl Task {
    pub fn duration(self) -> Duration {
        match self {
            Task::Stream { duration, .. } | Task::PingPong { duration, .. } => duration,
        }
    }
}

/// A rank's end of a connection to be.
pub(crate) struct End {
    net: Net,
    listener: Listener,
    limit: Limit,
}

impl End {
    /// Listens on `interface`; connections have `flows` flows, hold `token`, and check bytes where `checksum` says so.
    pub fn listen(interface: &Interface, flows: u32, token: Token, checksum: bool, limit: Limit) -> Result<Self> {
        let threads = (1..=MOST_THREADS.min(flows)).rev().find(|threads| flows.is_multiple_of(*threads)).unwrap_or(1);
        let config = Config {
            threads: Some(threads as usize),
            sockets_per_thread: Some((flows / threads) as usize),
            checksum,
            ..Config::default()
        };
        let cancel = Arc::clone(limit.cancellation());
        let net = Net::new(vec![interface.clone()], config, token, cancel, Cores::Shared)?;
        let listener = net.listen(0)?;
        Ok(End { net, listener, limit })
    }

    pub fn handle(&self) -> Vec<u8> {
        self.listener.handle().without_token().to_bytes().to_vec()
    }

    /// Does its part of a task: sends to the listener `to`, receives `from` whoever connects. The connection must be kept until
    /// the other end is done as well.
    pub fn run(mut self, task: Task, to: Option<&[u8]>, from: bool) -> Result<(Moved, Kept)> {
        let before = losses::tcp();
        let (sender, receiver) = self.connect(to, from)?;
        let cancel = Arc::clone(self.limit.cancellation());
        let (mut moved, kept) = match (task, sender, receiver) {
            (Task::PingPong { leads, duration }, Some(sender), Some(receiver)) => {
                let mut trip = RoundTrip { sender, receiver, cancel: &cancel };
                let latency = if leads { Some(trip.lead(duration)?) } else { trip.follow().map(|()| None)? };
                let RoundTrip { sender, receiver, .. } = trip;
                let kept = Kept { _sender: Some(sender), _receiver: Some((receiver, Vec::new())) };
                (Moved { latency, ..Moved::default() }, kept)
            }
            (Task::PingPong { .. }, ..) => return Err(Error::Usage("a ping-pong needs both directions".into())),
            (Task::Stream { size, duration }, sender, receiver) => {
                let length = size.0.max(1) as usize;
                let (sender, received) = both(
                    sender.map(|sender| || send(sender, length, duration, &cancel)),
                    receiver.map(|receiver| || receive(receiver, length, duration, &cancel)),
                )?;
                let (received_gbit_s, receiver) = received.unzip();
                (Moved { received_gbit_s, ..Moved::default() }, Kept { _sender: sender, _receiver: receiver })
            }
        };
        let after = losses::tcp();
        moved.resent = after.resent.saturating_sub(before.resent);
        moved.sent = after.sent.saturating_sub(before.sent);
        Ok((moved, kept))
    }

    fn connect(&mut self, to: Option<&[u8]>, from: bool) -> Result<(Option<SendComm>, Option<RecvComm>)> {
        let handle = to.map(Handle::from_bytes).transpose()?;
        let mut connecting = handle.map(|handle| self.net.connect(0, &handle, 0)).transpose()?;
        let (mut sender, mut receiver) = (None, None);
        let mut waiter = Waiter::new(self.limit.cancellation(), Cores::Shared);
        loop {
            if let (None, Some(connecting)) = (&sender, &mut connecting) {
                sender = connecting.poll()?;
            }
            if receiver.is_none() && from {
                receiver = self.listener.accept()?.map(|(receiver, _)| receiver);
            }
            if sender.is_some() == connecting.is_some() && receiver.is_some() == from {
                return Ok((sender, receiver));
            }
            waiter.pause()?;
        }
    }
}

/// A connection that has done its work: closed too early, it would cut off what is still on its way.
pub(crate) struct Kept {
    _sender: Option<SendComm>,
    _receiver: Option<Receiving>,
}

/// A connection before its rooms, so that it is dropped before them, and its helpers with it.
type Receiving = (RecvComm, Vec<Vec<u8>>);

/// Sends and receives at once, where both are asked for.
fn both<S: Send, R>(
    send: Option<impl FnOnce() -> Result<S> + Send>,
    receive: Option<impl FnOnce() -> Result<R>>,
) -> Result<(Option<S>, Option<R>)> {
    std::thread::scope(|scope| {
        let sending = send.map(|send| scope.spawn(send));
        let received = receive.map(|receive| receive()).transpose();
        let panicked = || Err(Error::Job("the sending thread panicked".into()));
        let sent = sending.map(|sending| sending.join().unwrap_or_else(|_| panicked())).transpose();
        // The sender's error is the better one: without it, the receiver would only have waited.
        Ok((sent?, received?))
    })
}

/// Requests under way: two at least, so that the wire never waits for the next.
fn window(length: usize) -> usize {
    ((UNDER_WAY / length as u64) as usize).clamp(2, MOST_REQUESTS)
}

/// Sends messages for `duration`, then an empty one, which says that this was all.
fn send(sender: SendComm, length: usize, duration: Duration, cancel: &Cancellation) -> Result<SendComm> {
    let message = vec![0x5a; length];
    // Declared behind the message, so that it is dropped before it, and its helpers with it.
    let mut sender = sender;
    let mut under_way = VecDeque::new();
    let mut waiter = Waiter::new(cancel, Cores::Shared);
    let until = Instant::now() + duration;
    let mut last_posted = false;
    while !last_posted || !under_way.is_empty() {
        while !last_posted && under_way.len() < window(length) {
            let last = Instant::now() >= until;
            let part = if last { &[][..] } else { &message[..] };
            // SAFETY: the message outlives the connection, whatever ends this function.
            let Some(request) = (unsafe { sender.isend(part.as_ptr(), part.len(), 0) })? else { break };
            under_way.push_back(request);
            last_posted = last;
        }
        match under_way.front().map(|&request| sender.test(request)).transpose()?.flatten() {
            Some(_) => {
                under_way.pop_front();
                cancel.advance();
            }
            None => waiter.pause()?,
        }
    }
    Ok(sender)
}

/// Receives until the empty message, and gives what arrived, in Gbit/s. A fifth of the time is left for TCP to find its
/// speed.
fn receive(receiver: RecvComm, length: usize, duration: Duration, cancel: &Cancellation) -> Result<(f64, Receiving)> {
    let mut rooms = vec![vec![0; length]; window(length)];
    let mut under_way = VecDeque::new();
    // Declared behind the rooms, so that it is dropped before them, and its helpers with it.
    let mut receiver = receiver;
    let mut waiter = Waiter::new(cancel, Cores::Shared);
    let mut arrivals = Arrivals::new(Instant::now(), duration / 5);
    let (mut posted, mut taken) = (0, 0);
    loop {
        while posted < taken + rooms.len() {
            let room = &mut rooms[posted % window(length)];
            // SAFETY: the rooms outlive the connection, and each is posted anew only when its last request is done.
            let Some(request) = (unsafe { receiver.irecv(room.as_mut_ptr(), room.len(), 0) })? else { break };
            under_way.push_back(request);
            posted += 1;
        }
        match under_way.front().map(|&request| receiver.test(request)).transpose()?.flatten() {
            Some(0) => return Ok((arrivals.gbit_s(), (receiver, rooms))),
            Some(bytes) => {
                arrivals.add(bytes as u64, Instant::now());
                cancel.advance();
                under_way.pop_front();
                taken += 1;
            }
            None => waiter.pause()?,
        }
    }
}

/// What arrived when.
struct Arrivals {
    began: Instant,
    warm_up: Duration,
    /// The first arrival after the warm-up, and the messages and bytes that came behind it.
    counted: Option<(Instant, usize, u64)>,
    /// All bytes, and when the last of them came.
    total: (u64, Instant),
}

/// Messages that must have come behind the first that counts. Those under way share the flows, so that several may end together:
/// of few messages, the time between their ends says nothing.
const FEWEST_COUNTED: usize = 16;

impl Arrivals {
    fn new(began: Instant, warm_up: Duration) -> Self {
        Arrivals { began, warm_up, counted: None, total: (0, began) }
    }

    fn add(&mut self, bytes: u64, now: Instant) {
        self.total = (self.total.0 + bytes, now);
        match &mut self.counted {
            Some((_, messages, counted)) => (*messages, *counted) = (*messages + 1, *counted + bytes),
            None if now.duration_since(self.began) >= self.warm_up => self.counted = Some((now, 0, 0)),
            None => {}
        }
    }

    /// Without the warm-up where enough came behind it, and for long enough; of all the time otherwise.
    fn gbit_s(&self) -> f64 {
        let (all, last) = self.total;
        let (since, bytes) = match self.counted {
            Some((first, messages, bytes)) if messages >= FEWEST_COUNTED && last - first >= self.warm_up => {
                (first, bytes)
            }
            _ => (self.began, all),
        };
        bytes as f64 * 8e-9 / last.duration_since(since).as_secs_f64().max(1e-9)
    }
}

/// A small message to and fro.
struct RoundTrip<'a> {
    sender: SendComm,
    receiver: RecvComm,
    cancel: &'a Cancellation,
}

impl RoundTrip<'_> {
    fn lead(&mut self, duration: Duration) -> Result<LinkLatency> {
        let mut round_trips = Vec::new();
        let began = Instant::now();
        while round_trips.len() <= WARM_UP || began.elapsed() < duration {
            let sent = Instant::now();
            self.send(SMALL)?;
            self.receive()?;
            round_trips.push(sent.elapsed());
        }
        self.send(0)?;
        Ok(latency(&mut round_trips[WARM_UP..]))
    }

    fn follow(&mut self) -> Result<()> {
        while self.receive()? > 0 {
            self.send(SMALL)?;
        }
        Ok(())
    }

    fn send(&mut self, length: usize) -> Result<()> {
        let message = [0x5a; SMALL];
        let mut waiter = Waiter::new(self.cancel, Cores::Own);
        let request = loop {
            // SAFETY: the message is on this stack until the request is done below. Messages this small are sent by
            // whoever calls `test`, never by a helper thread.
            match unsafe { self.sender.isend(message.as_ptr(), length, 0) }? {
                Some(request) => break request,
                None => waiter.pause()?,
            }
        };
        while self.sender.test(request)?.is_none() {
            waiter.pause()?;
        }
        self.cancel.advance();
        Ok(())
    }

    fn receive(&mut self) -> Result<usize> {
        let mut room = [0; SMALL];
        let mut waiter = Waiter::new(self.cancel, Cores::Own);
        let request = loop {
            // SAFETY: as in `send`.
            match unsafe { self.receiver.irecv(room.as_mut_ptr(), room.len(), 0) }? {
                Some(request) => break request,
                None => waiter.pause()?,
            }
        };
        loop {
            if let Some(length) = self.receiver.test(request)? {
                return Ok(length);
            }
            waiter.pause()?;
        }
    }
}

/// Half round trips of at least one.
fn latency(round_trips: &mut [Duration]) -> LinkLatency {
    round_trips.sort_unstable();
    let at = |share: f64| {
        let place = ((round_trips.len() - 1) as f64 * share).round() as usize;
        Micros(round_trips[place].as_secs_f64() * 1e6 / 2.0)
    };
    LinkLatency { median: at(0.5), p99: at(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_transport::interfaces;

    fn ends(flows: u32) -> (End, End) {
        let all = interfaces::list().unwrap();
        let lo = interfaces::choose(&all, Some("=lo"), Some("AF_INET")).unwrap().remove(0);
        let end = || {
            let limit = Limit::start(Duration::from_secs(60), &Cancellation::new());
            End::listen(&lo, flows, Token::from_bytes([7; 16]), false, limit).unwrap()
        };
        (end(), end())
    }

    fn run(task: impl Fn(bool) -> Task + Sync, flows: u32, answers: bool) -> (Moved, Moved) {
        let (near, far) = run_and_keep(task, flows, answers);
        (near.0, far.0)
    }

    type Ran = (Moved, Kept);

    fn run_and_keep(task: impl Fn(bool) -> Task + Sync, flows: u32, answers: bool) -> (Ran, Ran) {
        let (near, far) = ends(flows);
        let (near_handle, far_handle) = (near.handle(), far.handle());
        std::thread::scope(|scope| {
            let to_near = answers.then_some(near_handle);
            let task = &task;
            let other = scope.spawn(move || far.run(task(false), to_near.as_deref(), true).unwrap());
            (near.run(task(true), Some(&far_handle), answers).unwrap(), other.join().unwrap())
        })
    }

    #[test]
    fn streams_and_ping_pongs() {
        let duration = Duration::from_millis(50);
        for (size, flows, answers) in [(1 << 20, 1, false), (1 << 20, 8, true), (64, 2, false), (3 << 20, 3, true)] {
            let (near, far) = run(|_| Task::Stream { size: Bytes(size), duration }, flows, answers);
            assert!(far.received_gbit_s.unwrap() > 0.0, "{size} {flows}");
            assert_eq!(near.received_gbit_s.is_some(), answers);
        }
        let (near, far) = run(|leads| Task::PingPong { leads, duration }, 1, true);
        let latency = near.latency.unwrap();
        assert!(latency.median.0 > 0.0 && latency.p99 >= latency.median && far.latency.is_none());
    }

    #[test]
    fn a_peer_that_never_comes_is_an_error_in_time() {
        let all = interfaces::list().unwrap();
        let lo = interfaces::choose(&all, Some("=lo"), Some("AF_INET")).unwrap().remove(0);
        let limit = Limit::start(Duration::from_millis(1), &Cancellation::new());
        let end = End::listen(&lo, 1, Token::from_bytes([7; 16]), false, limit).unwrap();
        let task = Task::Stream { size: Bytes(64), duration: Duration::ZERO };
        let Err(error) = end.run(task, None, true) else { panic!("nobody came") };
        assert!(error.to_string().contains("within 0 s"), "{error}");
    }

    #[test]
    fn what_arrives_while_tcp_warms_up_does_not_count() {
        let began = Instant::now();
        let mut arrivals = Arrivals::new(began, Duration::from_secs(1));
        let at = |seconds: f64| began + Duration::from_secs_f64(seconds);
        arrivals.add(1_000, at(0.5));
        assert_eq!(arrivals.gbit_s(), 1_000.0 * 8e-9 / 0.5);
        for tenth in 0..50 {
            arrivals.add(100_000_000, at(1.5 + 0.1 * f64::from(tenth)));
        }
        assert!((arrivals.gbit_s() - 8.0).abs() < 1e-6, "{}", arrivals.gbit_s());
    }

    #[test]
    fn messages_that_end_together_are_no_fast_link() {
        let began = Instant::now();
        let mut arrivals = Arrivals::new(began, Duration::from_millis(100));
        // 4 messages of 4 MiB over 8 flows of a link of 100 Mbit/s: all were under way at once.
        for millis in [1300, 1310, 1320, 1342] {
            arrivals.add(4 << 20, began + Duration::from_millis(millis));
        }
        assert!((arrivals.gbit_s() - 0.1).abs() < 1e-3, "{}", arrivals.gbit_s());
    }

    #[test]
    fn half_round_trips() {
        let mut round_trips: Vec<Duration> = (1..=101).rev().map(Duration::from_micros).collect();
        assert_eq!(latency(&mut round_trips), LinkLatency { median: Micros(25.5), p99: Micros(50.0) });
    }
}

//! What a plugin reaches: bandwidth one way, latency, messages a second.

use crate::api::{Memory, Receiver, Registration, Request, Room, Sender};
use crate::case::{Case, CaseResult, End, Stop};
use crate::wire::{Outcome, Side};
use busbw_model::{LinkLatency, Micros};
use nix::sys::resource::{UsageWho, getrusage};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const SMALL: usize = 8;
const TAG: i32 = 1;
/// Messages that go before anything is timed: connections have opened their windows by then.
const WARM_UP: usize = 4;
/// A measurement has at least so many messages.
const FEWEST: u64 = 8;

/// Two connections, one each way, and the memory that everything goes through.
pub(crate) struct Measurement {
    sender: Sender,
    receiver: Receiver,
    out: Memory,
    into: Memory,
    registered: (Registration, Registration),
    in_flight: usize,
}

impl Measurement {
    pub fn connect(case: &mut Case, most_bytes: usize, in_flight: usize) -> CaseResult<Self> {
        let there = case.connection(Side::First)?;
        let back = case.connection(Side::Second)?;
        let (End::Sender(sender), End::Receiver(receiver)) =
            (if case.is_first() { (there, back) } else { (back, there) })
        else {
            return Err(Stop::Wrong("the connections have the same direction".to_owned().into()));
        };
        let (out, into) = (Memory::filled(most_bytes.max(SMALL), 1), Memory::new(most_bytes.max(SMALL)));
        let registered = (case.plugin.register_to_send(sender, out)?, case.plugin.register_to_receive(receiver, into)?);
        Ok(Measurement { sender, receiver, out, into, registered, in_flight })
    }

    /// One way from the first end to the second, long enough for `duration`.
    pub fn bandwidth(&mut self, case: &mut Case, bytes: usize, duration: Duration) -> CaseResult<Outcome> {
        let count = self.calibrate(case, bytes, duration)?;
        case.barrier()?;
        let (began, cpu) = (Instant::now(), cpu_seconds());
        self.stream(case, bytes, count)?;
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let gb = count as f64 * bytes as f64 / 1e9;
        Ok(Outcome::Bandwidth { gb_per_s: gb / seconds, cpu_s_per_gb: cpu / gb })
    }

    /// Half of a round trip of 8 bytes.
    pub fn latency(&mut self, case: &mut Case, duration: Duration) -> CaseResult<Outcome> {
        let mut rounds = 100;
        let warm_up = self.round_trips(case, rounds)?;
        let each = warm_up.iter().sum::<f64>() / warm_up.len() as f64;
        rounds = agree(case, (duration.as_secs_f64() * 1e6 / (2.0 * each)) as u64)?;
        let mut half_trips = self.round_trips(case, rounds)?;
        half_trips.sort_by(f64::total_cmp);
        let at = |share: f64| Micros(half_trips[((half_trips.len() - 1) as f64 * share) as usize]);
        Ok(Outcome::Latency(LinkLatency { median: at(0.5), p99: at(0.99) }))
    }

    /// Messages of 8 bytes, one way.
    pub fn message_rate(&mut self, case: &mut Case, duration: Duration) -> CaseResult<Outcome> {
        let count = self.calibrate(case, SMALL, duration)?;
        case.barrier()?;
        let began = Instant::now();
        self.stream(case, SMALL, count)?;
        Ok(Outcome::MessageRate(count as f64 / began.elapsed().as_secs_f64()))
    }

    /// How many messages take so long.
    fn calibrate(&mut self, case: &mut Case, bytes: usize, duration: Duration) -> CaseResult<u64> {
        self.stream(case, bytes, WARM_UP as u64)?;
        case.barrier()?;
        let trial = (self.in_flight as u64 * 2).max(FEWEST);
        let began = Instant::now();
        self.stream(case, bytes, trial)?;
        case.barrier()?;
        let each = began.elapsed().as_secs_f64() / trial as f64;
        agree(case, (duration.as_secs_f64() / each) as u64)
    }

    /// Sends or receives `count` messages, with as many under way as was asked for.
    fn stream(&mut self, case: &Case, bytes: usize, count: u64) -> CaseResult<()> {
        let mut under_way: VecDeque<Request> = VecDeque::with_capacity(self.in_flight);
        let end_one = |request| case.finish(request, 1, "a message").map(drop);
        for _ in 0..count {
            if under_way.len() == self.in_flight
                && let Some(first) = under_way.pop_front()
            {
                end_one(first)?;
            }
            let request = case.post(&mut under_way, end_one, || self.post(case, bytes))?;
            under_way.push_back(request);
        }
        under_way.into_iter().try_for_each(end_one)
    }

    fn post(&self, case: &Case, bytes: usize) -> CaseResult<Option<Request>> {
        Ok(if case.is_first() {
            case.plugin.isend(self.sender, self.out.setup(0, bytes), TAG, self.registered.0)?
        } else {
            case.plugin.irecv(self.receiver, &[self.room(bytes)])?
        })
    }

    fn room(&self, bytes: usize) -> Room {
        Room { memory: self.into.setup(0, bytes), tag: TAG, registration: self.registered.1 }
    }

    fn send(&self, case: &Case, bytes: usize) -> CaseResult<Request> {
        case.send(self.sender, self.out.setup(0, bytes), TAG, self.registered.0)
    }

    fn receive(&self, case: &Case, bytes: usize) -> CaseResult<Request> {
        case.receive(self.receiver, &[self.room(bytes)])
    }

    /// Half of each round trip, in microseconds.
    fn round_trips(&mut self, case: &mut Case, rounds: u64) -> CaseResult<Vec<f64>> {
        case.barrier()?;
        let mut halves = Vec::with_capacity(rounds as usize);
        for _ in 0..rounds {
            let began = Instant::now();
            // The receive is there before the answer can be.
            let receive = self.receive(case, SMALL)?;
            if case.is_first() {
                let send = self.send(case, SMALL)?;
                case.finish(send, 1, "a send")?;
                case.finish(receive, 1, "a receive")?;
            } else {
                case.finish(receive, 1, "a receive")?;
                let send = self.send(case, SMALL)?;
                case.finish(send, 1, "a send")?;
            }
            halves.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        Ok(halves)
    }
}

/// The first end's number, for both.
fn agree(case: &mut Case, mine: u64) -> CaseResult<u64> {
    let mine = mine.max(FEWEST);
    let theirs = case.exchange(&mine.to_le_bytes())?.try_into().map_err(|_| Stop::PeerGone)?;
    Ok(if case.is_first() { mine } else { u64::from_le_bytes(theirs) })
}

/// What this process has taken of processors, its threads and the kernel on its behalf included.
fn cpu_seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return f64::NAN };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

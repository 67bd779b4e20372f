//! What a plugin reaches: bandwidth one way, latency, messages a second.

use crate::actor::{Acted, End, Scene, Stop};
use crate::api::{Memory, Receiver, Registration, Request, Room, Sender};
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
pub(crate) struct Stand {
    sender: Sender,
    receiver: Receiver,
    out: Memory,
    into: Memory,
    /// Registrations of the two.
    registered: (Registration, Registration),
    in_flight: usize,
}

impl Stand {
    pub fn connect(scene: &mut Scene, most_bytes: usize, in_flight: usize) -> Acted<Self> {
        let there = scene.connection(Side::First)?;
        let back = scene.connection(Side::Second)?;
        let (End::Sender(sender), End::Receiver(receiver)) =
            (if scene.is_first() { (there, back) } else { (back, there) })
        else {
            return Err(Stop::Wrong("the connections have the same direction".into()));
        };
        let (out, into) = (Memory::filled(most_bytes.max(SMALL), 1), Memory::new(most_bytes.max(SMALL)));
        let registered =
            (scene.plugin.register_to_send(sender, out)?, scene.plugin.register_to_receive(receiver, into)?);
        Ok(Stand { sender, receiver, out, into, registered, in_flight })
    }

    /// One way from the first end to the second, long enough for `duration`.
    pub fn bandwidth(&mut self, scene: &mut Scene, bytes: usize, duration: Duration) -> Acted<Outcome> {
        let count = self.calibrate(scene, bytes, duration)?;
        scene.meet()?;
        let (began, cpu) = (Instant::now(), cpu_seconds());
        self.stream(scene, bytes, count)?;
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let gb = count as f64 * bytes as f64 / 1e9;
        Ok(Outcome::Bandwidth { gb_per_s: gb / seconds, cpu_s_per_gb: cpu / gb })
    }

    /// Half of a round trip of 8 bytes.
    pub fn latency(&mut self, scene: &mut Scene, duration: Duration) -> Acted<Outcome> {
        let mut rounds = 100;
        let warm_up = self.round_trips(scene, rounds)?;
        let each = warm_up.iter().sum::<f64>() / warm_up.len() as f64;
        rounds = agree(scene, (duration.as_secs_f64() * 1e6 / (2.0 * each)) as u64)?;
        let mut half_trips = self.round_trips(scene, rounds)?;
        half_trips.sort_by(f64::total_cmp);
        let at = |share: f64| Micros(half_trips[((half_trips.len() - 1) as f64 * share) as usize]);
        Ok(Outcome::Latency(LinkLatency { median: at(0.5), p99: at(0.99) }))
    }

    /// Messages of 8 bytes, one way.
    pub fn message_rate(&mut self, scene: &mut Scene, duration: Duration) -> Acted<Outcome> {
        let count = self.calibrate(scene, SMALL, duration)?;
        scene.meet()?;
        let began = Instant::now();
        self.stream(scene, SMALL, count)?;
        Ok(Outcome::MessageRate(count as f64 / began.elapsed().as_secs_f64()))
    }

    /// How many messages take so long.
    fn calibrate(&mut self, scene: &mut Scene, bytes: usize, duration: Duration) -> Acted<u64> {
        self.stream(scene, bytes, WARM_UP as u64)?;
        scene.meet()?;
        let trial = (self.in_flight as u64 * 2).max(FEWEST);
        let began = Instant::now();
        self.stream(scene, bytes, trial)?;
        scene.meet()?;
        let each = began.elapsed().as_secs_f64() / trial as f64;
        agree(scene, (duration.as_secs_f64() / each) as u64)
    }

    /// Sends or receives `count` messages, with as many under way as was asked for.
    fn stream(&mut self, scene: &Scene, bytes: usize, count: u64) -> Acted<()> {
        let mut under_way: VecDeque<Request> = VecDeque::with_capacity(self.in_flight);
        for _ in 0..count {
            if under_way.len() == self.in_flight
                && let Some(first) = under_way.pop_front()
            {
                scene.finish(first, 1, "the end of a message")?;
            }
            under_way.push_back(self.post(scene, bytes)?);
        }
        under_way.into_iter().try_for_each(|request| scene.finish(request, 1, "the end of a message").map(drop))
    }

    fn post(&self, scene: &Scene, bytes: usize) -> Acted<Request> {
        if scene.is_first() { self.send(scene, bytes) } else { self.receive(scene, bytes) }
    }

    fn send(&self, scene: &Scene, bytes: usize) -> Acted<Request> {
        scene.send(self.sender, self.out.part(0, bytes), TAG, self.registered.0)
    }

    fn receive(&self, scene: &Scene, bytes: usize) -> Acted<Request> {
        let room = Room { memory: self.into.part(0, bytes), tag: TAG, registration: self.registered.1 };
        scene.receive(self.receiver, &[room])
    }

    /// Half of each round trip, in microseconds.
    fn round_trips(&mut self, scene: &mut Scene, rounds: u64) -> Acted<Vec<f64>> {
        scene.meet()?;
        let mut halves = Vec::with_capacity(rounds as usize);
        for _ in 0..rounds {
            let began = Instant::now();
            // The receive is there before the answer can be.
            let receive = self.receive(scene, SMALL)?;
            if scene.is_first() {
                let send = self.send(scene, SMALL)?;
                scene.finish(send, 1, "the end of a send")?;
                scene.finish(receive, 1, "an answer")?;
            } else {
                scene.finish(receive, 1, "a message")?;
                let send = self.send(scene, SMALL)?;
                scene.finish(send, 1, "the end of a send")?;
            }
            halves.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        Ok(halves)
    }
}

/// The first end's number, for both.
fn agree(scene: &mut Scene, mine: u64) -> Acted<u64> {
    let mine = mine.max(FEWEST);
    let theirs = scene.exchange(&mine.to_le_bytes())?.try_into().map_err(|_| Stop::PeerGone)?;
    Ok(if scene.is_first() { mine } else { u64::from_le_bytes(theirs) })
}

/// What this process has taken of processors, its threads and the kernel on its behalf included.
fn cpu_seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return f64::NAN };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

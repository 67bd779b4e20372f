//! Which all-reduce of gradients is fastest: the bytes that each sends, its time, and what a step of training makes of it.
//!
//! A time is a part that does not depend on the network (within the host, and selecting) and bytes over the speed of the network
//! between hosts. The backward pass hides some of either; that is not modelled.

use crate::model::Constants;
use busbw_model::answer::Answer;
use busbw_model::{Bytes, GBps};
use schemars::JsonSchema;
use serde::Serialize;

/// Ranks, as many on each host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub hosts: u32,
    pub ranks_per_host: u32,
}

busbw_model::named! {
    /// A way of averaging gradients.
    pub enum Way {
        /// One all-reduce over all ranks.
        Plain = "plain",
        /// The largest entries of every rank, gathered by all.
        Topk = "topk",
        /// Within the host first, then between hosts.
        TwoLevel = "two-level",
        /// Two levels, with top-k between hosts.
        Both = "both",
    }
    /// As the command and Python write it.
    name
}

/// How much of a gradient top-k sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopK {
    /// Share of the entries.
    pub ratio: f64,
    /// Bytes of a value; its index takes four more.
    pub value_bytes: u32,
}

/// How fast the parts are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// What a rank sends within its host.
    pub host: GBps,
    /// Gradients read by error feedback and selection, by one rank.
    pub select: GBps,
    /// Received messages added up, by one rank.
    pub add: GBps,
    /// One message between hosts.
    pub latency_us: f64,
}

/// The time of a way, as a function of the network's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub way: Way,
    /// Seconds that do not depend on the network's bandwidth.
    pub fixed_s: f64,
    /// What leaves a host.
    pub network_bytes: f64,
}

impl Way {
    /// The bytes that leave a host for `bytes` of gradients, where a rank's message of top-k has `message` bytes: of its share of
    /// the gradients, with two levels. For rings whose ranks follow each other host by host, so that one connection of each ring
    /// leaves a host. With one host the network is what joins its ranks.
    pub fn network_bytes(self, shape: Shape, bytes: f64, message: f64) -> f64 {
        let (hosts, ranks) = (f64::from(shape.hosts), shape.ranks());
        match self {
            Way::Plain => 2.0 * (ranks - 1.0) / ranks * bytes,
            Way::Topk => (ranks - 1.0) * message,
            Way::TwoLevel => 2.0 * (hosts - 1.0) / hosts * bytes,
            Way::Both => f64::from(shape.ranks_per_host) * (hosts - 1.0) * message,
        }
    }
}

impl Shape {
    fn ranks(self) -> f64 {
        f64::from(self.hosts) * f64::from(self.ranks_per_host)
    }

    fn has_two_levels(self) -> bool {
        self.hosts > 1 && self.ranks_per_host > 1
    }
}

impl TopK {
    /// The length of a message of top-k's entries of so many: indices, then values, each to a multiple of eight bytes
    /// (`busbw.compress.Message`).
    fn message_bytes(self, entries: f64) -> f64 {
        let kept = (entries * self.ratio).round_ties_even().max(1.0);
        let aligned = |bytes: f64| (bytes / 8.0).ceil() * 8.0;
        aligned(kept * 4.0) + aligned(kept * f64::from(self.value_bytes))
    }
}

impl Estimate {
    /// The time over a network.
    pub fn seconds(&self, network: GBps) -> f64 {
        self.fixed_s + self.network_bytes / (network.0 * 1e9)
    }

    /// The network's speed below which this is faster than another: infinite where it always is, 0 where it never is.
    pub fn pays_below(&self, other: &Estimate) -> GBps {
        let saved_bytes = other.network_bytes - self.network_bytes;
        let extra_s = self.fixed_s - other.fixed_s;
        GBps(match saved_bytes {
            saved if saved <= 0.0 => 0.0,
            _ if extra_s <= 0.0 => f64::INFINITY,
            saved => saved / extra_s / 1e9,
        })
    }
}

/// The times of every way that the ranks allow, for float32 gradients; the first is plain.
pub fn estimates(shape: Shape, gradients: Bytes, speeds: &Speeds, top_k: TopK) -> Vec<Estimate> {
    let bytes = gradients.0 as f64;
    let (hosts, local, ranks) = (f64::from(shape.hosts), f64::from(shape.ranks_per_host), shape.ranks());
    let (entries, latency_s) = ((bytes / 4.0).floor().max(1.0), speeds.latency_us / 1e6);
    let (whole, share) = (top_k.message_bytes(entries), top_k.message_bytes(entries / local));
    let within_s = 2.0 * (local - 1.0) / local * bytes / (speeds.host.0 * 1e9);
    let selecting_s = |bytes: f64, messages: f64, message: f64| {
        bytes / (speeds.select.0 * 1e9) + messages * message / (speeds.add.0 * 1e9)
    };
    let estimate = |way: Way| {
        let (fixed_s, message) = match way {
            Way::Plain => (2.0 * (ranks - 1.0) * latency_s, 0.0),
            Way::Topk => ((ranks - 1.0) * latency_s + selecting_s(bytes, ranks, whole), whole),
            Way::TwoLevel => (2.0 * (hosts - 1.0) * latency_s + within_s, 0.0),
            Way::Both => ((hosts - 1.0) * latency_s + within_s + selecting_s(bytes / local, hosts, share), share),
        };
        Estimate { way, fixed_s, network_bytes: way.network_bytes(shape, bytes, message) }
    };
    let allowed = |way: &Way| shape.has_two_levels() || matches!(way, Way::Plain | Way::Topk);
    Way::ALL.into_iter().filter(allowed).map(estimate).collect()
}

/// What carries the gradients between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Kernel TCP, as NCCL's own sockets.
    Tcp,
    /// A net plugin over TCP or a network stack in user space.
    Plugin,
    /// InfiniBand or RoCE.
    Rdma,
    /// What was measured.
    Measured,
    /// What joins the ranks of the only host: there is no network.
    Host,
}

/// The share of a line of 25 Gbit/s that kernel TCP carried in training, by the fifth field report: 16 V100 on two hosts, VGG16 with a
/// batch of 128, a step of 2418 ms (847 images/s) where one GPU takes 510 (251 images/s), for 1038 MB that leave a host.
const TCP_SHARE: f64 = 0.174;
/// The same with the report's net plugin: 1644 images/s.
const PLUGIN_SHARE: f64 = 0.452;
/// What the report's two-level top-k leaves for selecting, GB/s: 3562 images/s. `torch.topk` of that time selected from 0.3 GB/s on a
/// P100, and sorting from 2.5 (pytorch/pytorch issue 22812).
pub const SELECT: GBps = GBps(1.5);

impl Transport {
    /// What arrives of a line's rate during training.
    pub fn carries(self, line: GBps) -> GBps {
        let measured = &Constants::built_in().measured;
        GBps(match self {
            Transport::Tcp => (TCP_SHARE * line.0).min(measured.sockets_host.value),
            Transport::Plugin => PLUGIN_SHARE * line.0,
            Transport::Rdma => measured.infiniband_payload.value * line.0,
            Transport::Measured | Transport::Host => line.0,
        })
    }
}

/// What training is, beside its gradients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// Forward and backward pass of one rank, without communication, ms.
    pub compute_ms: f64,
    /// Samples of one rank in a step.
    pub batch_size: Option<u32>,
}

/// What to hold the ways against.
#[derive(Debug, Clone)]
pub struct Question {
    pub shape: Shape,
    pub gradients: Bytes,
    /// Rate of a host's line, or what was measured on it.
    pub line: GBps,
    pub transports: Vec<Transport>,
    pub speeds: Speeds,
    pub top_k: TopK,
    pub step: Option<Step>,
}

/// What `busbw accelerate --json` prints. Sizes are bytes; times are milliseconds (_ms); bandwidths are GB/s, 10^9 bytes per second
/// (_gbs). No number is rounded. Readers must bear fields that are not described here: they may be added without a new schema
/// name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Acceleration {
    pub hosts: u32,
    pub ranks_per_host: u32,
    /// Bytes of all gradients.
    pub gradients_bytes: Bytes,
    /// Rate of a host's line.
    pub line_gbs: GBps,
    /// Null where the time of computation was not said.
    pub step: Option<Step>,
    /// What was not said and had to be assumed, a sentence each.
    pub assumptions: Vec<String>,
    /// The ways over each transport, plain first. Speed-ups are over the first of all.
    pub ways: Vec<Accelerated>,
}

impl Answer for Acceleration {
    const SCHEMA: &'static str = "busbw.accelerate/1";
}

/// A way of averaging over a transport.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Accelerated {
    pub transport: Transport,
    /// What the transport carries out of a host.
    pub network_gbs: GBps,
    pub way: Way,
    /// Whether it is the fastest of all.
    pub fastest: bool,
    /// Time of the all-reduce alone, ms.
    pub all_reduce_ms: f64,
    /// Computation and all-reduce, ms.
    pub step_ms: Option<f64>,
    /// Samples per second of all ranks.
    pub samples_per_s: Option<f64>,
    /// Computation over the step, percent: how much of one rank's speed times their number is reached.
    pub scaling_pct: Option<f64>,
    /// Of the step, or of the all-reduce alone where the computation is not known.
    pub speed_up: f64,
    /// Speed of the network below which it is faster than plain; null for always, and for plain.
    pub pays_below_gbs: Option<f64>,
}

impl Acceleration {
    pub fn of(question: &Question) -> Self {
        let found = question.estimates();
        let transports = question.transports();
        let rows = transports.iter().flat_map(|transport| found.iter().map(|found| (*transport, found)));
        let mut ways: Vec<Accelerated> =
            rows.map(|(transport, estimate)| question.answer(transport, estimate, &found[0])).collect();
        let time = |way: &Accelerated| way.step_ms.unwrap_or(way.all_reduce_ms);
        let first = ways.first().map_or(0.0, time);
        let least = ways.iter().map(time).fold(f64::INFINITY, f64::min);
        for way in &mut ways {
            // One rank alone averages in no time.
            way.speed_up = if time(way) > 0.0 { first / time(way) } else { 1.0 };
        }
        if let Some(fastest) = ways.iter_mut().find(|way| time(way) == least) {
            fastest.fastest = true;
        }
        Acceleration {
            hosts: question.shape.hosts,
            ranks_per_host: question.shape.ranks_per_host,
            gradients_bytes: question.gradients,
            line_gbs: question.line,
            step: question.step,
            assumptions: question.assumptions(),
            ways,
        }
    }
}

impl Question {
    /// On one host nothing but plain: no byte is saved of a network, as `busbw.torch.accelerate` knows, too.
    fn estimates(&self) -> Vec<Estimate> {
        if self.shape.hosts > 1 {
            return estimates(self.shape, self.gradients, &self.speeds, self.top_k);
        }
        let network_bytes = Way::Plain.network_bytes(self.shape, self.gradients.0 as f64, 0.0);
        vec![Estimate { way: Way::Plain, fixed_s: 0.0, network_bytes }]
    }

    fn transports(&self) -> Vec<Transport> {
        if self.shape.hosts > 1 { self.transports.clone() } else { vec![Transport::Host] }
    }

    fn answer(&self, transport: Transport, estimate: &Estimate, plain: &Estimate) -> Accelerated {
        let network = transport.carries(if transport == Transport::Host { self.speeds.host } else { self.line });
        let all_reduce_ms = 1e3 * estimate.seconds(network);
        let step_ms = self.step.map(|step| step.compute_ms + all_reduce_ms);
        let samples = self.step.and_then(|step| step.batch_size).map(|batch| f64::from(batch) * self.shape.ranks());
        let below = estimate.pays_below(plain).0;
        Accelerated {
            transport,
            network_gbs: network,
            way: estimate.way,
            fastest: false,
            all_reduce_ms,
            step_ms,
            samples_per_s: samples.zip(step_ms).map(|(samples, step)| samples / step * 1e3),
            scaling_pct: self.step.zip(step_ms).map(|(step, whole)| 100.0 * step.compute_ms / whole),
            speed_up: 1.0,
            pays_below_gbs: Some(below).filter(|below| below.is_finite() && estimate.way != Way::Plain),
        }
    }

    fn assumptions(&self) -> Vec<String> {
        let report = "as in the fifth field report (16 V100, 25 Gbit/s)";
        let of = |transport: Transport| match transport {
            Transport::Tcp => Some(format!(
                "kernel TCP carries {:.1}% of the line, {report}, and 9.3 GB/s at most",
                TCP_SHARE * 100.0
            )),
            Transport::Plugin => {
                Some(format!("a net plugin carries {:.1}% of the line, {report}", PLUGIN_SHARE * 100.0))
            }
            Transport::Rdma => Some("RDMA carries 95% of the line, as in published tables".into()),
            Transport::Measured => None,
            Transport::Host => Some(format!("a rank sends {} GB/s within its host", self.speeds.host.0)),
        };
        let mut said: Vec<String> = self.transports().into_iter().filter_map(of).collect();
        if self.shape.hosts > 1 && self.speeds.select == SELECT {
            said.push(format!("a rank selects from {} GB/s of gradients, {report}", SELECT.0));
        }
        said.push("the backward pass hides nothing of the all-reduce".into());
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_BY_EIGHT: Shape = Shape { hosts: 2, ranks_per_host: 8 };
    const VGG16: Bytes = Bytes(138_357_544 * 4);
    const ONE_PERCENT: TopK = TopK { ratio: 0.01, value_bytes: 4 };
    const SPEEDS: Speeds = Speeds { host: GBps(100.0), select: SELECT, add: GBps(100.0), latency_us: 50.0 };

    fn report() -> Question {
        Question {
            shape: TWO_BY_EIGHT,
            gradients: VGG16,
            line: GBps(25.0 / 8.0),
            transports: vec![Transport::Tcp, Transport::Plugin],
            speeds: SPEEDS,
            top_k: ONE_PERCENT,
            // One GPU: 251 images/s.
            step: Some(Step { compute_ms: 128.0 / 251.0 * 1e3, batch_size: Some(128) }),
        }
    }

    /// What the report measured: images/s, and scaling in whole percent, cut.
    #[test]
    fn the_fifth_field_report() {
        let answer = Acceleration::of(&report());
        let find =
            |transport, way| answer.ways.iter().find(|found| found.transport == transport && found.way == way).unwrap();
        for (transport, way, images, scaling) in [
            (Transport::Tcp, Way::Plain, 847.0, 21.0),
            (Transport::Plugin, Way::Plain, 1644.0, 40.0),
            (Transport::Plugin, Way::Both, 3562.0, 88.0),
        ] {
            let found = find(transport, way);
            let said = found.samples_per_s.unwrap();
            assert!((said / images - 1.0).abs() < 0.01, "{transport:?} {way:?}: {said}, measured {images}");
            assert_eq!(found.scaling_pct.unwrap().floor(), scaling, "{transport:?} {way:?}");
        }
        let best = find(Transport::Plugin, Way::Both);
        assert!(best.fastest && (best.speed_up - 3562.0 / 847.0).abs() < 0.05, "{}", best.speed_up);
        assert_eq!(answer.ways.iter().filter(|way| way.fastest).count(), 1);
    }

    #[test]
    fn bytes_that_leave_a_host() {
        for (way, bytes) in [
            (Way::Plain, 2.0 * 15.0 / 16.0 * 1e6),
            (Way::Topk, 15.0 * 80.0),
            (Way::TwoLevel, 1e6),
            (Way::Both, 8.0 * 80.0),
        ] {
            assert_eq!(way.network_bytes(TWO_BY_EIGHT, 1e6, 80.0), bytes, "{way:?}");
        }
        // Two of 200 entries, of 4 and 4 bytes; three of 300: 12 bytes become 16.
        assert_eq!([200.0, 300.0].map(|entries| ONE_PERCENT.message_bytes(entries)), [16.0, 32.0]);
    }

    #[test]
    fn break_even_is_where_both_take_equally_long() {
        let estimate = |fixed_s, network_bytes| Estimate { way: Way::Plain, fixed_s, network_bytes };
        let (plain, topk) = (estimate(0.001, 1e9), estimate(0.011, 1e8));
        let speed = topk.pays_below(&plain);
        assert!((speed.0 - 90.0).abs() < 1e-9);
        assert!((topk.seconds(speed) - plain.seconds(speed)).abs() < 1e-12);
        assert_eq!(estimate(0.005, 1e8).pays_below(&estimate(0.01, 1e9)).0, f64::INFINITY);
        assert_eq!(estimate(0.005, 2e9).pays_below(&estimate(0.01, 1e9)).0, 0.0);
    }

    #[test]
    fn fast_networks_many_ranks_and_one_level() {
        let fastest = |question: &Question| {
            let answer = Acceleration::of(question);
            answer.ways.into_iter().find(|way| way.fastest).unwrap().way
        };
        let over = |transport, line| Question { transports: vec![transport], line: GBps(line), ..report() };
        for (question, way) in [
            (over(Transport::Rdma, 400.0), Way::Plain),
            (over(Transport::Measured, 3.0), Way::Both),
            (Question { shape: Shape { hosts: 4, ranks_per_host: 1 }, ..over(Transport::Measured, 0.1) }, Way::Topk),
            // Every rank's message goes around the whole ring: with 1% and two words an entry, it is even at 100 ranks.
            (Question { shape: Shape { hosts: 110, ranks_per_host: 1 }, ..over(Transport::Measured, 0.1) }, Way::Plain),
            (Question { shape: Shape { hosts: 90, ranks_per_host: 1 }, ..over(Transport::Measured, 0.001) }, Way::Topk),
        ] {
            assert_eq!(fastest(&question), way, "{question:?}");
        }
    }
}

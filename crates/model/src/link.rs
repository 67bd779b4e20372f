//! Point-to-point measurements: what each pair of ends reaches, for every pair of a list.

use crate::units::{Bytes, Micros};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What carried the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkTransport {
    /// TCP sockets, as NCCL's socket transport uses them.
    Tcp,
    /// RDMA, by the perftest programs.
    Rdma,
}

impl LinkTransport {
    /// `TCP` or `RDMA`.
    pub fn name(self) -> &'static str {
        match self {
            LinkTransport::Tcp => "TCP",
            LinkTransport::Rdma => "RDMA",
        }
    }
}

/// A host that took part, or one of its NICs where a host took part with several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkEnd {
    /// The host's name.
    pub host: String,
    /// The interface (`eth0`) or RDMA device (`mlx5_0`).
    pub nic: String,
    /// Where others reach it.
    pub address: String,
    /// What the NIC is sold as, in Gbit/s; none for virtual ones, whose figure means nothing.
    pub rate_gbit_s: Option<f64>,
    /// Settings that keep RoCE lossless, as far as the host tells them: `trust dscp, PFC on priorities 3`.
    #[serde(default)]
    pub quality_of_service: Option<String>,
    /// Why it took no part, or left early.
    pub trouble: Option<String>,
}

/// One direction between two ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "MeasuredLink", from = "MeasuredLink")]
pub struct Link {
    /// The sender, by its place in [`LinkRun::ends`].
    pub from: usize,
    /// Index of the receiving end.
    pub to: usize,
    /// What was measured, or why nothing was.
    pub outcome: Result<LinkFigures, String>,
}

/// What one direction reaches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LinkFigures {
    /// The best bandwidth of any size and number of flows.
    pub gbit_s: f64,
    /// The same while the other direction is busy too, where that was measured.
    pub gbit_s_both_ways: Option<f64>,
    /// One way from memory to memory: half a round trip of a small message.
    pub latency: Option<LinkLatency>,
    /// By number of flows (TCP connections, or queue pairs).
    pub flows: Vec<(u32, f64)>,
    /// By message size, with the number of flows that did best.
    pub sizes: Vec<(Bytes, f64)>,
    /// Counters that move when packets are lost or come out of order, and by how much they moved at either end.
    pub losses: Vec<(String, u64)>,
    /// The share of segments that TCP retransmitted.
    pub resent_share: Option<f64>,
}

/// Half round trips.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkLatency {
    /// Half of them are faster.
    pub median: Micros,
    /// 99 of 100 are faster.
    pub p99: Micros,
}

/// One direction as JSON has it: a link without figures has an error, and one with figures has none.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct MeasuredLink {
    /// The sender, by its place in `ends`.
    from: usize,
    /// Index of the receiving end.
    to: usize,
    /// Why nothing was measured.
    error: Option<String>,
    /// The best bandwidth of any size and number of flows.
    gbit_s: Option<f64>,
    /// The same while the other direction is busy too.
    #[serde(default)]
    gbit_s_both_ways: Option<f64>,
    /// One way from memory to memory: half a round trip of a small message. Half of them are faster.
    #[serde(default)]
    latency_median_us: Option<f64>,
    /// 99 of 100 are faster.
    #[serde(default)]
    latency_p99_us: Option<f64>,
    /// By number of flows.
    #[serde(default)]
    flows: Vec<ByFlows>,
    /// By message size, with the number of flows that did best.
    #[serde(default)]
    sizes: Vec<BySize>,
    /// Counters that move when packets are lost or come out of order, and by how much they moved at either end.
    #[serde(default)]
    losses: Vec<Loss>,
    /// The share of segments that TCP retransmitted.
    #[serde(default)]
    resent_share: Option<f64>,
}

/// A bandwidth by number of flows.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ByFlows {
    /// TCP connections, or queue pairs.
    #[schemars(range(min = 1))]
    flows: u32,
    /// Bandwidth in Gbit/s.
    gbit_s: f64,
}

/// A bandwidth by message size.
#[derive(Serialize, Deserialize, JsonSchema)]
struct BySize {
    /// Message size.
    #[schemars(range(min = 1))]
    size_bytes: Bytes,
    /// Bandwidth in Gbit/s.
    gbit_s: f64,
}

/// A counter that moved.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Loss {
    /// Name of the counter, as the kernel has it.
    counter: String,
    /// By how much it moved.
    #[schemars(range(min = 1))]
    count: u64,
}

impl From<Link> for MeasuredLink {
    fn from(Link { from, to, outcome }: Link) -> Self {
        let (figures, error) = match outcome {
            Ok(figures) => (figures, None),
            Err(reason) => (LinkFigures::default(), Some(reason)),
        };
        MeasuredLink {
            from,
            to,
            gbit_s: error.is_none().then_some(figures.gbit_s),
            error,
            gbit_s_both_ways: figures.gbit_s_both_ways,
            latency_median_us: figures.latency.map(|latency| latency.median.0),
            latency_p99_us: figures.latency.map(|latency| latency.p99.0),
            flows: figures.flows.into_iter().map(|(flows, gbit_s)| ByFlows { flows, gbit_s }).collect(),
            sizes: figures.sizes.into_iter().map(|(size_bytes, gbit_s)| BySize { size_bytes, gbit_s }).collect(),
            losses: figures.losses.into_iter().map(|(counter, count)| Loss { counter, count }).collect(),
            resent_share: figures.resent_share,
        }
    }
}

impl From<MeasuredLink> for Link {
    fn from(link: MeasuredLink) -> Self {
        let latency = link.latency_median_us.zip(link.latency_p99_us);
        let figures = link.gbit_s.map(|gbit_s| LinkFigures {
            gbit_s,
            gbit_s_both_ways: link.gbit_s_both_ways,
            latency: latency.map(|(median, p99)| LinkLatency { median: Micros(median), p99: Micros(p99) }),
            flows: link.flows.into_iter().map(|of| (of.flows, of.gbit_s)).collect(),
            sizes: link.sizes.into_iter().map(|of| (of.size_bytes, of.gbit_s)).collect(),
            losses: link.losses.into_iter().map(|of| (of.counter, of.count)).collect(),
            resent_share: link.resent_share,
        });
        Link { from: link.from, to: link.to, outcome: figures.ok_or(link.error.unwrap_or_default()) }
    }
}

/// All pairs of a list of ends, measured.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkRun {
    /// What carried the bytes.
    pub transport: LinkTransport,
    /// The ends, by rank.
    pub ends: Vec<LinkEnd>,
    /// Every ordered pair, but for those within a host where there are several hosts.
    pub links: Vec<Link>,
    /// What the user expects of each direction, in Gbit/s.
    pub expected_gbit_s: Option<f64>,
    /// Why it ended before all pairs were measured.
    pub interrupted: Option<String>,
}

impl LinkRun {
    /// The link from one end to another; `None` if it was not measured.
    pub fn link(&self, from: usize, to: usize) -> Option<&Link> {
        self.links.iter().find(|link| (link.from, link.to) == (from, to))
    }

    /// What a direction reaches, where it was measured.
    pub fn figures(&self, from: usize, to: usize) -> Option<&LinkFigures> {
        self.link(from, to)?.outcome.as_ref().ok()
    }

    /// How an end is called: by its host, and by its NIC as well where a host has several ends, and by its number where even
    /// that is not enough.
    pub fn name(&self, end: usize) -> String {
        let Some(this) = self.ends.get(end) else { return format!("rank {end}") };
        let alike = |same: &dyn Fn(&LinkEnd) -> bool| self.ends.iter().filter(|other| same(other)).count() > 1;
        if !alike(&|other| other.host == this.host) {
            return this.host.clone();
        }
        if !alike(&|other| (&other.host, &other.nic) == (&this.host, &this.nic)) {
            return format!("{}/{}", this.host, this.nic);
        }
        format!("{}#{end}", this.host)
    }
}

//! Point-to-point measurements: what each pair of ends reaches, for every pair of a list.

use crate::units::{Bytes, Micros};
use serde::{Deserialize, Serialize};

/// What carried the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct LinkEnd {
    /// The host's name.
    pub host: String,
    /// The interface (`eth0`) or RDMA device (`mlx5_0`).
    pub nic: String,
    /// Where others reach it.
    pub address: String,
    /// What the NIC is sold as, in Gbit/s; none for virtual ones, whose figure means nothing.
    pub rate_gbit_s: Option<f64>,
    /// Why it took no part, or left early.
    pub trouble: Option<String>,
}

/// One direction between two ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The sender, by its place in [`LinkRun::ends`].
    pub from: usize,
    /// The receiver.
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
    /// The share of TCP's segments that were sent again.
    pub resent_share: Option<f64>,
}

/// Half round trips.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkLatency {
    /// Half of them are faster.
    pub median: Micros,
    /// 99 of 100 are faster.
    pub p99: Micros,
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
    /// Why it ended before all pairs were measured.
    pub interrupted: Option<String>,
}

impl LinkRun {
    /// A direction.
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

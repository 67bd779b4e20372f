//! What is measured of every pair.

use busbw_model::{Bytes, LinkTransport};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which transport is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// RDMA where every end has an active device of hardware, else TCP.
    Auto,
    Tcp,
    Rdma,
}

/// What rank 0 has every pair do.
#[derive(Debug, Clone)]
pub struct Plan {
    pub transport: Choice,
    /// Message sizes, ascending; none for what suits transport and number of ends.
    pub sizes: Vec<Bytes>,
    /// Numbers of flows to compare, ascending; none for what suits the transport.
    pub flows: Vec<u32>,
    /// So many partners of each end at most; none for all.
    pub rounds: Option<usize>,
    /// Whether RDMA reads instead of writing.
    pub read: bool,
    /// Whether both directions are also measured at the same time.
    pub both_ways: bool,
    /// What each direction should reach, in Gbit/s, where the user says so.
    pub expected_gbit_s: Option<f64>,
    /// How long each figure is measured.
    pub duration: Duration,
    /// How long an end may keep others waiting before it counts as lost.
    pub timeout: Duration,
    pub rdma: RdmaChoice,
}

/// Which device, port and GID RDMA runs on. Every rank gets the same and finds its own in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaChoice {
    /// Devices, which the ranks of a host take in turn: `mlx5_0`, or `mlx5_0:2` for its second port. Without any, those
    /// whose port is active.
    pub devices: Vec<String>,
    /// The index of the GID; without, that of the first RoCE v2 GID of an IPv4 address, else of any RoCE v2 GID.
    pub gid_index: Option<u32>,
}

impl Plan {
    /// With sizes and flows filled in. Two ends have the time for a sweep; of more, each pair is measured at one size.
    pub(crate) fn completed(&self, transport: LinkTransport, ends: usize) -> Plan {
        let mut plan = self.clone();
        if plan.sizes.is_empty() {
            let (largest, sweep) = match transport {
                LinkTransport::Tcp => (4 << 20, &[64 << 10, 512 << 10][..]),
                LinkTransport::Rdma => (1 << 20, &[4 << 10, 64 << 10][..]),
            };
            let sweep = if ends == 2 { sweep } else { &[] };
            plan.sizes = sweep.iter().copied().chain([largest]).map(Bytes).collect();
        }
        if plan.flows.is_empty() {
            plan.flows = match transport {
                LinkTransport::Tcp => vec![1, 2, 4, 8, 16],
                LinkTransport::Rdma => vec![1, 4],
            };
        }
        plan
    }

    pub(crate) fn largest(&self) -> Bytes {
        self.sizes.last().copied().unwrap_or_default()
    }
}

//! Comparison of nodes and pairs, as JSON.

use busbw_model::{Blame, PeerGroup, Run, SlowPeer};
use schemars::JsonSchema;
use serde::Serialize;

/// Measurements of one kind, of different nodes: peers that should be equally fast.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Peers")]
pub(super) struct PeerGroupView<'a> {
    #[serde(flatten)]
    group: &'a PeerGroup,
    /// Who is far below the median, the slowest first.
    slow: Vec<SlowPeerView<'a>>,
}

/// A node, or nodes together, far below the peers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SlowPeer")]
struct SlowPeerView<'a> {
    /// One node, or those that were measured together.
    hosts: &'a [String],
    /// What they reach; of several measurements the median.
    value: f64,
    /// The same as a share of the median of all.
    share_of_median: f64,
    /// How many measurements show it.
    #[schemars(range(min = 1))]
    measurements: usize,
    /// What is to blame.
    blame: Blame,
    /// The input with the slowest measurement.
    input: &'a str,
}

impl<'a> PeerGroupView<'a> {
    pub(super) fn new(run: &'a Run, group: &'a PeerGroup) -> Self {
        let slow = |peer: &'a SlowPeer| SlowPeerView {
            hosts: &peer.hosts,
            value: peer.value,
            share_of_median: group.share(peer),
            measurements: peer.measurements,
            blame: peer.blame,
            input: run.path(peer.source.place),
        };
        PeerGroupView { group, slow: group.slow.iter().map(slow).collect() }
    }
}

//! Nodes and pairs held against each other, as the document shows them.

use busbw_model::{PeerGroup, Run, SlowPeer};
use serde::Serialize;

/// A group of peers.
#[derive(Serialize)]
pub(super) struct PeerGroupView<'a> {
    what: &'a str,
    unit: &'a str,
    nodes: usize,
    measured: usize,
    usual: usize,
    median: f64,
    deviation: f64,
    least: f64,
    most: f64,
    slow: Vec<SlowPeerView<'a>>,
}

#[derive(Serialize)]
struct SlowPeerView<'a> {
    hosts: &'a [String],
    value: f64,
    share_of_median: f64,
    measurements: usize,
    blame: &'static str,
    input: &'a str,
}

impl<'a> PeerGroupView<'a> {
    pub(super) fn new(run: &'a Run, group: &'a PeerGroup) -> Self {
        let slow = |peer: &'a SlowPeer| SlowPeerView {
            hosts: &peer.hosts,
            value: peer.value,
            share_of_median: group.share(peer),
            measurements: peer.measurements,
            blame: peer.blame.as_str(),
            input: run.path(peer.source.place),
        };
        PeerGroupView {
            what: &group.what,
            unit: group.unit,
            nodes: group.nodes,
            measured: group.measured,
            usual: group.usual,
            median: group.median,
            deviation: group.deviation,
            least: group.least,
            most: group.most,
            slow: group.slow.iter().map(slow).collect(),
        }
    }
}

//! Comparison of nodes and pairs, as a table per group.

use super::markup::{escape, more, section, table};
use crate::words;
use busbw_model::{Diagnosis, PeerGroup, SlowPeer};

/// Groups of peers that are shown at most.
const MAX_GROUPS: usize = 20;
/// Slow ones that are listed at most, the slowest first.
const MAX_SLOW: usize = 50;

/// Every group: what was compared, then the slow ones.
pub(super) fn peers(diagnosis: &Diagnosis) -> String {
    if diagnosis.peers.is_empty() {
        return String::new();
    }
    let groups: String = diagnosis.peers.iter().take(MAX_GROUPS).map(group).collect();
    section("Compared with each other", &(groups + &more(diagnosis.peers.len(), MAX_GROUPS)))
}

fn group(group: &PeerGroup) -> String {
    let caption = format!("<p>{}</p>\n", escape(&words::peers(group)));
    if group.slow.is_empty() {
        return caption;
    }
    let row = |peer: &SlowPeer| {
        let share = format!("{:.0}%", 100.0 * group.share(peer));
        let count = peer.measurements.to_string();
        vec![peer.name(), group.figure(peer.value), share, count, words::blame(peer.blame).to_owned()]
    };
    let head = ["who is slow", group.unit, "of the median", "measurements", "what that says"];
    caption + &table(&head, group.slow.iter().take(MAX_SLOW).map(row)) + &more(group.slow.len(), MAX_SLOW)
}

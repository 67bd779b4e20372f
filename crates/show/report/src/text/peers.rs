//! Comparison of nodes and pairs, as text: the spread, and the outliers.

use super::page::Page;
use crate::style::{left, right, widest};
use crate::words;
use busbw_model::{Diagnosis, PeerGroup, SlowPeer};

/// Groups of peers that are shown at most.
const MAX_GROUPS: usize = 4;
/// Slow ones that are listed at most, the slowest first.
const MAX_SLOW: usize = 10;

/// Every group: what was compared, then the slow ones.
pub(super) fn peers(page: &mut Page, diagnosis: &Diagnosis) {
    if diagnosis.peers.is_empty() {
        return;
    }
    page.heading("Compared with each other");
    for group in diagnosis.peers.iter().take(MAX_GROUPS) {
        page.indented(2, &words::peers(group));
        slow(page, group);
    }
    page.more(diagnosis.peers.len(), MAX_GROUPS);
}

fn slow(page: &mut Page, group: &PeerGroup) {
    let cells = |peer: &SlowPeer| {
        let share = format!("{:.0}%", 100.0 * group.share(peer));
        [peer.name(), group.figure(peer.value), share, words::counted(peer.measurements, "measurement")]
    };
    let rows: Vec<[String; 4]> = group.slow.iter().take(MAX_SLOW).map(cells).collect();
    let width = |cell: usize| widest(rows.iter().map(|row| &row[cell]));
    let widths = [width(0), width(1), width(2)];
    for ([name, figure, share, count], peer) in rows.iter().zip(&group.slow) {
        let figures = [left(name, widths[0]), right(figure, widths[1]), right(share, widths[2])].join("  ");
        page.clipped(4, &format!("{figures} of the median, {count}: {}", words::blame(peer.blame)));
    }
    page.more(group.slow.len(), MAX_SLOW);
}

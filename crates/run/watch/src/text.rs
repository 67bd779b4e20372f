//! What is seen, as text: a block per sample.

use crate::tracker::Tracker;
use busbw_model::{Watched, WatchedPeer, WatchedRank};
use busbw_monitor::time::time_of_day;
use std::collections::HashMap;
use std::time::Duration;

/// The columns of a block: rank, host, process, state, cores, bytes per second, when bytes moved last, what it waits for.
pub(crate) const HEAD: [&str; 8] = ["rank", "host", "pid", "state", "cores", "MB/s", "moved", "waits for"];

/// Makes blocks; remembers the last, for rates.
#[derive(Debug, Default)]
pub struct Blocks {
    before: HashMap<u32, (u64, u64)>,
}

/// A rank as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub cells: [String; 8],
    /// Whether it needs to be looked at.
    pub odd: bool,
}

impl Blocks {
    /// The rows of a sample, by rank.
    pub fn rows(&mut self, facts: &Watched) -> Vec<Row> {
        let row = |rank: &WatchedRank| {
            let before = self.before.insert(rank.pid, (facts.time_us, rank.moved_bytes));
            let rate = before
                .filter(|(at, _)| *at < facts.time_us)
                .map(|(at, bytes)| rank.moved_bytes.saturating_sub(bytes) as f64 / (facts.time_us - at) as f64);
            let state = match rank.ended {
                Some(end) => match (end.signal, end.status) {
                    (Some(signal), _) => format!("killed by signal {signal}"),
                    (None, Some(status)) => format!("exit status {status}"),
                    (None, None) => "ended".into(),
                },
                None => rank.state.as_str().into(),
            };
            let cells = [
                rank.rank.to_string(),
                rank.host.clone(),
                rank.pid.to_string(),
                state,
                format!("{:.2}", rank.cores),
                rate.map_or("-".into(), |rate| format!("{rate:.1}")),
                rank.moved_us.map_or("never".into(), time_of_day),
                waits_for(rank),
            ];
            let odd = rank.is_stopped()
                || rank.ended.is_some_and(|end| end.failed())
                || rank.peers.iter().any(|peer| peer.unanswered_since_us.is_some());
            Row { cells, odd }
        };
        facts.ranks.iter().map(row).collect()
    }

    /// A block of text.
    pub fn block(&mut self, facts: &Watched, tracker: &Tracker) -> String {
        let rows = self.rows(facts);
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row.cells[at].chars().count());
            cells.chain([HEAD[at].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
        let line = |cells: [&str; 8]| {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
        };
        let mut text = format!("{}\n{}", summary(facts, tracker.moved_us(), tracker.limit()), line(HEAD));
        rows.iter().for_each(|row| text.push_str(&line(row.cells.each_ref().map(String::as_str))));
        text.push('\n');
        text
    }
}

/// `14:03:22  4 of 8 ranks are here; the last bytes moved at 14:03:21, limit 30 s`.
pub fn summary(facts: &Watched, moved_us: Option<u64>, limit: Duration) -> String {
    let all = facts.nranks.unwrap_or(0);
    let moved = moved_us.map_or("no bytes moved yet".into(), |at| format!("bytes moved last at {}", time_of_day(at)));
    let limit = limit.as_secs();
    let stall = if facts.stall.is_some() { "STALLED, " } else { "" };
    format!(
        "{}  {} of {all} ranks are here; {stall}{moved}, limit {limit} s",
        time_of_day(facts.time_us),
        facts.ranks.len()
    )
}

/// What a rank waits for: who does not answer or read, else the system call.
fn waits_for(rank: &WatchedRank) -> String {
    let name = |peer: &WatchedPeer| match (peer.rank, &peer.host) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(host)) => host.clone(),
        (None, None) => peer.address.clone(),
    };
    let silent = rank.peers.iter().find(|peer| peer.unanswered_since_us.is_some());
    let full = rank.peers.iter().find(|peer| peer.full);
    match (silent, full) {
        (Some(peer), _) => format!("{}: {} bytes not acknowledged", name(peer), peer.unacknowledged_bytes),
        (None, Some(peer)) => format!("{}: it has no room for {} bytes", name(peer), peer.unacknowledged_bytes),
        _ => rank.system_call.clone().unwrap_or_default(),
    }
}

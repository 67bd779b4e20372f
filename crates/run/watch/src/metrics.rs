//! What is seen, as metrics for Prometheus.

use crate::tracker::Tracker;
use busbw_model::Watched;
use busbw_model::metrics::Metrics;

/// The metrics of a sample.
pub fn of(facts: &Watched, tracker: &Tracker) -> Metrics {
    let mut metrics = Metrics::default();
    let seconds = |us: u64| us as f64 / 1e6;
    let stalled = f64::from(u8::from(facts.stall.is_some()));
    metrics.gauge(
        "busbw_watch_stalled",
        "1 while nothing moves between the ranks for longer than the limit.",
        &[],
        stalled,
    );
    metrics.gauge("busbw_watch_limit_seconds", "The limit.", &[], tracker.limit().as_secs_f64());
    metrics.gauge("busbw_watch_ranks", "Ranks on this host.", &[], facts.ranks.len() as f64);
    if let Some(moved_us) = tracker.moved_us() {
        metrics.gauge(
            "busbw_watch_moved_timestamp_seconds",
            "When bytes between ranks moved last.",
            &[],
            seconds(moved_us),
        );
    }
    for rank in &facts.ranks {
        let (number, pid) = (rank.rank.to_string(), rank.pid.to_string());
        let labels = [("rank", &*number), ("host", &*rank.host), ("pid", &*pid)];
        let silent: u64 =
            rank.peers.iter().filter(|peer| peer.unanswered_since_us.is_some()).map(|p| p.unacknowledged_bytes).sum();
        let running = f64::from(u8::from(rank.ended.is_none()));
        metrics.gauge("busbw_watch_rank_running", "1 while the rank's process is there.", &labels, running);
        let stopped = f64::from(u8::from(rank.is_stopped()));
        metrics.gauge("busbw_watch_rank_stopped", "1 while a signal or a debugger holds it.", &labels, stopped);
        metrics.gauge("busbw_watch_rank_cores", "Cores that it and its helpers use.", &labels, rank.cores);
        let bytes = rank.moved_bytes as f64;
        metrics.counter("busbw_watch_rank_bytes_total", "Bytes that it exchanged with other ranks.", &labels, bytes);
        let name = "busbw_watch_rank_unacknowledged_bytes";
        metrics.gauge(name, "Bytes that it retransmits, and nobody acknowledges.", &labels, silent as f64);
    }
    metrics
}

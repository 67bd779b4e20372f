//! Bandwidth between nodes that falls as messages grow: flows share links of the fabric.
//!
//! Messages that outgrow the buffers of NICs and switches need a steady rate. Where flows are hashed over equal-cost
//! links (ECMP), two large ones on a link get half each, and every ring waits for its slowest connection.

use crate::case::{Case, Network, Test};
use crate::words::listed;
use busbw_model::{Code, Communicator, Crossing, Evidence, Finding, Run, Severity};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Finds tables over several nodes whose busbw falls behind its peak.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.tests.iter().filter_map(|test| congestion(case.run, test)).take(1).collect()
}

fn congestion(run: &Run, test: &Test) -> Option<Finding> {
    let fall = test.curve.fall.as_ref()?;
    if !test.crosses_nodes() || test.network() == Some(Network::Socket) {
        return None;
    }
    if single_flow(run, test) {
        return dropped(run, test);
    }
    let crossings = test.comm.map(Communicator::crossings).unwrap_or_default();
    let paths = Paths::of(test.comm, &crossings);
    let (peak, last) = (test.curve.peak, fall.last);
    let title = format!(
        "busbw falls from {peak} at {} to {last} at {}: large flows between the nodes share links",
        test.curve.peak_row.size, fall.last_row.size
    );
    Some(Finding {
        code: Code::FabricCongestion,
        severity: Severity::Warning,
        confidence: confidence(test, &paths),
        title,
        explanation: explanation(test, &crossings, &paths),
        evidence: evidence(run, test),
        remedy: remedy(),
        expected_gain: None,
    })
}

/// Whether one flow goes each way: between two hosts of one rank, or of one NIC, nothing is shared.
pub(super) fn single_flow(run: &Run, test: &Test) -> bool {
    let nics = run.nodes.iter().map(|node| node.nics.len()).max().unwrap_or(0);
    test.nodes == Some(2) && (test.table.nranks == Some(2) || nics == 1)
}

/// Below this share of its peak a curve shows no links that are shared: packets are lost and sent again.
const COLLAPSE: f64 = 0.2;

/// RoCE without flow control, where nothing else shares the link (a maintainer's answer in NVIDIA/nccl issue 378).
fn dropped(run: &Run, test: &Test) -> Option<Finding> {
    let fall = test.curve.fall.as_ref().filter(|fall| fall.left < COLLAPSE)?;
    let mut links = run.nodes.iter().flat_map(|node| &node.nics).filter_map(|nic| nic.link.as_deref());
    links.any(|link| link == "RoCE").then(|| Finding {
        code: Code::RoceConfig,
        severity: Severity::Warning,
        confidence: 0.65,
        title: format!("busbw collapses from {} to {} over RoCE, as where packets are dropped", test.curve.peak, fall.last),
        explanation: "One NIC of each host carries everything, so no links are shared. RoCE needs a network that drops nothing: \
                      without priority flow control or pause frames, messages that outgrow the switch's buffers are sent again and \
                      again."
            .into(),
        evidence: evidence(run, test),
        remedy: vec![
            "Set flow control for RoCE's priority on all NICs and all switch ports between them, and see it: `mlnx_qos -i eth0`".into(),
            "See whether packets are lost: `ethtool -S eth0 | grep -E 'discard|pause'` before and after the test".into(),
        ],
        expected_gain: None,
    })
}

/// The GPU pairs over which rings leave their node.
struct Paths {
    /// Different pairs of local GPUs in one direction between two nodes: what NICs can work for in parallel.
    pairs_per_direction: usize,
    /// Channels that share one ordered pair, the most of any.
    channels_per_pair: usize,
    channels: usize,
}

impl Paths {
    fn of(comm: Option<&Communicator>, crossings: &[Crossing]) -> Option<Self> {
        let comm = comm?;
        let direction = |c: &Crossing| Some((comm.node_of(c.from)?, comm.node_of(c.to)?));
        let first = crossings.first().and_then(direction)?;
        let pairs_per_direction = crossings.iter().filter(|c| direction(c) == Some(first)).count();
        let channels_per_pair = crossings.iter().map(|c| c.channels.len()).max()?;
        let channels: BTreeSet<u16> = crossings.iter().flat_map(|c| c.channels.iter().copied()).collect();
        Some(Paths { pairs_per_direction, channels_per_pair, channels: channels.len() })
    }

    /// Few pairs that carry several channels each make few, large flows.
    fn few_large_flows(&self) -> bool {
        self.pairs_per_direction <= 16 && self.channels_per_pair > 1
    }
}

/// A fall alone has other causes (a thermal limit, a slow node, other traffic); few large flows speak for the fabric.
fn confidence(test: &Test, paths: &Option<Paths>) -> f64 {
    let mut confidence: f64 = 0.55;
    if test.curve.fall.as_ref().is_some_and(|f| f.both_halves) {
        confidence += 0.1;
    }
    if paths.as_ref().is_some_and(Paths::few_large_flows) {
        confidence += 0.2;
    }
    if test.curve.fall.as_ref().is_some_and(|f| f.left < 0.75) {
        confidence += 0.05;
    }
    confidence
}

fn explanation(test: &Test, crossings: &[Crossing], paths: &Option<Paths>) -> String {
    let mut text = String::from(
        "A sound fabric gives a curve that rises and stays: once messages are large, every further doubling takes twice \
         the time. This one rises and then falls",
    );
    if test.curve.fall.as_ref().is_some_and(|f| f.both_halves) {
        text.push_str(", out of place and in place alike, so it is no chance of one measurement");
    }
    text.push_str(
        ". GPUs and NVLink do not slow down as messages grow; what does is a network in which flows share links: \
         switches hash each flow onto one of several equal-cost links (ECMP), short messages fit the buffers, long ones \
         do not, and then a link that carries two flows gives each half while another link stays idle. A ring moves at \
         the pace of its slowest connection.",
    );
    if let (Some(comm), Some(paths)) = (test.comm, paths) {
        let _ = write!(
            text,
            "\n\nThe {} rings of the log leave a node over {} ordered rank pairs only: {}. ",
            paths.channels,
            crossings.len(),
            list_pairs(crossings)
        );
        let _ = write!(
            text,
            "So {} GPU pairs in each direction carry all traffic between the nodes, {} channels on each",
            in_words(paths.pairs_per_direction),
            paths.channels_per_pair
        );
        text.push_str(": few flows, all of them large, which hashing spreads badly.");
        if crossings.iter().all(|c| changes_rail(comm, c)) {
            text.push_str(
                " None of them connects GPUs of the same index, so with NICs near their GPUs the traffic changes rail \
                 and has to pass from switch to switch.",
            );
        }
    } else {
        text.push_str(
            "\n\nThe input holds no ring lines (`Channel 00/16 : 0 7 5 …`), so which ranks meet across nodes is not \
             known. Run once with NCCL_DEBUG=INFO and give that log as well: it names the rank pairs that share the links.",
        );
    }
    text
}

/// Whether a crossing leads to a GPU of another index on its node.
fn changes_rail(comm: &Communicator, crossing: &Crossing) -> bool {
    let device = |rank| comm.ranks.get(&rank).and_then(|r| r.device);
    matches!((device(crossing.from), device(crossing.to)), (Some(a), Some(b)) if a != b)
}

fn list_pairs(crossings: &[Crossing]) -> String {
    listed(crossings.iter().map(|c| format!("{}→{}", c.from, c.to)), 16)
}

fn in_words(count: usize) -> String {
    const WORDS: [&str; 9] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"];
    WORDS.get(count).map_or_else(|| count.to_string(), ToString::to_string)
}

fn evidence(run: &Run, test: &Test) -> Vec<Evidence> {
    let mut evidence =
        vec![Evidence::noted(test.curve.peak_row.source.clone(), format!("{:.2}: the peak", test.curve.peak.0))];
    if let Some(fall) = &test.curve.fall {
        evidence.push(Evidence::noted(
            fall.last_row.source.clone(),
            format!("{:.2}: {:.0}% of the peak", fall.last.0, 100.0 * fall.last.0 / test.curve.peak.0),
        ));
    }
    let Some(comm) = test.comm else { return evidence };
    let mut seen = BTreeSet::new();
    for channel in comm.channels.values() {
        let Some(ring) = &channel.ring else { continue };
        let leaving: Vec<String> = ring
            .pairs()
            .filter(|(a, b)| comm.node_of(*a) != comm.node_of(*b))
            .map(|(a, b)| format!("{a}→{b}"))
            .collect();
        // Channels repeat a few patterns: one line of each shows them all.
        if seen.len() < 4
            && seen.insert(leaving.clone())
            && let Some(line) = run.line(ring.place)
        {
            evidence.push(Evidence::noted(line, format!("leaves the node at {}", leaving.join(" and "))));
        }
    }
    evidence
}

fn remedy() -> Vec<String> {
    [
        "Cable by rail: NIC i of every node to switch i, so that GPUs of the same index meet on one switch and no large flow \
         crosses between switches. In the field report behind this rule that took four GPUs per machine from 34 to about 195 GB/s, \
         what NICs wired back to back reach.",
        "Where cables must stay, spread each connection over more flows, so that hashing has more to work with: \
         `export NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=1`",
        "Turn on adaptive routing or packet spraying on the switches (InfiniBand SL with AR, Spectrum-X RoCE adaptive routing), \
         then `export NCCL_IB_ADAPTIVE_ROUTING=1`",
        "See it happen: while the test runs, watch the counters of every port on both nodes; CNPs and out-of-sequence packets that \
         rise with large sizes show links that are shared. `for d in /sys/class/infiniband/*/ports/1/hw_counters; do echo \"$d \
         cnp=$(cat $d/np_cnp_sent 2>/dev/null) ooo=$(cat $d/out_of_sequence 2>/dev/null)\"; done`",
        "Rule out a slow NIC: run `ib_write_bw` between the paired NICs of the two nodes, one pair at a time and then all at once; \
         alone each should reach its line rate.",
    ]
    .map(str::to_string)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    /// Three nodes of eight GPUs (NVIDIA/nccl issue 1453): the table alone, without its list of devices.
    #[test]
    fn a_fall_is_seen_without_a_list_of_devices_where_no_node_has_so_many_ranks() {
        let head = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
        let row = |mib: u64, time: f64, factor: f64| {
            let (bytes, algbw) = (mib << 20, (mib << 20) as f64 / time / 1e3);
            let half = format!("{time:.1} {algbw:.2} {:.2} 0", algbw * factor);
            format!("{bytes} {} float sum -1 {half} {half}\n", bytes / 4)
        };
        for (ranks, told) in [(24.0, true), (16.0, true), (8.0, false)] {
            let factor = 2.0 * (ranks - 1.0) / ranks;
            let times = [(16, 1335.0), (32, 2180.0), (64, 24410.0), (128, 49264.0), (256, 125_807.0)];
            let rows: String = times.iter().map(|(mib, time)| row(*mib, *time, factor)).collect();
            let run = busbw_ingest::read_bytes(&[("table", (head.to_string() + &rows).as_bytes())]).expect("text");
            assert_eq!(rule(&Case::new(&run)).iter().any(|f| f.code == Code::FabricCongestion), told, "{ranks}");
            // One NIC of a host on RoCE: nothing is shared.
            let nic = "a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE ; OOB eth1:10.0.0.1<0>\n";
            let devices: String = (0..2)
                .map(|rank| format!("#  Rank {rank} Pid 1 on node{rank} device 0 [0x10] Tesla V100-SXM2-32GB\n"))
                .collect();
            let text = format!("{nic}# Using devices\n{devices}{head}{rows}");
            let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
            assert_eq!(rule(&Case::new(&run)).first().map(|finding| finding.code), Some(Code::RoceConfig));
        }
    }
}

//! Shapes of a table that no hardware gives: a size out of line with its neighbours, bandwidth that breaks down.

use super::Draft;
use super::fabric_congestion::single_flow;
use crate::case::{Case, Network, Test};
use busbw_model::{BenchRow, Bytes, Code, Evidence, Finding, Measure, Severity};

/// Below this size times are latency, which jumps where NCCL changes protocol.
const FROM: Bytes = Bytes(1 << 20);
/// A size is out of line when it reaches less than this share of both neighbours.
const DIP: f64 = 0.5;

/// What is left of the peak when bandwidth breaks down.
const BROKEN_DOWN: f64 = 0.6;

/// A dip at one size, in one half or both; else a breakdown.
pub fn rule(case: &Case) -> Vec<Finding> {
    let broken = || case.tests.iter().find_map(|test| breakdown(case, test));
    case.tests.iter().find_map(dip).or_else(broken).into_iter().collect()
}

/// Bandwidth that falls behind its peak where no network explains it, or sockets do ([`super::fabric_congestion`] tells of
/// RDMA's).
fn breakdown(case: &Case, test: &Test) -> Option<Finding> {
    let fall = test.curve.fall.as_ref().filter(|fall| fall.both_halves && fall.left < BROKEN_DOWN)?;
    let sockets = test.network() == Some(Network::Socket);
    if test.crosses_nodes() && !sockets && !single_flow(case.run, test) {
        return None;
    }
    let (code, explanation, remedy): (_, &str, &[&str]) = match sockets {
        true => (
            Code::SocketTuning,
            "Over sockets large messages fill buffers and queues that small ones do not: packets are dropped and sent again, flows \
             share a link or a core, or a cloud's allowance for bursts is used up.",
            &[
                "See whether packets are sent again: `nstat -az TcpRetransSegs` before and after, and drops: `ethtool -S IFACE | grep -iE 'drop|discard'`",
                "Measure the link by itself for a minute: `iperf3 -c OTHER_NODE -t 60 -P 1` and `-P 8`",
            ],
        ),
        false => (
            Code::StragglerNode,
            "Bandwidth rises with the size and then stays, on every sound machine. What breaks down under load is a GPU that gets hot or \
             runs out of power, a link that falls back or repeats, other traffic, or, between nodes, flows that share links.",
            &[
                "Look while it runs: `nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE`; `busbw monitor` for ports",
                "Give the output with its list of devices and `NCCL_DEBUG=INFO`: it tells nodes and network",
            ],
        ),
    };
    let (peak, at) = (test.curve.peak, test.curve.peak_row.size);
    let draft = Draft {
        code,
        severity: Severity::Warning,
        confidence: 0.5,
        title: format!("busbw breaks down from {peak} at {at} to {} at {}", fall.last, fall.last_row.size),
        explanation: explanation.into(),
    };
    let evidence = [(test.curve.peak_row, "the peak"), (fall.last_row, "what is left")];
    Some(draft.finding(evidence.map(|(row, what)| Evidence::noted(row.source.clone(), what)).into(), remedy))
}

fn dip(test: &Test) -> Option<Finding> {
    let halves: [fn(&BenchRow) -> Option<&Measure>; 2] = [|row| row.out_of_place.as_ref(), |row| row.in_place.as_ref()];
    let rows: Vec<&BenchRow> = test.table.rows.iter().filter(|row| row.size >= FROM).collect();
    let (row, busbw, usual) = rows.windows(3).find_map(|window| {
        let grows = window[0].size < window[1].size && window[1].size < window[2].size;
        halves.iter().filter(|_| grows).find_map(|half| {
            let busbw = |row: &BenchRow| half(row).map(|m| m.busbw.0);
            let (before, here, after) = (busbw(window[0])?, busbw(window[1])?, busbw(window[2])?);
            (here < DIP * before.min(after)).then_some((window[1], here, before.min(after)))
        })
    })?;
    let draft = Draft {
        code: Code::StragglerNode,
        severity: Severity::Info,
        confidence: 0.4,
        title: format!("{} is out of line: {busbw:.1} GB/s between sizes that reach {usual:.1} and more", row.size),
        explanation: "A single size far below its neighbours is no property of the hardware. Either something disturbed the measurement (one \
                      node was late, other traffic, a link that recovered), or NCCL changes algorithm or protocol badly at this size."
            .into(),
    };
    Some(draft.finding(
        vec![Evidence::noted(row.source.clone(), "out of line")],
        &[
            "Measure again with more iterations: `-n 100 -w 20`; a dip that stays at the same size is NCCL's choice, one that wanders is a node or the network",
            "For a dip that stays: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING` shows the choice; try a newer NCCL",
        ],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of eight ranks with these bandwidths from 16 MiB on, in both halves.
    fn found(busbw: &[f64]) -> Option<Code> {
        let head = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
        let row = |(at, busbw): (usize, &f64)| {
            let (bytes, algbw) = (16u64 << 20 << at, busbw / 1.75);
            let half = format!("{:.1} {algbw:.2} {busbw:.2} 0", bytes as f64 / algbw / 1e3);
            format!("{bytes} {} float sum -1 {half} {half}\n", bytes / 4)
        };
        let text = head.to_string() + &busbw.iter().enumerate().map(row).collect::<String>();
        let run = busbw_ingest::read_bytes(&[("table", text.as_bytes())]).expect("text");
        rule(&Case::new(&run)).first().map(|finding| finding.code)
    }

    #[test]
    fn what_breaks_down_and_what_dips_is_told() {
        assert_eq!(found(&[5.2, 1.5, 1.1, 1.4]), Some(Code::StragglerNode));
        assert_eq!(found(&[180.0, 60.0, 220.0, 230.0]), Some(Code::StragglerNode));
        assert_eq!(found(&[180.0, 210.0, 220.0, 230.0]), None);
        assert_eq!(found(&[269.0, 240.0, 230.0, 227.0]), None);
    }
}

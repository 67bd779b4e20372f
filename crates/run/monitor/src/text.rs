//! A moment as text, in the names that RDMA monitors print, which `busbw explain` reads.

use crate::known::Quantity;
use crate::moment::{Moment, Row};
use crate::time::utc;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes a moment: a rule, the time, then `name: total (lane/lane)`. Rates are Gbit/s; counts are those of the interval.
/// The lanes are the RDMA ports, for a bond its members where they count what goes over the wire; without RDMA, the network
/// interfaces.
pub fn block(moment: &Moment) -> String {
    let lanes = lanes(moment);
    let mut out = format!("------\n{}\n", utc(moment.time_us));
    let seconds = moment.interval_us.unwrap_or(0) as f64 / 1e6;
    rates(&mut out, &lanes, seconds);
    counts(&mut out, moment, &lanes, seconds);
    host(&mut out, moment, seconds);
    out.push_str("------\n");
    out
}

/// Whose values follow, of which ports those in brackets are, and in what units.
pub fn legend(moment: &Moment) -> String {
    let lanes: Vec<String> = lanes(moment).iter().map(|row| row.device.to_string()).collect();
    let ports = if lanes.is_empty() { "no port".to_owned() } else { lanes.join(" / ") };
    format!("{}: {ports}; rates in Gbit/s, durations in µs, counts of the interval\n", moment.host.name)
}

fn lanes(moment: &Moment) -> Vec<&Row> {
    let tops: Vec<&Row> = moment.rows.iter().filter(|row| row.below.is_none()).collect();
    let any_rdma = tops.iter().any(|row| row.is_rdma());
    let wires = |top: &&Row| {
        let counts = |row: &Row| row.rates.contains_key(&Quantity::WireTxBytes);
        let members: Vec<&Row> = moment
            .rows
            .iter()
            .filter(|row| row.below.as_ref() == Some(&top.device) && row.member_of.is_some())
            .collect();
        (!members.is_empty() && members.iter().all(|row| counts(row))).then_some(members)
    };
    let chosen = tops.into_iter().filter(|row| row.is_rdma() == any_rdma);
    chosen.flat_map(|top| wires(&top).unwrap_or_else(|| vec![top])).collect()
}

fn rates(out: &mut String, lanes: &[&Row], seconds: f64) {
    let mut rate = |name, rates: Vec<Option<f64>>| {
        line(out, name, rates.into_iter().map(Option::unwrap_or_default), |rate| format!("{rate:.3}"));
    };
    rate("tx_rate", lanes.iter().map(|row| row.tx_gbit_s()).collect());
    rate("rx_rate", lanes.iter().map(|row| row.rx_gbit_s()).collect());
    for quantity in [Quantity::TxPause, Quantity::RxPause, Quantity::TxPauseUs, Quantity::RxPauseUs] {
        let name = match quantity {
            Quantity::TxPause => "tx_pause",
            Quantity::RxPause => "rx_pause",
            Quantity::TxPauseUs => "tx_pause_duration",
            _ => "rx_pause_duration",
        };
        line(out, name, lanes.iter().map(|row| row.rate(quantity).unwrap_or(0.0) * seconds), |count| {
            format!("{count:.0}")
        });
    }
}

/// `name: total (lane/lane)`, the brackets only where there are several lanes.
fn line(out: &mut String, name: &str, values: impl Iterator<Item = f64>, shown: impl Fn(f64) -> String) {
    let values: Vec<f64> = values.collect();
    let _ = write!(out, "{name}: {}", shown(values.iter().fold(0.0, |sum, value| sum + value)));
    if values.len() > 1 {
        let each: Vec<String> = values.iter().map(|value| shown(*value)).collect();
        let _ = write!(out, " ({})", each.join("/"));
    }
    out.push('\n');
}

fn counts(out: &mut String, moment: &Moment, lanes: &[&Row], seconds: f64) {
    let tops = || moment.rows.iter().filter(|row| row.below.is_none());
    let total = |quantity| tops().filter_map(|row| row.rate(quantity)).fold(0.0, |sum, rate| sum + rate) * seconds;
    let mut count = |name: &str, quantity| {
        let _ = writeln!(out, "{name}: {:.0}", total(quantity));
    };
    count("np_cnp_sent", Quantity::CnpSent);
    count("rp_cnp_handled", Quantity::CnpHandled);
    let queue_pairs: u32 = moment.owners.iter().map(|owner| owner.queue_pairs.count).sum();
    let _ = writeln!(out, "num_of_qp: {queue_pairs}");
    for (name, quantity) in [
        ("np_ecn_marked", Quantity::EcnMarked),
        ("rp_cnp_ignored", Quantity::CnpIgnored),
        ("out_of_buffer", Quantity::OutOfBuffer),
        ("out_of_seq", Quantity::OutOfSequence),
        ("packet_seq_err", Quantity::PacketSequenceErrors),
        ("local_ack_timeout_err", Quantity::AckTimeouts),
        ("rnr_nak_retry_err", Quantity::RnrNaks),
        ("roce_retransmissions", Quantity::Retransmissions),
        ("port_discards", Quantity::Discards),
        ("port_errors", Quantity::Errors),
        ("symbol_error", Quantity::SymbolErrors),
        ("link_downed", Quantity::LinkDowns),
    ] {
        let _ = writeln!(out, "{name}: {:.0}", total(quantity));
    }
    priorities(out, lanes);
}

/// Rates per priority, where the drivers count them: priority 0, and those that carry anything.
fn priorities(out: &mut String, lanes: &[&Row]) {
    let mut by_name: BTreeMap<(u8, &str), Vec<f64>> = BTreeMap::new();
    for (at, row) in lanes.iter().enumerate() {
        for counter in &row.counters {
            let direction = counter.name.get(..7).filter(|start| matches!(*start, "tx_prio" | "rx_prio"));
            let priority = counter.name.get(7..).and_then(|rest| rest.strip_suffix("_bytes")?.parse().ok());
            if let (Some(direction), Some(priority)) = (direction, priority) {
                let lane = by_name.entry((priority, direction)).or_insert_with(|| vec![0.0; lanes.len()]);
                lane[at] = counter.per_second.unwrap_or(0.0) * 8.0 / 1e9;
            }
        }
    }
    for ((priority, direction), rates) in by_name {
        if priority == 0 || rates.iter().any(|rate| *rate > 0.0) {
            let name = format!("{}_rate_prio{priority}", &direction[..2]);
            line(out, &name, rates.into_iter(), |rate| format!("{rate:.3}"));
        }
    }
}

fn host(out: &mut String, moment: &Moment, seconds: f64) {
    let host = &moment.host;
    let again = host.tcp_retransmitted_per_second.unwrap_or(0.0) * seconds;
    let _ = writeln!(out, "tcp_segs_retrans: {again:.0}");
    let _ = writeln!(out, "tcp_retrans_rate: {:.3}", host.tcp_retransmitted_pct.unwrap_or(0.0));
    let _ = writeln!(out, "cpu_usage: {:.2}%", host.cpu_pct.unwrap_or(0.0));
    let _ = writeln!(out, "free_mem: {} kB", host.memory_free_kib);
}

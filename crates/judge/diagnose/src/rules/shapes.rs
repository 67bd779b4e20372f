//! Shapes of a table that no hardware gives: a size out of line with its neighbours, bandwidth that breaks down.

use super::fabric_congestion::single_flow;
use super::found;
use crate::case::{Case, Network, Test};
use crate::curve::OUT_OF_LINE;
use busbw_model::{BenchRow, Bytes, Evidence, Finding, Measure};
use std::fmt::Display;

/// Below this size times are latency, which jumps where NCCL changes protocol.
const FROM: Bytes = Bytes(1 << 20);
/// What is left of the peak when bandwidth breaks down.
const BROKEN_DOWN: f64 = 0.6;

/// A dip at one size, in one half or both; else a breakdown.
pub fn rule(case: &Case) -> Vec<Finding> {
    let runs = || case.tests.iter().filter(|test| test.is_one_run());
    let broken = || runs().find_map(|test| breakdown(case, test));
    runs().find_map(dip).or_else(broken).into_iter().collect()
}

/// Bandwidth that falls behind its peak where no network explains it, or sockets do ([`super::fabric_congestion`] covers
/// RDMA's).
fn breakdown(case: &Case, test: &Test) -> Option<Finding> {
    let fall = test.curve.fall.as_ref().filter(|fall| fall.both_halves && fall.left < BROKEN_DOWN)?;
    let sockets = test.network() == Some(Network::Socket);
    if test.crosses_nodes() && !sockets && !single_flow(case.run, test) {
        return None;
    }
    let (peak, at) = (test.curve.peak, test.curve.peak_row.size);
    let words: [(&str, &dyn Display); 4] =
        [("peak", &peak), ("at", &at), ("last", &fall.last), ("last_at", &fall.last_row.size)];
    let evidence = [(test.curve.peak_row, "the peak"), (fall.last_row, "what is left")];
    let evidence = evidence.map(|(row, what)| Evidence::noted(row.source.clone(), what)).into();
    Some(found(if sockets { "curve.sockets" } else { "curve.breaks-down" }, &words, evidence))
}

fn dip(test: &Test) -> Option<Finding> {
    let halves: [fn(&BenchRow) -> Option<&Measure>; 2] = [|row| row.out_of_place.as_ref(), |row| row.in_place.as_ref()];
    let rows: Vec<&BenchRow> = test.curve.rows.iter().copied().filter(|row| row.size >= FROM).collect();
    let (row, busbw, usual) = rows.windows(3).find_map(|window| {
        let grows = window[0].size < window[1].size && window[1].size < window[2].size;
        halves.iter().filter(|_| grows).find_map(|half| {
            let busbw = |row: &BenchRow| half(row).map(|m| m.busbw.0);
            let (before, here, after) = (busbw(window[0])?, busbw(window[1])?, busbw(window[2])?);
            (here < OUT_OF_LINE * before.min(after)).then_some((window[1], here, before.min(after)))
        })
    })?;
    let (busbw, usual) = (format!("{busbw:.1}"), format!("{usual:.1}"));
    let words: [(&str, &dyn Display); 3] = [("size", &row.size), ("busbw", &busbw), ("usual", &usual)];
    Some(found("curve.dip", &words, vec![Evidence::noted(row.source.clone(), "out of line")]))
}

//! Sizes of bandwidth that stay far behind the larger ones: each size has an expectation of its own, not the largest alone.

use super::Prospect;
use super::judge::{Fit, Hypothesis};
use crate::case::Test;
use crate::curve::{BANDWIDTH_FROM, OUT_OF_LINE};
use crate::rules::found;
use busbw_model::{BenchRow, Collective, Evidence, Finding, GBps};
use busbw_predict::predict_over;
use std::fmt::Display;

/// One size alone may be disturbed: a note tells of that.
const FEWEST: usize = 2;
/// Below this share of the sizes on both sides a stretch is slow, whatever the machine: NCCL's change from one protocol or algorithm to the next costs less
/// in every sound table that we know.
const DIP: f64 = 0.6;

/// A stretch of sizes that is slow, although the largest are as they should be.
pub(super) struct Trough<'a> {
    first: &'a BenchRow,
    last: &'a BenchRow,
    busbw: GBps,
    /// What should be measured at its last size.
    expected: GBps,
    /// The larger size behind it, and what it shows.
    after: &'a BenchRow,
    contrast: &'static str,
}

impl<'a> Trough<'a> {
    /// What shows by every cluster that explains the large sizes.
    pub fn of(test: &Test<'a>, collective: Collective, hypotheses: &[Hypothesis]) -> Option<Self> {
        let explains = |one: &&Hypothesis| matches!(one.fit, Fit::Within | Fit::Between);
        let each = hypotheses.iter().filter(explains).map(|one| by(test, collective, one));
        each.reduce(|one, other| one.and_then(|one| other.map(|_| one))).flatten()
    }

    /// `16 MiB to 64 MiB reach 20% of the 350.00 GB/s expected`.
    pub fn words(&self) -> String {
        let percent = 100.0 * self.busbw.0 / self.expected.0;
        format!("{} to {} reach {percent:.0}% of the {} expected", self.first.size, self.last.size, self.expected)
    }
}

/// The model is less sure of middle sizes, and bandwidth that still grows is no fault. A larger message that takes less time is:
/// the size before it was not held up by what limits the machine.
fn by<'a>(test: &Test<'a>, collective: Collective, one: &Hypothesis) -> Option<Trough<'a>> {
    let mut rows: Vec<(&BenchRow, GBps)> =
        test.curve.rows.iter().filter_map(|row| Some((*row, row.best_busbw()?))).collect();
    rows.sort_by_key(|(row, _)| row.size);
    let sizes: Vec<_> = rows.iter().map(|(row, _)| row.size).collect();
    let predicted = predict_over(&one.congestion, &one.cluster, collective, &sizes).rows;
    let shares: Vec<f64> = rows.iter().zip(&predicted).map(|((_, busbw), row)| busbw.0 / row.busbw.0).collect();
    let is_low = |at: usize| shares.get(at).is_some_and(|share| *share < OUT_OF_LINE * one.reached);
    (FEWEST..rows.len()).find_map(|at| {
        let (last, busbw) = rows[at - 1];
        let after = rows[at].0;
        let is_edge = last.size >= BANDWIDTH_FROM && !is_low(at) && after.best_time()?.0 <= last.best_time()?.0;
        let low = (0..at).rev().take_while(|at| is_low(*at)).count();
        let expected = predicted.get(at - 1)?.busbw;
        let (low, contrast) = match is_edge && low >= FEWEST {
            true => (low, "takes no longer"),
            false => (dip(&rows, at)?, "and the size before them are faster"),
        };
        Some(Trough { first: rows[at - low].0, last, busbw, expected, after, contrast })
    })
}

/// How many sizes of bandwidth in front of one lie far below it and below the one before them.
fn dip(rows: &[(&BenchRow, GBps)], at: usize) -> Option<usize> {
    let is_dip = |low: &usize| {
        let (before, stretch) = (rows[at - low - 1].1, &rows[at - low..at]);
        let edge = DIP * before.0.min(rows[at].1.0);
        stretch.iter().all(|(row, busbw)| row.size >= BANDWIDTH_FROM && busbw.0 < edge)
    };
    (FEWEST..at).find(is_dip)
}

impl Prospect<'_> {
    /// The finding that a stretch of sizes is slow.
    pub(super) fn slow_stretch(&self) -> Option<Finding> {
        let trough = self.trough.as_ref().filter(|_| self.test.is_one_run())?;
        let (what, said) = (self.what(), trough.words());
        let words: [(&str, &dyn Display); 4] =
            [("what", &what), ("said", &said), ("after", &trough.after.size), ("contrast", &trough.contrast)];
        let evidence = [(trough.last, "slow"), (trough.after, "what a larger size reaches")];
        let evidence = evidence.map(|(row, note)| Evidence::noted(row.source.clone(), note)).into();
        Some(found("curve.trough", &words, evidence))
    }
}

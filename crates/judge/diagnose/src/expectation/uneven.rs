//! Tables of uneven exchanges: the even exchange of the same run is judged, and the time against what the skew explains. On a described
//! cluster, the busiest NIC is named, and the time is held against the one that is predicted for the load.

use crate::UserFacts;
use crate::case::{Case, Test};
use crate::curve::median;
use crate::rules::found;
use crate::rules::skew::{EVEN, Skewed};
use busbw_model::{
    BenchRow, Bytes, Code, Collective, Evidence, Finding, GBps, Judged, Judgement, Load, Micros, Reached, Subject,
};
use busbw_predict::{Busiest, Cluster, PredictionRow, predict, predict_load};
use std::borrow::Cow;
use std::fmt::{Display, Write};

/// From this share of the predicted speed on an even exchange is sound.
const SOUND: f64 = 0.75;

/// Whether what ranks send is known and differs, so that an even exchange is no yardstick.
pub(super) fn is_uneven(test: &Test, given: &UserFacts) -> bool {
    has_even(test) || given.load.is_some() && test.table.collective == Some(Collective::AllToAllV)
}

/// Whether the run has an even exchange beside each size, as that of `busbw bench --load` has.
fn has_even(test: &Test) -> bool {
    test.table.rows.iter().any(|row| row.skew.is_some())
}

/// Judges such a table; `None` for others.
pub(super) fn judged(test: &Test, given: &UserFacts) -> Option<Judged> {
    let placed = Placed::of(test, given);
    match Skewed::of(test) {
        Some(skewed) => Some(beside_even(test, &skewed, given, placed.as_ref())),
        None => Some(placed?.judged()),
    }
}

/// Adds to findings of a skew the NIC that it makes busy, and has findings of tables that have no even exchange.
pub(crate) fn judge(case: &Case, given: &UserFacts, findings: &mut Vec<Finding>) {
    let tests = case.tests.iter().filter(|test| test.curve.shows_bandwidth());
    for placed in tests.filter_map(|test| Placed::of(test, given)) {
        let is_of = |finding: &&mut Finding| {
            let here = |evidence: &Evidence| placed.test.table.rows.iter().any(|row| row.source == evidence.source);
            finding.code == Code::LoadUneven && finding.evidence.iter().any(here)
        };
        match findings.iter_mut().find(is_of) {
            Some(finding) => {
                if let Some(nic) = placed.busiest.nic {
                    let _ = write!(finding.title, "; busiest NIC: {nic}");
                }
                let _ = write!(finding.explanation, " On the described cluster {}.", placed.words());
            }
            None if has_even(placed.test) => {}
            None => findings.extend(placed.finding()),
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
}

fn beside_even(test: &Test, skewed: &Skewed, given: &UserFacts, placed: Option<&Placed>) -> Judged {
    let ranks = test.table.nranks.map_or(String::new(), |ranks| format!(" on {ranks} ranks"));
    let what = format!("{} with {}{ranks}", Collective::AllToAllV, skewed.load());
    let nic = placed.map_or(String::new(), |placed| format!("; {}", placed.words()));
    let how = format!("{:.0}% of the bound that its skew sets{nic}", 100.0 * skewed.share);
    let (outcome, how, question) = if skewed.is_slower() {
        (Judgement::Failed, how, None)
    } else {
        match given.cluster.and_then(|cluster| of_predicted(test, skewed, cluster)) {
            Some(share) if share >= SOUND => (
                Judgement::Passed,
                format!("{how}; the even exchange reaches {:.0}% of its prediction", 100.0 * share),
                None,
            ),
            Some(share) => {
                let even = format!("the even exchange of the same run reaches {:.0}% of its prediction", 100.0 * share);
                let question =
                    format!("{what}: {even}. Is the network at fault? Measure `busbw bench alltoall` and explain that");
                (Judgement::Undecided, format!("{how}; {even}"), Some(question))
            }
            None => {
                let question = format!(
                    "{what}: {}. {how}. Whether the even exchange is as fast as it should be is open: describe the machines with --cluster",
                    skewed.busiest()
                );
                (Judgement::Undecided, how, Some(question))
            }
        }
    };
    Judged { question, ..Judged::new(Subject::Speed, what, how, outcome) }
}

/// What the even exchange reaches of its prediction for a cluster of as many ranks.
fn of_predicted(test: &Test, skewed: &Skewed, cluster: &Cluster) -> Option<f64> {
    let rows = predict(cluster, Collective::AllToAll, &[skewed.row.size]).rows;
    Some(rows.first().filter(|_| is_of(test, cluster))?.time.0 / skewed.skew.even.0)
}

/// Whether the table can be of the cluster. What cores do within a host tells nothing of GPUs; between hosts NICs decide.
fn is_of(test: &Test, cluster: &Cluster) -> bool {
    test.table.nranks == u32::try_from(cluster.ranks()).ok() && (!test.on_cores() || cluster.domains() > 1)
}

/// A load on the cluster that was described.
struct Placed<'a> {
    test: &'a Test<'a>,
    cluster: &'a Cluster,
    load: Cow<'a, Load>,
    busiest: Busiest,
    row: &'a BenchRow,
    time: Micros,
    /// What is predicted of the largest size.
    largest: PredictionRow,
    /// Measured over predicted speed: the median of the largest sizes.
    reached: f64,
}

impl<'a> Placed<'a> {
    /// The load is the one that was told, or the shape that the table names.
    fn of(test: &'a Test<'a>, given: &UserFacts<'a>) -> Option<Self> {
        let cluster = given.cluster.filter(|cluster| is_of(test, cluster) && is_uneven(test, given))?;
        let named = test.table.rows.iter().find_map(|row| Some(row.skew.as_ref()?.load.as_str()));
        let told = given.load.filter(|load| named.is_none_or(|name| name == load.name())).map(Cow::Borrowed);
        let shape = || Load::shape(named?, cluster.ranks()).ok().flatten().map(Cow::Owned);
        let load = told.or_else(shape)?;
        let buffer = if named.is_some() { 1.0 } else { load.busiest_buffer() };
        let tail = &test.curve.tail;
        let sizes: Vec<Bytes> = tail.iter().map(|(size, _)| Bytes((size.0 as f64 / buffer) as u64)).collect();
        let predicted = predict_load(cluster, &load, &sizes);
        let share = |((_, measured), row): (&(Bytes, GBps), &PredictionRow)| measured.0 / (row.busbw.0 * buffer);
        let shares = tail.iter().zip(&predicted.rows).map(share).filter(|share| share.is_finite()).collect();
        let row = test.table.rows.iter().max_by_key(|row| row.size)?;
        Some(Placed {
            test,
            cluster,
            load,
            busiest: predicted.busiest?,
            row,
            time: row.halves().map(|half| half.time).min_by(|a, b| a.0.total_cmp(&b.0))?,
            reached: median(shares)?,
            largest: predicted.rows.into_iter().next_back()?,
        })
    }

    /// What the busiest needs at line rate.
    fn least(&self) -> Micros {
        Micros(self.largest.time.0 * self.largest.busbw.0 / self.largest.limit.0)
    }

    /// `rank 0, which receives 3.25 times an even share; NIC 0 of node 0, …`.
    fn hot(&self) -> String {
        let nic = self.busiest.nic.map_or(String::new(), |nic| format!("; {nic}"));
        format!("{}{nic}", self.busiest.rank)
    }

    fn words(&self) -> String {
        format!(
            "{}, needs {} at line rate; {} are predicted, {} were measured",
            self.busiest.nic.map_or_else(|| self.busiest.rank.to_string(), |nic| nic.to_string()),
            self.least(),
            self.largest.time,
            self.time
        )
    }

    fn outcome(&self) -> Judgement {
        let reach = self.cluster.reach();
        match self.reached {
            share if share < reach.slow => Judgement::Failed,
            share if share >= reach.sound && share <= reach.above => Judgement::Passed,
            _ => Judgement::Undecided,
        }
    }

    fn judged(&self) -> Judged {
        let measured = self.test.curve.plateau;
        let speed = Reached { measured, expected: GBps(measured.0 / self.reached) };
        let what = format!("{} with load {} on {} ranks", Collective::AllToAllV, self.load.name(), self.load.ranks());
        let how = format!("{:.0}% of the speed that is predicted for it; {}", 100.0 * self.reached, self.words());
        let outcome = self.outcome();
        let question = (outcome == Judgement::Undecided).then(|| {
            format!("{what}: {how}. Is it the load of this run? Measure it beside an even exchange: `busbw bench alltoallv --load`")
        });
        Judged { subject: Subject::Speed, what, how, speed: Some(speed), outcome, question }
    }

    /// Of a table without an even exchange: who is busiest, and whether that explains the time.
    fn finding(&self) -> Option<Finding> {
        let cause = match self.outcome() {
            Judgement::Failed => "skew.behind",
            _ => "skew.bounds",
        };
        let times = format!("{:.1}", 1.0 / self.reached);
        let (load, hot, least) = (self.load.name(), self.hot(), self.least());
        let words: [(&str, &dyn Display); 7] = [
            ("load", &load),
            ("busiest", &hot),
            ("size", &self.row.size),
            ("time", &self.time),
            ("least", &least),
            ("predicted", &self.largest.time),
            ("times", &times),
        ];
        let note = format!("{:.0}% of the predicted speed", 100.0 * self.reached);
        let evidence = vec![Evidence::noted(self.row.source.clone(), note)];
        Some(found(cause, &words, evidence)).filter(|_| self.busiest.rank.times_even > EVEN)
    }
}

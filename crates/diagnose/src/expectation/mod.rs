//! What a run's tables should have reached, and what the distance tells.
//!
//! A table far below its prediction is compared with predictions of the same cluster with one thing wrong at a time
//! ([`suspects`]): the one that gives the measured figure is named, with what curing it would gain.

mod fabric;
mod setting;
mod suspects;

use crate::case::{Case, Test};
use busbw_model::{
    Code, Collective, Evidence, Expected, ExpectedRow, ExpectedTable, Finding, GBps, Gain, Judged, Judgement, Severity,
    Subject,
};
use busbw_predict::{Cluster, PredictionRow, predict};
use setting::Setting;

/// A table with what it should have reached.
pub(crate) struct Prospect<'a> {
    test: &'a Test<'a>,
    collective: Collective,
    setting: Setting,
    rows: Vec<PredictionRow>,
    /// Measured over predicted busbw where bandwidth counts: the median over the three largest sizes.
    reached: f64,
}

/// Below this share of the prediction something is wrong: of 20 published tables that their publishers call good none is
/// further below (docs/prediction.md).
const FAR_BELOW: f64 = 0.75;
/// From this share on a table is as expected.
const NEAR: f64 = 0.85;
/// From this confidence on, a finding stands before those of other rules of its severity.
const SURE: f64 = 0.55;
/// Above this the description does not fit the machine.
const ABOVE: f64 = 1.3;
/// Above this a description that was guessed is worth nothing.
const FAR_ABOVE: f64 = 1.6;

/// Predicts every table for which the cluster is known: described, or derived from the run.
pub(crate) fn prospects<'a>(case: &'a Case<'a>, described: Option<&Cluster>) -> Vec<Prospect<'a>> {
    case.tests.iter().filter_map(|test| prospect(case, test, described)).collect()
}

fn prospect<'a>(case: &Case, test: &'a Test<'a>, described: Option<&Cluster>) -> Option<Prospect<'a>> {
    let collective = test.table.collective?;
    let setting = setting::of(case, test, described)?;
    let sizes: Vec<_> = test.table.rows.iter().map(|row| row.size).collect();
    let rows = predict(&setting.cluster, collective, &sizes).rows;
    let measured = test.table.rows.iter().map(|row| row.best_busbw());
    let mut shares: Vec<(u64, f64)> = measured
        .zip(&rows)
        .filter_map(|(measured, row)| Some((row.size.0, measured?.0 / row.busbw.0)))
        .filter(|(size, share)| *size > 0 && share.is_finite())
        .collect();
    shares.sort_by_key(|(size, _)| *size);
    let mut last: Vec<f64> = shares.iter().rev().take(3).map(|(_, share)| *share).collect();
    last.sort_by(f64::total_cmp);
    let reached = last.get(last.len() / 2).copied()?;
    // Then the machine is not the one that the run seems to tell of.
    if !setting.described && reached > FAR_ABOVE {
        return None;
    }
    Some(Prospect { test, collective, setting, rows, reached })
}

/// What the largest test should have reached.
pub(crate) fn expected(prospects: &[Prospect]) -> Option<Expected> {
    deciding(prospects).map(Prospect::expected)
}

/// The table with the largest size: what a run is judged by.
fn deciding<'a, 'b>(prospects: &'b [Prospect<'a>]) -> Option<&'b Prospect<'a>> {
    prospects.iter().max_by_key(|prospect| prospect.test.curve.largest)
}

/// How each table's speed compares with its prediction.
pub(crate) fn judged(prospects: &[Prospect]) -> Vec<Judged> {
    let bandwidth = prospects.iter().filter(|prospect| prospect.test.curve.shows_bandwidth());
    bandwidth.filter_map(Prospect::judged).collect()
}

/// What each table should have shown.
pub(crate) fn tables(case: &Case, prospects: &[Prospect]) -> Vec<ExpectedTable> {
    prospects.iter().filter_map(|prospect| prospect.table(case)).collect()
}

/// Adds what follows from the distance between measured and expected: gains, and findings where no other rule has one.
pub(crate) fn judge(prospects: &[Prospect], findings: &mut Vec<Finding>) {
    for finding in findings.iter_mut() {
        fabric::deepen(finding, prospects);
        add_gain(finding, prospects);
    }
    let explained = findings.iter().any(|finding| finding.severity >= Severity::Warning);
    let judged: Vec<&Prospect> =
        prospects.iter().filter(|prospect| prospect.test.curve.shows_bandwidth() && !explained).collect();
    let slow = judged.iter().filter(|prospect| prospect.reached < FAR_BELOW).map(|prospect| prospect.too_slow());
    // What rests on assumptions stands behind what the input says.
    let (sure, unsure): (Vec<Finding>, Vec<Finding>) =
        slow.chain(as_expected(&judged)).partition(|finding| finding.confidence >= SURE);
    findings.splice(0..0, sure);
    findings.extend(unsure);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
}

/// A finding per kind of run that reaches what it should, however many tables show it.
fn as_expected(judged: &[&Prospect]) -> Vec<Finding> {
    let mut alike: Vec<(Collective, String, Vec<&Prospect>)> = Vec::new();
    for prospect in judged.iter().filter(|prospect| (NEAR..ABOVE).contains(&prospect.reached)) {
        let how = prospect.how();
        match alike.iter_mut().find(|(collective, other, _)| *collective == prospect.collective && *other == how) {
            Some((.., members)) => members.push(prospect),
            None => alike.push((prospect.collective, how, vec![prospect])),
        }
    }
    alike.into_iter().filter_map(|(collective, how, members)| reached(collective, &how, &members)).collect()
}

fn reached(collective: Collective, how: &str, members: &[&Prospect]) -> Option<Finding> {
    let first = members.first()?;
    let Expected { busbw: expected, bottleneck, .. } = first.expected();
    let plateau = |prospect: &&Prospect| prospect.test.curve.plateau.0;
    let low = members.iter().map(plateau).fold(f64::INFINITY, f64::min);
    let high = GBps(members.iter().map(plateau).fold(0.0, f64::max));
    let who = match members.len() {
        1 => format!("{collective} reaches {high}"),
        count => format!("{count} tables of {collective} reach {low:.2} to {high}"),
    };
    Some(Finding {
        code: Code::OkAsExpected,
        severity: Severity::Info,
        confidence: if first.setting.described { 0.9 } else { 0.6 },
        title: format!("{who}; this machine should reach {expected}"),
        explanation: format!(
            "Large messages are limited by {bottleneck}. Predicted for {how}. Below some MiB a collective's time is latency, so \
             its busbw is small there on any machine."
        ),
        evidence: extremes(members).into_iter().flat_map(Prospect::evidence).collect(),
        remedy: Vec::new(),
        expected_gain: None,
    })
}

/// The slowest and the fastest, or the only one.
fn extremes<'a, 'b>(members: &'b [&'b Prospect<'a>]) -> Vec<&'b Prospect<'a>> {
    let plateau = |a: &&&Prospect, b: &&&Prospect| a.test.curve.plateau.0.total_cmp(&b.test.curve.plateau.0);
    let slowest = members.iter().min_by(plateau);
    let fastest = members.iter().max_by(plateau).filter(|_| members.len() > 1);
    slowest.into_iter().chain(fastest).copied().collect()
}

impl Prospect<'_> {
    fn table(&self, case: &Case) -> Option<ExpectedTable> {
        let table = case.run.tables.iter().position(|table| std::ptr::eq(table, self.test.table))?;
        let row = |row: &PredictionRow| ExpectedRow {
            size: row.size,
            busbw: row.busbw,
            limit: row.limit,
            bottleneck: row.bottleneck.clone(),
        };
        Some(ExpectedTable { table, rows: self.rows.iter().map(row).collect() })
    }

    fn judged(&self) -> Option<Judged> {
        let ranks = self.test.table.nranks?;
        let outcome = match self.reached {
            reached if reached >= NEAR => Judgement::Passed,
            reached if reached < FAR_BELOW => Judgement::Failed,
            _ => Judgement::Undecided,
        };
        Some(Judged {
            subject: Subject::Speed,
            what: format!("{} on {ranks} ranks", self.collective),
            how: format!("{:.0}% of the {} expected", 100.0 * self.reached, self.expected().busbw),
            outcome,
            question: None,
        })
    }

    fn largest(&self) -> Option<&PredictionRow> {
        self.rows.iter().max_by_key(|row| row.size)
    }

    fn expected(&self) -> Expected {
        let row = self.largest();
        Expected {
            busbw: row.map_or(GBps(0.0), |row| row.busbw),
            at: row.map(|row| row.size),
            bottleneck: row.map_or(String::new(), |row| row.bottleneck.clone()),
            why: self.why(),
        }
    }

    /// `2 nodes of 8 H20, as described: Ring with Simple`.
    fn how(&self) -> String {
        let how = self.largest().map_or(String::new(), |row| format!("{} with {}", row.algorithm, row.protocol));
        format!("{}: {how}", self.setting.words())
    }

    /// How, and what was assumed.
    fn why(&self) -> String {
        let assumed = self.setting.cluster.assumptions.join(" ");
        if assumed.is_empty() {
            self.how()
        } else {
            format!("{}. Assumed: {}", self.how(), assumed.trim_end_matches('.'))
        }
    }

    fn too_slow(&self) -> Finding {
        let plateau = self.test.curve.plateau;
        let expected = self.expected();
        let suspect = suspects::most_alike(&self.setting.cluster, self.collective, plateau, self.test.curve.largest);
        let (code, likeness) = match &suspect {
            Some(suspect) => (
                suspect.code,
                format!(" With {}, {} would be predicted: about what was measured.", suspect.words, suspect.busbw),
            ),
            None if self.setting.cluster.domains() > 1 => (Code::NicRate, String::new()),
            None => (Code::P2pDisabled, String::new()),
        };
        let certain = self.setting.certain;
        Finding {
            code,
            severity: if certain { Severity::Warning } else { Severity::Info },
            confidence: if suspect.is_some() && certain { 0.6 } else { 0.35 },
            title: format!(
                "{} reaches {plateau} where {} are expected{}",
                self.collective,
                expected.busbw,
                like(&suspect)
            ),
            explanation: format!("Predicted for {}; limited by {}.{likeness}", self.how(), expected.bottleneck),
            evidence: self.evidence(),
            remedy: suspect.map_or_else(general_remedy, |suspect| suspect.remedy()),
            expected_gain: Some(self.gain(expected.busbw)),
        }
    }

    fn evidence(&self) -> Vec<Evidence> {
        let largest = self.test.table.rows.iter().max_by_key(|row| row.size);
        let note = format!("{:.0}% of what is expected", 100.0 * self.reached);
        largest.map(|row| Evidence::noted(row.source.clone(), note)).into_iter().collect()
    }

    /// From what was measured to `cured`, which is predicted without the trouble.
    fn gain(&self, cured: GBps) -> Gain {
        Gain {
            from_busbw: self.test.curve.plateau,
            to_busbw: (GBps(cured.0 * NEAR), cured),
            basis: format!("predicted at {} for {}", self.test.curve.largest, self.setting.words()),
        }
    }

    /// The busbw that `cluster`, the one at hand with its trouble cured, should reach at the largest size.
    fn busbw_on(&self, cluster: &Cluster) -> GBps {
        let rows = predict(cluster, self.collective, &[self.test.curve.largest]).rows;
        rows.first().map_or(GBps(0.0), |row| row.busbw)
    }
}

fn like(suspect: &Option<suspects::Suspect>) -> String {
    suspect.as_ref().map_or(String::new(), |suspect| format!(", as with {}", suspect.words))
}

fn general_remedy() -> Vec<String> {
    vec![
        "See what NCCL chose: run once with `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,NET` and give that log too".into(),
        "Measure the links alone: `ib_write_bw` for each pair of NICs, `p2pBandwidthLatencyTest` for the GPUs of a node".into(),
    ]
}

/// A finding about speed, without a gain of its own, gets what its cure should give.
fn add_gain(finding: &mut Finding, prospects: &[Prospect]) {
    if finding.expected_gain.is_some() || finding.severity < Severity::Warning {
        return;
    }
    let Some(prospect) = deciding(prospects) else { return };
    let Some(cured) = suspects::cured(&prospect.setting.cluster, finding.code) else { return };
    let gain = prospect.gain(prospect.busbw_on(&cured));
    if gain.to_busbw.0.0 > gain.from_busbw.0 {
        finding.expected_gain = Some(gain);
    }
}

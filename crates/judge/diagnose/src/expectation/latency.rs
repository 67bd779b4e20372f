//! Small messages: what they take is latency, which may be high where bandwidth is as it should be.

use super::judge::{Fit, Hypothesis};
use super::{NEAR, Prospect};
use crate::case::{Case, Network, Test};
use crate::curve::{BANDWIDTH_FROM, median};
use crate::rules::found;
use crate::rules::transport::network_in_use;
use busbw_model::{BenchRow, Bytes, Code, Collective, EnvSetting, Evidence, Finding, Micros};
use busbw_predict::cluster::NetTransport;
use busbw_predict::{PredictionRow, predict_over};
use std::fmt::Display;

/// Sizes that latency decides, and those between latency and bandwidth: above the one, and below the other (docs/prediction.md).
const CLASSES: [(Bytes, Bytes); 2] = [(Bytes(0), Bytes((32 << 10) + 1)), (Bytes(32 << 10), BANDWIDTH_FROM)];
/// Fewer sizes show nothing: one may be disturbed.
const FEWEST: usize = 3;
/// A size that takes so many times as long as a larger one is late, whatever the machine.
const BESIDE_LARGER: f64 = 4.0;
/// With fewer iterations what a first one sets up counts.
const FEWEST_ITERATIONS: u32 = 5;
/// The same where each size was run alone, and sets up anew.
const FEWEST_ALONE: u32 = 20;

/// Small messages that take too long by every cluster that explains the large ones.
pub(super) struct Late<'a> {
    /// The size that shows it: the middle one of those that are late.
    pub row: &'a BenchRow,
    pub took: Micros,
    pub expected: Micros,
    from: Bytes,
    to: Bytes,
    /// The first cluster with which it would not be late, where no size tells them apart.
    pub as_with: Option<usize>,
}

/// The time of a row that is judged.
type Time = fn(&BenchRow) -> Option<Micros>;

/// The better half; and each alone, which both must be worse by the factor: they are measured in turns.
const TIMES: [(Time, f64); 3] = [
    (BenchRow::best_time, 1.0),
    (|row| Some(row.out_of_place.as_ref()?.time), 2.0),
    (|row| Some(row.in_place.as_ref()?.time), 2.0),
];

impl<'a> Late<'a> {
    pub fn of(test: &'a Test<'a>, collective: Collective, hypotheses: &[Hypothesis]) -> Option<Self> {
        let settings = &test.table.settings;
        let fewest = if test.is_one_run() { FEWEST_ITERATIONS } else { FEWEST_ALONE };
        let is_warm = settings.warmup_iters != Some(0) && settings.iters.is_none_or(|many| many >= fewest);
        let settled = |one: &&Hypothesis| {
            let is_near = matches!(one.fit, Fit::Within | Fit::Between) || !test.curve.shows_bandwidth();
            is_near || is_cause(test, collective, one)
        };
        let plausible: Vec<&Hypothesis> = hypotheses.iter().filter(settled).collect();
        if !is_warm || plausible.is_empty() {
            return None;
        }
        let classes = CLASSES.into_iter().take(if test.curve.shows_bandwidth() { 2 } else { 1 });
        let mut ways = classes.flat_map(|class| TIMES.iter().map(move |way| (class, *way)));
        let late = ways.find_map(|((above, below), way)| {
            let is_in = |row: &&&BenchRow| row.size > above && row.size < below && way.0(row).is_some();
            let mut rows: Vec<&BenchRow> = test.curve.rows.iter().filter(is_in).copied().collect();
            rows.sort_by_key(|row| row.size);
            let each: Vec<_> = plausible.iter().map(|one| late_by(test, collective, one, (&rows, way))).collect();
            let as_with = each.iter().position(Option::is_none);
            if as_with.is_none() {
                return each.into_iter().flatten().min_by(|a, b| a.times().total_cmp(&b.times()));
            }
            // Sizes of bandwidth would tell which of them it is.
            let first = each.into_iter().next().flatten().filter(|_| !test.curve.shows_bandwidth())?;
            Some(Late { as_with, ..first })
        });
        late.or_else(|| Late::beside_larger(test).filter(|_| test.is_one_run()))
    }

    /// What sizes show that take several times as long as larger ones.
    fn beside_larger(test: &'a Test<'a>) -> Option<Self> {
        let mut rows: Vec<(&BenchRow, Micros)> =
            test.curve.rows.iter().filter_map(|row| Some((*row, row.best_time()?))).collect();
        rows.sort_by_key(|(row, _)| row.size);
        let least = |from: usize| rows[from..].iter().map(|(_, time)| time.0).fold(f64::INFINITY, f64::min);
        let late = rows.iter().enumerate().map(|(at, (row, took))| (*row, *took, Micros(least(at + 1))));
        let mut late: Vec<_> = late.filter(|(_, took, least)| took.0 > BESIDE_LARGER * least.0).collect();
        let (from, to) = (late.first()?.0.size, late.last()?.0.size);
        late.sort_by(|(_, a, by_a), (_, b, by_b)| (a.0 / by_a.0).total_cmp(&(b.0 / by_b.0)));
        let (row, took, expected) = *late.get(late.len() / 2).filter(|_| late.len() >= FEWEST)?;
        Some(Late { row, took, expected, from, to, as_with: None })
    }

    /// How many times of what it should take.
    fn times(&self) -> f64 {
        self.took.0 / self.expected.0
    }

    /// `512 B takes 1145 µs, 30 times the 38 expected`.
    pub fn words(&self) -> String {
        let (times, Late { row, took, expected, .. }) = (self.times(), self);
        format!("{} takes {:.0} µs, {times:.0} times the {:.0} expected", row.size, took.0, expected.0)
    }

    fn evidence(&self) -> Evidence {
        Evidence::noted(self.row.source.clone(), format!("{:.0} µs expected", self.expected.0))
    }
}

/// Whether the largest size is slow by no more than what each small one takes too long.
pub(super) fn is_cause(test: &Test, collective: Collective, one: &Hypothesis) -> bool {
    let small = test.curve.rows.iter().filter(|row| row.size.0 > 0 && row.size < CLASSES[0].1);
    let (sizes, took): (Vec<Bytes>, Vec<Micros>) = small.filter_map(|row| Some((row.size, row.best_time()?))).unzip();
    let predicted = predict_over(&one.congestion, &one.cluster, collective, &sizes).rows;
    let too_long = took.iter().zip(&predicted).map(|(took, row)| took.0 - row.time.0).collect();
    let largest = test.curve.rows.iter().filter(|row| row.size == one.largest.size).find_map(|row| row.best_time());
    let without = largest.zip(median(too_long)).map(|(largest, too_long)| largest.0 - too_long);
    one.fit == Fit::Below
        && sizes.len() >= FEWEST
        && without.is_some_and(|without| without > 0.0 && one.largest.time.0 >= NEAR * without)
}

/// What is late if a cluster is the one, beyond what it lacks in bandwidth.
fn late_by<'a>(
    test: &Test,
    collective: Collective,
    one: &Hypothesis,
    (rows, (time, factor)): (&[&'a BenchRow], (Time, f64)),
) -> Option<Late<'a>> {
    let sizes: Vec<Bytes> = rows.iter().map(|row| row.size).collect();
    let predicted = predict_over(&one.congestion, &one.cluster, collective, &sizes).rows;
    let times = |(row, predicted): (&&BenchRow, &PredictionRow)| Some(time(row)?.0 / predicted.time.0);
    let each: Vec<f64> = rows.iter().zip(&predicted).filter_map(times).collect();
    let lacks = if test.curve.shows_bandwidth() { one.reached.min(1.0) } else { 1.0 };
    let many =
        median(each.clone()).filter(|many| each.len() >= FEWEST && many * lacks >= factor * one.cluster.late())?;
    let at = each.iter().position(|times| *times == many)?;
    let (row, expected) = (*rows.get(at)?, predicted.get(at)?.time);
    Some(Late { row, took: time(row)?, expected, from: *sizes.first()?, to: *sizes.last()?, as_with: None })
}

impl Prospect<'_> {
    /// The finding that small messages take too long; none where a machine's own finding, which it then adds to, is the cause.
    pub(super) fn high_latency(&self, case: &Case, findings: &mut [Finding]) -> Option<Finding> {
        let late = self.late.as_ref()?;
        let explains = |finding: &Finding| finding.code == Code::LatencyHigh && self.may_be_of(case, finding);
        if let Some(cause) = findings.iter_mut().find(|finding| explains(finding)) {
            cause.title = format!("{}: {}. {}", self.what(), late.words(), cause.title);
            cause.evidence.push(late.evidence());
            return None;
        }
        let over = |transport| self.cluster().nics.as_ref().is_some_and(|nics| nics.transport == transport);
        let id = match network_in_use(case, self.test) {
            _ if self.cluster().domains() < 2 => "latency.inside",
            Some(Network::Socket) => "latency.sockets",
            None if over(NetTransport::Tcp) => "latency.sockets",
            Some(Network::Rdma | Network::Plugin) => "latency.rdma",
            None => "latency.network",
        };
        let reached = match self.test.curve.shows_bandwidth() {
            true => format!(", and large ones reach {:.0}% of the speed expected", 100.0 * self.chosen().reached),
            false => String::new(),
        };
        let (what, said, how) = (self.what(), late.words(), self.words());
        let words: [(&str, &dyn Display); 6] = [
            ("what", &what),
            ("said", &said),
            ("from", &late.from),
            ("to", &late.to),
            ("how", &how),
            ("reached", &reached),
        ];
        let mut finding = found(id, &words, vec![late.evidence()]);
        if let Some(setting) = without_ll(case) {
            finding.evidence.push(Evidence::noted(setting.source.clone(), "keeps small messages from LL"));
            finding.remedy.insert(0, "Let NCCL choose the protocol, LL for small messages: `unset NCCL_PROTO`".into());
        }
        Some(finding)
    }
}

/// NCCL_PROTO where it leaves LL out: a list of protocols, behind `^` of those that are not to be used.
fn without_ll<'a>(case: &Case<'a>) -> Option<&'a EnvSetting> {
    let setting = case.run.nccl.env_value("NCCL_PROTO")?;
    let (value, excludes) = match setting.value.trim().strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (setting.value.trim(), false),
    };
    let has_ll = value.split(',').any(|protocol| protocol.trim().eq_ignore_ascii_case("LL"));
    (has_ll == excludes).then_some(setting)
}

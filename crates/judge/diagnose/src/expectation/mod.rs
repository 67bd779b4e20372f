//! What a run's tables should have reached, and what the distance tells.
//!
//! What is unknown is not assumed: each cluster that fits the input gives a figure, and a table is judged by all of them.
//! A table below all is compared with predictions of the same cluster with one thing wrong at a time ([`suspects`]): the
//! one that gives the measured figure is named, with what curing it would gain.

mod cores;
mod fabric;
mod judge;
mod latency;
mod question;
mod reached;
mod setting;
mod suspects;
mod trial;
mod trough;
pub(crate) mod uneven;

use crate::UserFacts;
use crate::case::{Case, Test};
use crate::rules::environment;
use busbw_model::{
    Algorithm, BenchTable, Code, Collective, EnvSetting, Evidence, Expected, ExpectedRow, ExpectedTable, Finding, GBps,
    Gain, GdrUse, Judged, Judgement, Reached, Severity, Subject,
};
use busbw_predict::cluster::NetTransport;
use busbw_predict::{Cluster, PredictionRow, predict, predict_over};
use judge::{Congestions, Fit, Hypothesis};
use latency::Late;
use reached::as_expected;
pub(crate) use suspects::{costs_speed, shows_in_speed};
use trial::{Set, Trial};
use trough::Trough;

/// A table with what it should have reached.
pub(crate) struct Prospect<'a> {
    test: &'a Test<'a>,
    collective: Collective,
    /// Somebody described the cluster.
    described: bool,
    told: question::Told,
    /// Variables or sockets hold the machine back: the hypotheses are without them.
    is_held: bool,
    /// What fits the input, the most usual first; never empty.
    hypotheses: Vec<Hypothesis>,
    /// The one to speak of: that which fits, else the most usual.
    chosen: usize,
    /// Small messages that take too long.
    late: Option<Late<'a>>,
    /// A stretch of larger ones that is slow.
    trough: Option<Trough<'a>>,
    /// The variables of its run that hold a machine back.
    sets: Vec<Set>,
    /// What these allow, where the run is far below that as well.
    allowed: Option<GBps>,
    trial: Option<Trial>,
}

/// From this share of its prediction on a cured run is sound.
const NEAR: f64 = 0.85;

/// Holds every table against each cluster that it may have been measured on.
pub(crate) fn prospects<'a>(case: &'a Case<'a>, given: &UserFacts) -> Vec<Prospect<'a>> {
    let mut known = Congestions::default();
    // Once for all tables: it looks at every host of every table.
    let hindering: Vec<&EnvSetting> = environment::hindering(case).collect();
    let of = |test| prospect(case, test, given, &setting::own(case, test, &hindering), &mut known);
    let mut prospects: Vec<_> = case.tests.iter().filter_map(of).collect();
    trial::compare(&mut prospects);
    prospects
}

fn prospect<'a>(
    case: &Case,
    test: &'a Test<'a>,
    given: &UserFacts,
    hindering: &[&EnvSetting],
    known: &mut Congestions,
) -> Option<Prospect<'a>> {
    let judged = !uneven::is_uneven(test, given)
        && !test.on_cores()
        && test.table.nranks != Some(1)
        && question::doubted(test.table).is_none();
    let collective = test.table.collective.filter(|_| judged)?;
    let clusters = setting::of(case, test, given).into_iter();
    let mut hypotheses: Vec<_> =
        clusters.filter_map(|cluster| Hypothesis::of(test, collective, cluster, known)).collect();
    // Drivers are patched so that more GPUs reach each other; nobody is asked of that without a sign of it.
    if hypotheses.iter().all(|one| one.fit == Fit::Above) {
        let direct: Vec<_> = hypotheses.iter().filter_map(|one| one.cluster.with_peer_to_peer()).collect();
        hypotheses.extend(direct.into_iter().filter_map(|cluster| Hypothesis::of(test, collective, cluster, known)));
    }
    let has_nics = || given.nics.is_some() || case.has_rdma();
    // Where the log shows that GPUDirect is off and it would be much faster, it is open whether it could be on; no NIC is guessed.
    let is_off = test.comm.is_some_and(|comm| comm.gdr() == Some(GdrUse::None));
    if is_off && has_nics() {
        let sound = hypotheses.iter().filter(|one| one.fit == Fit::Within);
        let direct: Vec<_> = sound.filter_map(|one| one.cluster.with_gpu_direct()).collect();
        let direct = direct.into_iter().filter_map(|cluster| Hypothesis::of(test, collective, cluster, known));
        hypotheses.extend(direct.filter(|one| one.fit == Fit::Below));
    }
    // What a variable costs is no yardstick. Of algorithm and protocol none chooses where ranks send to each other.
    let is_sent = hypotheses.iter().all(|one| one.largest.algorithm == Algorithm::PointToPoint);
    let hindering: Vec<&EnvSetting> = hindering
        .iter()
        .copied()
        .filter(|set| !(is_sent && environment::CHOICES.contains(&set.name.as_str())))
        .collect();
    let over_tcp = |one: &Hypothesis| one.cluster.nics.as_ref().is_some_and(|nics| nics.transport == NetTransport::Tcp);
    let on_sockets = has_nics() && hypotheses.iter().all(over_tcp);
    let free = setting::unhindered(case, test, given, &hindering, on_sockets).into_iter();
    let free: Vec<_> = free.filter_map(|cluster| Hypothesis::of(test, collective, cluster, known)).collect();
    let is_held = !free.is_empty() && free.iter().all(|one| one.fit == Fit::Below);
    let sets: Vec<Set> = hindering.iter().map(|setting| Set::of(setting)).collect();
    let trial = Trial::refuted(&sets, &hypotheses, &free);
    let is_below = is_held && hypotheses.iter().all(|one| one.fit == Fit::Below);
    let allowed =
        hypotheses.iter().map(|one| one.largest.busbw).min_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| is_below);
    // Where a smaller machine would explain it as well, that is open.
    let may_be_held = !on_sockets && free.iter().any(|one| one.fit == Fit::Below);
    if is_held || may_be_held || trial.is_some() {
        hypotheses = free;
    }
    let nearest = |fit: Fit| {
        let fitting = hypotheses.iter().enumerate().filter(move |(_, one)| one.fit == fit);
        fitting.min_by(|(_, a), (_, b)| a.distance().total_cmp(&b.distance())).map(|(at, _)| at)
    };
    let below = hypotheses.iter().position(|one| one.fit != Fit::Above);
    // Small messages tell no machine from another.
    let fits = || nearest(Fit::Within).or_else(|| nearest(Fit::Between)).or(below);
    let chosen = if test.curve.shows_bandwidth() { fits().unwrap_or(0) } else { 0 };
    let late = Late::of(test, collective, &hypotheses);
    let trough = if late.is_none() { Trough::of(test, collective, &hypotheses) } else { None };
    (!hypotheses.is_empty()).then_some(Prospect {
        test,
        collective,
        described: given.cluster.is_some(),
        told: question::Told::of(given),
        is_held,
        hypotheses,
        chosen,
        late,
        trough,
        sets,
        allowed,
        trial,
    })
}

/// What the largest test should have reached.
pub(crate) fn expected(prospects: &[Prospect]) -> Option<Expected> {
    deciding(prospects).map(Prospect::expected)
}

/// The table with the largest size: what a run is judged by.
fn deciding<'a, 'b>(prospects: &'b [Prospect<'a>]) -> Option<&'b Prospect<'a>> {
    let known = prospects.iter().filter(|prospect| prospect.is_known() && !prospect.is_compared());
    known.max_by_key(|prospect| prospect.test.curve.largest)
}

/// How each table's speed compares with what it should be.
pub(crate) fn judged(case: &Case, prospects: &[Prospect], given: &UserFacts) -> Vec<Judged> {
    let doubted = case.run.tables.iter().filter_map(question::doubted);
    let prospect_of = |test: &Test| prospects.iter().find(|prospect| std::ptr::eq(prospect.test, test));
    let is_late = |test: &Test| prospect_of(test).is_some_and(|prospect| prospect.late.is_some());
    let believed = |test: &&Test| {
        let shows = test.curve.shows_bandwidth() || is_late(test);
        shows && test.table.nranks != Some(1) && question::doubted(test.table).is_none()
    };
    let tests = case.tests.iter().filter(believed);
    // What is there to be compared comes last.
    let (compared, tests): (Vec<_>, Vec<_>) =
        tests.partition(|test| prospect_of(test).is_some_and(Prospect::is_compared));
    let of = |test: &Test| match prospect_of(test) {
        Some(prospect) => prospect.judged(),
        None => uneven::judged(test, given)
            .or_else(|| cores::judged(case, test, given))
            .unwrap_or_else(|| question::unknown_test(test, given.cluster)),
    };
    let inconsistent = case.run.tables.iter().filter_map(question::inconsistent);
    doubted.chain(tests.into_iter().chain(compared).map(of)).chain(inconsistent).collect()
}

/// What each table should have shown.
pub(crate) fn tables(case: &Case, prospects: &[Prospect]) -> Vec<ExpectedTable> {
    prospects.iter().filter(|prospect| prospect.is_known()).flat_map(|prospect| prospect.tables(case)).collect()
}

/// Adds what follows from the distance between measured and expected: gains, and findings where no other rule has one.
pub(crate) fn judge(case: &Case, prospects: &[Prospect], findings: &mut Vec<Finding>) {
    for finding in findings.iter_mut() {
        fabric::deepen(finding, prospects);
        add_gain(finding, prospects);
    }
    trial::tell(prospects, findings);
    let of_speed = || prospects.iter().filter(|prospect| prospect.test.curve.shows_bandwidth());
    let is_slow = |prospect: &&Prospect| prospect.speed() == Judgement::Failed && !prospect.is_slow_by_latency();
    let mut slow: Vec<&Prospect> = of_speed().filter(is_slow).collect();
    slow.sort_by(|a, b| a.chosen().reached.total_cmp(&b.chosen().reached));
    let is_told = |findings: &[Finding]| findings.iter().any(|finding| finding.severity >= Severity::Warning);
    let is_explained = is_told(findings);
    for prospect in slow.iter().filter(|prospect| prospect.is_held || !is_explained) {
        prospect.blame(case, findings);
    }
    let mut seen = std::collections::HashSet::new();
    let mut told: Vec<Finding> = Vec::new();
    if !is_told(findings) {
        told.extend(slow.into_iter().filter(|prospect| seen.insert(prospect.what())).map(Prospect::too_slow));
        told.extend(as_expected(&of_speed().collect::<Vec<_>>()));
    }
    let is_late = |prospect: &&Prospect| prospect.late.as_ref().is_some_and(|late| late.as_with.is_none());
    let late = prospects.iter().filter(|prospect| is_late(prospect) && !prospect.is_compared());
    for prospect in late.filter(|prospect| seen.insert(prospect.what())) {
        told.extend(prospect.high_latency(case, findings));
    }
    let unlike = prospects.iter().filter(|prospect| !prospect.is_compared() && seen.insert(prospect.what()));
    told.extend(unlike.filter_map(Prospect::slow_stretch));
    findings.splice(0..0, told);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
}

impl Prospect<'_> {
    /// Whether messages of all sizes are as fast as they should be.
    pub fn outcome(&self) -> Judgement {
        match &self.late {
            Some(late) if !self.is_compared() && late.as_with.is_some() => Judgement::Undecided,
            Some(_) if !self.is_compared() => Judgement::Failed,
            None if self.trough.is_some() && !self.is_compared() => match self.test.is_one_run() {
                true => Judgement::Failed,
                false => Judgement::Undecided,
            },
            _ => self.speed(),
        }
    }

    /// Whether large messages are slow only by what small ones take too long.
    fn is_slow_by_latency(&self) -> bool {
        self.late.is_some() && latency::is_cause(self.test, self.collective, self.chosen())
    }

    /// Below every cluster that fits is too slow, as all that could be are is as it should be, all else is open.
    fn speed(&self) -> Judgement {
        if self.is_compared() {
            return Judgement::Passed;
        }
        let any = |fit: Fit| self.hypotheses.iter().any(|one| one.fit == fit);
        match (any(Fit::Within), any(Fit::Between), any(Fit::Below), any(Fit::Above)) {
            (true, false, false, _) if self.test.curve.fall.is_none() => Judgement::Passed,
            (false, false, true, false) => Judgement::Failed,
            _ => Judgement::Undecided,
        }
    }

    /// `all_reduce on 16 ranks of 2 nodes`.
    pub fn what(&self) -> String {
        let ranks = self.test.table.nranks.unwrap_or_default();
        match self.test.nodes {
            Some(1) => format!("{} on {ranks} ranks of a node", self.collective),
            Some(nodes) => format!("{} on {ranks} ranks of {nodes} nodes", self.collective),
            None => format!("{} on {ranks} ranks", self.collective),
        }
    }

    pub fn judged(&self) -> Judged {
        if let Some(judged) = self.compared() {
            return judged;
        }
        let outcome = self.outcome();
        let chosen = self.chosen();
        let speed = Reached { measured: self.test.curve.plateau, expected: chosen.largest.busbw };
        let open = outcome == Judgement::Undecided;
        Judged {
            subject: Subject::Speed,
            what: self.what(),
            how: self.share_of(speed) + &self.beside(),
            speed: Some(speed),
            outcome,
            question: open.then(|| question::of(self)),
        }
    }

    /// `480.00 GB/s, 99% of the 486.00 GB/s expected`.
    fn share_of(&self, speed: Reached) -> String {
        format!("{}, {:.0}% of the {} expected", speed.measured, 100.0 * speed.share(), speed.expected)
    }

    /// What else is to be said of the table: smaller messages that are late or slow, and rows that were not judged.
    fn beside(&self) -> String {
        let trough = self.trough.as_ref().map(Trough::words);
        let late = self.late.as_ref().map(Late::words).or(trough).map_or(String::new(), |words| format!("; {words}"));
        match self.test.sweep.iter().flat_map(|table| table.contradictions()).flatten().count() {
            0 => late,
            1 => format!("{late}; left out: 1 row that contradicts itself"),
            rows => format!("{late}; left out: {rows} rows that contradict themselves"),
        }
    }

    fn tables(&self, case: &Case) -> Vec<ExpectedTable> {
        let index = |of: &BenchTable| case.run.tables.iter().position(|table| std::ptr::eq(table, of));
        let row = |row: &PredictionRow| ExpectedRow {
            size: row.size,
            busbw: row.busbw,
            band: row.band,
            limit: row.limit,
            bottleneck: row.bottleneck.clone(),
        };
        let expected = |table: &&BenchTable| {
            let rows = self.rows(table).iter().map(row).collect();
            Some(ExpectedTable { table: index(table)?, rows })
        };
        self.test.sweep.iter().filter_map(expected).collect()
    }

    /// Whether the machines are known, if not their NICs.
    fn is_known(&self) -> bool {
        let machine = |one: &Hypothesis| (one.cluster.gpu.name.clone(), one.cluster.nodes);
        let first = machine(self.chosen());
        self.hypotheses.iter().all(|one| machine(one) == first)
    }

    fn chosen(&self) -> &Hypothesis {
        &self.hypotheses[self.chosen]
    }

    fn cluster(&self) -> &Cluster {
        &self.chosen().cluster
    }

    /// All sizes of a table as the chosen cluster should show them.
    fn rows(&self, table: &BenchTable) -> Vec<PredictionRow> {
        let sizes: Vec<_> = table.rows.iter().map(|row| row.size).collect();
        predict_over(&self.chosen().congestion, self.cluster(), self.collective, &sizes).rows
    }

    fn words(&self) -> String {
        let known = if self.described { "as described" } else { "according to the input" };
        format!("{}, {known}", setting::words(self.cluster()))
    }

    fn expected(&self) -> Expected {
        let row = &self.chosen().largest;
        Expected { busbw: row.busbw, at: Some(row.size), bottleneck: row.bottleneck.clone(), why: self.why() }
    }

    /// `2 nodes of 8 H20, as described: Ring with Simple`.
    fn how(&self) -> String {
        let row = &self.chosen().largest;
        format!("{}: {} with {}", self.words(), row.algorithm, row.protocol)
    }

    fn why(&self) -> String {
        let assumed: Vec<&str> = self.cluster().assumptions.iter().map(|one| one.trim_end_matches('.')).collect();
        let assumed = (!assumed.is_empty()).then(|| format!("Assumed: {}", assumed.join("; ")));
        let parts = [Some(self.how()), question::else_expected(self), assumed];
        parts.into_iter().flatten().collect::<Vec<_>>().join(". ")
    }

    fn too_slow(&self) -> Finding {
        let plateau = self.test.curve.plateau;
        let expected = self.expected();
        let suspect = suspects::most_alike(self.cluster(), self.collective, &self.ends(), self.test.comm);
        let (code, likeness) = match &suspect {
            Some(suspect) => (suspect.trouble.code, suspect.likeness(plateau)),
            None if self.cluster().domains() > 1 => (Code::NicRate, String::new()),
            None => (Code::P2pDisabled, String::new()),
        };
        let cause =
            suspect.as_ref().map_or("the cause is not visible".into(), |s| format!("as with {}", s.trouble.words));
        let confidence = if suspect.is_some() { 0.6 } else { 0.4 };
        let title = format!("{}: {plateau} of {} expected, {cause}", self.what(), expected.busbw);
        let explanation = format!("Predicted for {}; limited by {}.{likeness}", self.how(), expected.bottleneck);
        Finding {
            evidence: self.evidence(),
            remedy: suspect.map_or_else(general_remedy, |suspect| vec![suspect.trouble.remedy.into()]),
            expected_gain: Some(self.gain(expected.busbw)),
            ..Finding::new(code, Severity::Warning, confidence, title, explanation)
        }
    }

    /// Makes the note that explains the shortfall the trouble that it is: of what the input shows to cost speed, what the prediction does
    /// not have yet. What would give the measured figure comes first, a variable before what follows from it.
    fn blame(&self, case: &Case, findings: &mut [Finding]) {
        let suspect = suspects::most_alike(self.cluster(), self.collective, &self.ends(), self.test.comm);
        let suspect = suspect.map(|suspect| suspect.trouble.code);
        let is_of_set = |finding: &Finding| self.is_held && self.sets.iter().any(|set| set.is_told_by(finding));
        let explains = |finding: &Finding| {
            let is_note = finding.severity == Severity::Info && (finding.if_slow || is_of_set(finding));
            is_note && self.may_be_of(case, finding) && (self.is_held || suspects::is_new(self.cluster(), finding.code))
        };
        let rank = |finding: &Finding| (!(self.is_held && is_choice(finding.code)), Some(finding.code) != suspect);
        let notes = findings.iter_mut().filter(|finding| explains(finding));
        let Some(note) = notes.min_by_key(|finding| rank(finding)) else { return };
        let Expected { busbw, .. } = self.expected();
        note.severity = Severity::Warning;
        let beside = match self.allowed {
            Some(allowed) if is_of_set(note) => format!(", but allows {allowed}: something else is slow, too"),
            _ => String::new(),
        };
        note.title =
            format!("{}: {} of {busbw} expected. {}{beside}", self.what(), self.test.curve.plateau, note.title);
        note.evidence.extend(self.evidence());
        note.expected_gain = Some(self.gain(busbw));
    }

    /// Whether a finding may be about the table's run: an input with a table of its own speaks of that one.
    fn may_be_of(&self, case: &Case, finding: &Finding) -> bool {
        let own = self.test.table.place.input;
        let of_other = |input: u32| input != own && case.tests.iter().any(|test| test.table.place.input == input);
        finding.evidence.first().is_none_or(|evidence| !of_other(evidence.source.place.input))
    }

    fn ends(&self) -> suspects::Ends {
        let curve = &self.test.curve;
        let sizes = curve.rows.iter().map(|row| row.size).filter(|size| size.0 > 0);
        suspects::Ends { plateau: curve.plateau, largest: curve.largest, latency: sizes.min().zip(curve.latency) }
    }

    fn evidence(&self) -> Vec<Evidence> {
        let largest = self.test.curve.rows.iter().max_by_key(|row| row.size);
        let note = format!("{:.0}% of the expected speed", 100.0 * self.chosen().reached);
        largest.map(|row| Evidence::noted(row.source.clone(), note)).into_iter().collect()
    }

    /// From what was measured to `cured`, which is predicted without the trouble.
    fn gain(&self, cured: GBps) -> Gain {
        Gain {
            from_busbw: self.test.curve.plateau,
            to_busbw: (GBps(cured.0 * NEAR), cured),
            basis: format!("predicted at {} for {}", self.test.curve.largest, self.words()),
        }
    }

    /// The busbw that `cluster`, the one at hand with its trouble cured, should reach at the largest size.
    fn busbw_on(&self, cluster: &Cluster) -> GBps {
        let rows = predict(cluster, self.collective, &[self.test.curve.largest]).rows;
        rows.first().map_or(GBps(0.0), |row| row.busbw)
    }
}

/// Whether findings of a code are about what somebody chose: a variable, or the network that NCCL took.
fn is_choice(code: Code) -> bool {
    matches!(code, Code::EnvOverride | Code::NicUnused | Code::NetSocketFallback)
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
    let Some(cured) = suspects::cured(prospect.cluster(), finding.code) else { return };
    let gain = prospect.gain(prospect.busbw_on(&cured));
    if gain.to_busbw.0.0 > gain.from_busbw.0 {
        finding.expected_gain = Some(gain);
    }
}

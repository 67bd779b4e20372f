//! What tables show of the variables beside them: that a run did not have one, or what one costs.

use super::judge::{Fit, Hypothesis};
use super::{NEAR, Prospect};
use busbw_model::{EnvSetting, Finding, GBps, Judged, Judgement, Severity, Subject};

/// What a table shows of variables that hold a machine back.
pub(super) enum Trial {
    /// It is faster than they allow: its run did not have them, whatever is written beside it.
    Refuted(Vec<Set>),
    /// Another table of the input shows the same without them, at this speed: somebody wanted to know what they cost.
    Compared(Vec<Set>, GBps),
}

/// A variable with its value.
#[derive(Clone, PartialEq)]
pub(super) struct Set {
    name: String,
    value: String,
}

impl Set {
    pub fn of(setting: &EnvSetting) -> Set {
        Set { name: setting.name.clone(), value: setting.value.clone() }
    }

    fn words(&self) -> String {
        format!("{}={}", self.name, self.value)
    }

    /// Whether a finding is about it.
    pub fn is_told_by(&self, finding: &Finding) -> bool {
        finding.title.starts_with(&format!("{} ", self.words()))
    }
}

impl Trial {
    /// The variables that a speed refutes: more than any machine gives with them, not more than one gives without.
    pub fn refuted(sets: &[Set], with: &[Hypothesis], without: &[Hypothesis]) -> Option<Trial> {
        let is_above = |one: &Hypothesis| one.fit == Fit::Above;
        let is_refuted = !sets.is_empty() && with.iter().all(is_above) && without.iter().any(|one| !is_above(one));
        is_refuted.then(|| Trial::Refuted(sets.to_vec()))
    }
}

/// Finds the tables that show what a variable costs.
pub(super) fn compare(prospects: &mut [Prospect]) {
    for at in 0..prospects.len() {
        let one = &prospects[at];
        let is_without = |prospect: &&Prospect| {
            let refuted = matches!(prospect.trial, Some(Trial::Refuted(_)));
            prospect.is_like(one)
                && one.sets.iter().all(|set| refuted || !prospect.sets.iter().any(|other| other.name == set.name))
        };
        let may_cost = one.trial.is_none() && !one.sets.is_empty();
        let without = prospects.iter().filter(is_without);
        let fastest = without.map(|prospect| prospect.test.curve.plateau).max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(without) = fastest.filter(|_| may_cost) {
            prospects[at].trial = Some(Trial::Compared(prospects[at].sets.clone(), without));
        }
    }
}

/// Tells what variables cost in the notes about them, and takes away those of variables that no run had.
pub(super) fn tell(prospects: &[Prospect], findings: &mut Vec<Finding>) {
    for prospect in prospects {
        match &prospect.trial {
            Some(Trial::Compared(sets, without)) => {
                let with = prospect.test.curve.plateau;
                let is_dear = with.0 < without.0 * NEAR;
                let share = format!("costs {:.0}%", 100.0 * (1.0 - with.0 / without.0));
                let cost = if is_dear { share.as_str() } else { "costs nothing" };
                for finding in findings.iter_mut().filter(|finding| finding.severity == Severity::Info) {
                    if let Some(set) = sets.iter().find(|set| set.is_told_by(finding)) {
                        finding.title = format!("{} {cost}: {with} with it, {without} without", set.words());
                        finding.evidence.extend(prospect.evidence());
                        // It does not explain the run without.
                        finding.if_slow = false;
                    }
                }
            }
            Some(Trial::Refuted(sets)) => {
                let is_held = |set: &Set| prospects.iter().any(|other| other.had(set));
                findings.retain(|finding| !sets.iter().any(|set| set.is_told_by(finding) && !is_held(set)));
            }
            None => {}
        }
    }
}

impl Prospect<'_> {
    /// Whether another table shows what the variables of this one cost.
    pub(super) fn is_compared(&self) -> bool {
        matches!(self.trial, Some(Trial::Compared(..)))
    }

    /// What a table shows that is there to be compared.
    pub(super) fn compared(&self) -> Option<Judged> {
        let Some(Trial::Compared(sets, without)) = &self.trial else { return None };
        let with: Vec<String> = sets.iter().map(Set::words).collect();
        let measured = self.test.curve.plateau;
        let (what, how) =
            (format!("{} with {}", self.what(), with.join(" ")), format!("{measured}, {without} without"));
        Some(Judged::new(Subject::Speed, what, how, Judgement::Passed))
    }

    /// Whether a table shows the cost of a variable, or may be slow by it.
    fn had(&self, set: &Set) -> bool {
        match &self.trial {
            Some(Trial::Compared(sets, _)) => sets.contains(set),
            Some(Trial::Refuted(_)) => false,
            None => self.is_held && self.sets.contains(set),
        }
    }

    /// Whether two tables of an input are of the same collective on as many of the same GPUs.
    fn is_like(&self, other: &Prospect) -> bool {
        let gpu = |prospect: &Prospect| prospect.cluster().gpu.name.clone();
        self.test.table.place.input == other.test.table.place.input
            && !std::ptr::eq(self.test, other.test)
            && self.what() == other.what()
            && gpu(self) == gpu(other)
    }
}

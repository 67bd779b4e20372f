//! What the two ends saw of a rule, in one outcome.

use crate::case::PEER_GONE;
use crate::rules::{Nccl, Rule};
use crate::wire::{Ending, Outcome, Wrong};
use busbw_model::{Breach, RuleOutcome};

/// Why a step failed: that a process was lost, else what was noticed first. What the other end then notices follows from it.
pub(crate) fn failure(endings: &[Ending; 2]) -> Option<Wrong> {
    let failures = endings.iter().filter_map(|ending| match &ending.outcome {
        Outcome::Lost(why) => Some((0, ending.after, why.clone())),
        Outcome::Unusable(unusable) => Some((1, ending.after, unusable.why.clone().into())),
        Outcome::Failed(why) if why.cause != PEER_GONE => Some((1, ending.after, why.clone())),
        Outcome::Failed(why) => Some((2, ending.after, why.clone())),
        _ => None,
    });
    failures.min().map(|(_, _, why)| why)
}

/// What broke rules of a plugin so far: a cause is reported with the first rule that it breaks.
#[derive(Default)]
pub(crate) struct Causes(Vec<(String, &'static str)>);

impl Causes {
    /// A rule is kept when both ends saw it kept. What a test case itself judges goes before what the ends noticed.
    pub fn outcome(&mut self, rule: &Rule, endings: [Ending; 2]) -> RuleOutcome {
        let failed = failure(&endings);
        let [first, second] = endings.map(|ending| match ending.outcome {
            Outcome::Rule(outcome) => Some(outcome),
            _ => None,
        });
        match (weightier(first, second), failed) {
            (Some(judged @ (RuleOutcome::Broken(_) | RuleOutcome::Noted(_))), _) => judged,
            (_, Some(wrong)) => self.failed(rule, wrong),
            (judged, None) => judged.unwrap_or(RuleOutcome::Kept(String::new())),
        }
    }

    fn failed(&mut self, rule: &Rule, wrong: Wrong) -> RuleOutcome {
        if let Some((_, first)) = self.0.iter().find(|(cause, first)| *cause == wrong.cause && *first != rule.name) {
            return RuleOutcome::Untested((*first).to_owned());
        }
        let breach = |why: &str, stumbles| Breach { seen: wrong.to_string(), stumbles, why: why.to_owned() };
        match rule.nccl {
            Nccl::Never(why) => RuleOutcome::Noted(breach(why, false)),
            Nccl::Relies(why) => {
                let outcome = RuleOutcome::Broken(breach(why, true));
                self.0.push((wrong.cause, rule.name));
                outcome
            }
        }
    }
}

/// How bad an outcome is.
fn weight(outcome: &RuleOutcome) -> u8 {
    match outcome {
        RuleOutcome::Broken(_) => 4,
        RuleOutcome::Noted(_) => 3,
        RuleOutcome::NotOffered(_) => 2,
        RuleOutcome::Untested(_) => 1,
        RuleOutcome::Kept(_) => 0,
    }
}

/// Of what the ends judge, what is worse, or has more to tell.
fn weightier(first: Option<RuleOutcome>, second: Option<RuleOutcome>) -> Option<RuleOutcome> {
    let told = |outcome: &RuleOutcome| if let RuleOutcome::Kept(seen) = outcome { seen.len() } else { 0 };
    [second, first].into_iter().flatten().max_by_key(|outcome| (weight(outcome), told(outcome)))
}

/// What a rule's versions come to, the newest first: the worst of them, and which versions those are.
pub(crate) fn together(told: Vec<(Option<u8>, RuleOutcome)>) -> RuleOutcome {
    let Some(worst) = told.iter().map(|(_, outcome)| weight(outcome)).max() else {
        return RuleOutcome::Kept(String::new());
    };
    let mut outcomes = told.into_iter().filter(|(_, outcome)| weight(outcome) == worst);
    let Some((version, mut outcome)) = outcomes.next() else { return RuleOutcome::Kept(String::new()) };
    let alike = outcomes.filter_map(|(version, other)| version.filter(|_| other == outcome));
    let named: Vec<String> = version.into_iter().chain(alike).map(|version| format!("v{version}")).collect();
    if let RuleOutcome::Broken(Breach { seen, .. }) | RuleOutcome::Noted(Breach { seen, .. }) | RuleOutcome::Kept(seen) =
        &mut outcome
        && !named.is_empty()
        && !seen.is_empty()
    {
        *seen = format!("{}: {seen}", named.join(", "));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules;
    use std::time::Duration;

    fn after(ms: u64, outcome: Outcome) -> Ending {
        Ending { outcome, after: Duration::from_millis(ms) }
    }

    fn kept() -> Outcome {
        Outcome::Rule(RuleOutcome::Kept(String::new()))
    }

    fn failed(what: &str) -> Outcome {
        Outcome::Failed(what.to_owned().into())
    }

    fn rule(name: &str) -> &'static Rule {
        rules::all().find(|rule| rule.name == name).unwrap()
    }

    fn seen(outcome: RuleOutcome) -> (&'static str, String) {
        match outcome {
            RuleOutcome::Kept(seen) => ("kept", seen),
            RuleOutcome::Noted(breach) => ("noted", breach.seen),
            RuleOutcome::Broken(breach) => ("broken", breach.seen),
            RuleOutcome::Untested(by) => ("untested", by),
            RuleOutcome::NotOffered(why) => ("not offered", why),
        }
    }

    #[test]
    fn what_was_noticed_first_is_believed() {
        let crashed = || Outcome::Lost("ended by SIGSEGV".to_owned().into());
        let untold = || Breach { seen: "untold".into(), stumbles: false, why: String::new() };
        for (endings, expected) in [
            ([after(1, kept()), after(2, kept())], ("kept", "")),
            ([after(1, kept()), after(1, crashed())], ("broken", "ended by SIGSEGV")),
            ([after(1, failed("the peer is gone")), after(9, crashed())], ("broken", "ended by SIGSEGV")),
            ([after(9, failed("no end")), after(1, failed("changed"))], ("broken", "changed")),
            ([after(1, failed(PEER_GONE)), after(2, failed("late"))], ("broken", "late")),
            ([after(1, kept()), after(2, Outcome::Killed)], ("kept", "")),
            ([after(1, Outcome::Rule(RuleOutcome::Noted(untold()))), after(2, failed(PEER_GONE))], ("noted", "untold")),
            (
                [
                    after(1, Outcome::Rule(RuleOutcome::Noted(untold()))),
                    after(2, Outcome::Rule(RuleOutcome::Broken(Breach { seen: "worse".into(), ..untold() }))),
                ],
                ("broken", "worse"),
            ),
        ] {
            let (outcome, what) = seen(Causes::default().outcome(rule("connect"), endings));
            assert_eq!((outcome, what.as_str()), expected);
        }
    }

    #[test]
    fn a_cause_is_told_once() {
        let mut causes = Causes::default();
        let busy = |detail: &str| Wrong { cause: "isend gave ncclInternalError (3)".into(), detail: detail.into() };
        for (name, wrong, expected) in [
            ("order", busy("no room, port 1"), ("broken", "isend gave ncclInternalError (3): no room, port 1")),
            ("sizes", busy("no room, port 2"), ("untested", "order")),
            ("tags", "nothing came".to_owned().into(), ("broken", "nothing came")),
            ("busy", busy(""), ("untested", "order")),
            ("flush", "iflush is missing".to_owned().into(), ("noted", "iflush is missing")),
        ] {
            let endings = [after(1, Outcome::Failed(wrong)), after(2, failed(PEER_GONE))];
            let (outcome, what) = seen(causes.outcome(rule(name), endings));
            assert_eq!((outcome, what.as_str()), expected, "{name}");
        }
    }

    #[test]
    fn the_worst_version_is_told_with_those_like_it() {
        let kept = |seen: &str| RuleOutcome::Kept(seen.into());
        let broken = |seen: &str| RuleOutcome::Broken(Breach { seen: seen.into(), stumbles: true, why: String::new() });
        for (versions, expected) in [
            (vec![(None, kept("fast"))], ("kept", "fast")),
            (vec![(Some(6), kept("")), (Some(5), kept("fast"))], ("kept", "")),
            (vec![(Some(6), kept("fast")), (Some(5), kept("slow")), (Some(4), kept("fast"))], ("kept", "v6, v4: fast")),
            (
                vec![(Some(6), kept("")), (Some(5), broken("late")), (Some(4), broken("late"))],
                ("broken", "v5, v4: late"),
            ),
        ] {
            let (outcome, what) = seen(together(versions));
            assert_eq!((outcome, what.as_str()), expected);
        }
        let mut causes = Causes::default();
        let crash = || [after(1, Outcome::Lost("SIGABRT".to_owned().into())), after(1, failed(PEER_GONE))];
        let versions = [6, 5].map(|version| (Some(version), causes.outcome(rule("profiler-again"), crash())));
        assert_eq!(seen(together(versions.into())), ("broken", "v6, v5: SIGABRT".to_owned()));
    }
}

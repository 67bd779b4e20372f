//! Known faults: what the versions in use can do to a job, and in which release it ends (`rules/known-faults`).
//!
//! A fault stands where a version has it and none of its conditions is known to be unmet. It hit where its own text is in the
//! input and nothing refutes it; it can hit where all of its conditions are met; else it cannot be known.

pub(crate) mod built_in;
mod coverage;
mod likeness;
mod names;
mod printed;
pub mod situation;
pub mod table;
mod take;

pub use built_in::all;
pub use coverage::check_plausible;
pub use likeness::likest;
pub use names::nearest;

use crate::case::Case;
use crate::data::Until;
use crate::lines::Line;
use busbw_model::{
    Advised, Code, Component, Consequence, Evidence, Exposure, Finding, KnownFault, Severity, Speaker, Version,
};
use coverage::{not_covered, releases};
use situation::Situation;
use std::cmp::Reverse;
use table::{Condition, Fault, Sure};

/// Every fault as a page shows it, with what it depends on, in words.
pub fn listed() -> Vec<(String, KnownFault)> {
    let version = |fault: &Fault| fault.first.iter().chain(&fault.last).chain(fault.fixed.all()).next().cloned();
    let all = all().iter().map(|fault| {
        let version = version(fault).unwrap_or_default();
        (fault.when.words().join("; "), described(fault, &version, Exposure::CannotKnow, Vec::new()))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, fault)| fault.component);
    all
}

/// What the versions of a situation can do, by the faults of a book; whether they did cannot be told without a run.
pub fn advise(known: &Situation, faults: &[Fault]) -> Advised {
    answer(known, faults, |_| None)
}

/// What the versions of a run can do, and did; what fits what was found in it stands first.
pub fn advise_run(case: &Case, situation: &Situation, found: &[Finding]) -> Advised {
    let faults = case.book.faults();
    let mut advised = answer(situation, faults, |fault| shown(case, fault));
    let troubles: Vec<Code> = found.iter().filter(|f| f.severity > Severity::Info).map(|f| f.code).collect();
    for fault in &mut advised.faults {
        // What prints a text of its own and did not is something else.
        let Some(known) = faults.iter().find(|known| known.id == fault.id && known.text.is_none()) else { continue };
        let alike = known.symptom.is_some_and(|code| troubles.contains(&code));
        // A trouble has many causes: what depends on more than the run tells is no likely one.
        fault.fits =
            fault.exposure != Exposure::CannotKnow && (alike || is_shown(known, fault) && !troubles.is_empty());
    }
    // A run that went well is about no fault; who writes of one means something by it.
    let is_run = !case.run.communicators.is_empty() || !case.run.tables.is_empty();
    first_what_fits(&mut advised, situation, faults);
    if !is_run || !troubles.is_empty() || situation.is_a_post() {
        first_what_is_alike(&mut advised, situation, faults, None);
    }
    advised
}

/// Marks what does to a job what a user saw, and what the run shows more of than its versions and machine, and puts it first.
pub fn told(advised: &mut Advised, seen: Consequence, situation: &Situation, faults: &[Fault]) {
    for fault in &mut advised.faults {
        let known = faults.iter().find(|known| known.id == fault.id);
        fault.fits |= ends_alike(fault.consequence, seen) || known.is_some_and(|known| is_shown(known, fault));
    }
    first_what_fits(advised, situation, faults);
    first_what_is_alike(advised, situation, faults, Some(seen));
}

/// Whether a user cannot distinguish two consequences: a process that aborts and one that ends with an error.
fn ends_alike(one: Consequence, other: Consequence) -> bool {
    let ends = |consequence| matches!(consequence, Consequence::Crash | Consequence::Refused);
    one == other || ends(one) && ends(other)
}

/// What fits stands first. Of that and of the rest, what the run shows more of than versions and machine; of what fits, then what has conditions of which all are met, then those of which one is, then what every
/// machine can have. Where as many are met, the fault of fewer releases is closer: people ask after an upgrade, and what has been
/// there for years they would have met before.
fn first_what_fits(advised: &mut Advised, situation: &Situation, faults: &[Fault]) {
    let shown = |fault: &KnownFault| {
        let known = faults.iter().find(|known| known.id == fault.id && is_shown(known, fault));
        known.map_or(0, |known| situation.shown(&known.shown) + situation.shown(&known.about))
    };
    let closeness = |fault: &KnownFault| {
        let known = faults.iter().find(|known| fault.fits && known.id == fault.id)?;
        let met = known.when.words().len().saturating_sub(fault.unknown.len());
        let unknown = fault.unknown.len();
        let far = match (unknown, met) {
            (0, 1..) => 0,
            (_, 1..) => 1,
            (_, 0) => 2,
        };
        Some((far, Reverse(met), breadth(known, faults), unknown))
    };
    advised.faults.sort_by_cached_key(|fault| {
        (fault.exposure != Exposure::HitYou, !fault.fits, Reverse(shown(fault)), closeness(fault), fault.exposure)
    });
}

/// Of a text that a person wrote, what is likest to it goes before all others.
fn first_what_is_alike(advised: &mut Advised, situation: &Situation, faults: &[Fault], seen: Option<Consequence>) {
    if !situation.written().is_empty() {
        likeness::order(&mut advised.faults, situation, faults, seen);
    }
}

/// Whether the run shows what a fault depends on and no machine tells.
fn is_shown(known: &Fault, fault: &KnownFault) -> bool {
    let asked = known.when.conditions.get(&Condition::Only).map(|only| Condition::Only.words(only));
    asked.is_some_and(|asked| !fault.unknown.contains(&asked))
}

/// A fault that hit a run, with the line that shows it.
pub fn hits<'a>(case: &Case<'a>, known: &Situation) -> Vec<(&'a Fault, KnownFault, Evidence)> {
    let hit = |fault: &'a Fault| {
        fault.text.as_ref().filter(|text| known.may_show(text))?;
        version_with(known, fault, true)?;
        let line = shown(case, fault)?;
        let found = known_fault(known, fault, true)?;
        let evidence = Evidence::noted(line.source.clone(), format!("what {} prints", fault.component.title()));
        Some((fault, found, evidence))
    };
    case.book.printed_faults().iter().filter_map(hit).collect()
}

fn answer<'a>(known: &Situation, table: &[Fault], shown: impl Fn(&Fault) -> Option<&'a Line<'a>>) -> Advised {
    let exposed = |fault: &Fault| known_fault(known, fault, shown(fault).is_some());
    let mut faults: Vec<KnownFault> = table.iter().filter_map(exposed).collect();
    // Of those that are as bad, what has conditions tells more of this machine than what hits everybody, and what few releases
    // have more than what all have.
    let closeness = |fault: &KnownFault| {
        let known = table.iter().find(|known| known.id == fault.id)?;
        Some((Reverse(known.when.words().len()), fault.consequence, breadth(known, table)))
    };
    faults.sort_by_cached_key(|fault| {
        (fault.exposure, !fault.consequence.is_grave(), closeness(fault), fault.id.clone())
    });
    Advised {
        known: known.facts(),
        not_covered: not_covered(known, table),
        take: take::best(known, table, &faults),
        faults,
    }
}

/// The first release whose notes are in the tables: of an older one they tell only what stood in later notes.
fn covered_from(component: Component) -> Option<&'static Version> {
    let of = all().iter().filter(|fault| fault.component == component);
    of.filter_map(|fault| fault.fixed.all().iter().max()).min()
}

/// How many releases have a fault, of those that the tables name. A user names only the release in use: without a mend, each later
/// one may have the fault.
fn breadth(fault: &Fault, table: &[Fault]) -> usize {
    let is_open = fault.sure == Sure::Reported && fault.fixed.all().is_empty();
    let may = |version: &Version| is_open && fault.first.as_ref().is_none_or(|first| version >= first);
    releases(table, fault.component).into_iter().filter(|version| fault.affects(version) || may(version)).count()
}

/// The version in use that has a fault. Where nothing mended it, and the run shows it, a version later than its last one may have it.
fn version_with<'s>(known: &'s Situation, fault: &Fault, shown: bool) -> Option<&'s Version> {
    let versions = || known.of(fault.component).into_iter().flatten();
    let is_open =
        |version: &Version| fault.fixed.all().is_empty() && fault.last.as_ref().is_some_and(|last| version > last);
    let may_last = |version: &&Version| is_open(version) && (shown || known.shows(&fault.shown));
    versions().find(|version| fault.affects(version)).or_else(|| versions().find(may_last))
}

/// How a fault stands in a situation; none where no version in use has it, or a condition is not met.
fn known_fault(known: &Situation, fault: &Fault, shown: bool) -> Option<KnownFault> {
    let version = version_with(known, fault, shown)?;
    let mut unknown = unknown(known, fault, version)?;
    let later = fault.last.as_ref().filter(|_| !fault.affects(version));
    unknown.extend(later.map(|last| format!("until: whether versions after {last} have it")));
    let exposure = match (shown && later.is_none(), unknown.is_empty()) {
        (true, _) => Exposure::HitYou,
        (false, true) => Exposure::CanHitYou,
        (false, false) => Exposure::CannotKnow,
    };
    Some(described(fault, version, exposure, unknown))
}

fn described(fault: &Fault, version: &Version, exposure: Exposure, unknown: Vec<String>) -> KnownFault {
    KnownFault {
        id: fault.id.clone(),
        component: fault.component,
        version: version.clone(),
        exposure,
        title: fault.title.clone(),
        fits: false,
        consequence: fault.consequence,
        affected: fault.affected(),
        fixed: fault.fixed.all().to_vec(),
        workaround: fault.workaround.clone(),
        note: fault.note.clone(),
        unknown,
        source: fault.source.clone(),
    }
}

/// What is not known of a version that may have a fault: conditions, and whether the fault is there at all where its source does not
/// say since when and the version is older than what the tables cover. None where a condition is not met.
fn unknown(known: &Situation, fault: &Fault, version: &Version) -> Option<Vec<String>> {
    let mut unknown = Vec::new();
    let covered = covered_from(fault.component);
    if let Some(from) = covered.filter(|from| fault.first.is_none() && version < from) {
        unknown.push(format!("since: whether versions before {from} have it"));
    }
    for (condition, wanted) in &fault.when.conditions {
        let shows = *condition == Condition::Only && known.shows(&fault.shown);
        match shows.then_some(true).or_else(|| known.meets(*condition, wanted)) {
            Some(true) => {}
            Some(false) => return None,
            None => unknown.push(condition.words(wanted)),
        }
    }
    for (other, bounds) in &fault.when.with {
        let within = |version: &Version| bounds.hold(|limit| Some(version.cmp(&limit.parse().ok()?)));
        match known.of(other.0) {
            Some(versions) if versions.iter().any(within) => {}
            Some(_) => return None,
            None => unknown.push(format!("version: {}", other.0.name())),
        }
    }
    Some(unknown)
}

/// The line of a run that shows a fault: its text, of a program that is known, which no later line refutes.
fn shown<'a>(case: &'a Case, fault: &Fault) -> Option<&'a Line<'a>> {
    let text = fault.text.as_ref()?;
    let lasting = matches!(fault.consequence, Consequence::Slow | Consequence::Leak);
    let until = if lasting { Until::Never } else { Until::End };
    case.lines
        .iter()
        .find(|line| line.speaker != Speaker::Program && text.is_in(&line.text) && !case.refuters.refute(until, line))
}

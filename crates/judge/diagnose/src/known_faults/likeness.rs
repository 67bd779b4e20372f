//! Which known faults a text that a person wrote is about: how many of an entry's rare words stand in it.
//!
//! A word counts by how few entries have it (inverse document frequency). What an entry says is parted: its title, its name, its note, and the
//! names in its conditions; the title counts once more where the text begins, where people write what it is about. The words of a part that
//! stand in the text are divided by the root of what all of its words would give, so that a long one does not win by its length. What the
//! versions and conditions tell is added. The sum is a log-odds: of two faults, one point more is 2.7 times as likely. The weights are a
//! logistic regression over threads about known faults, rounded: of 127 that nobody tuned it for, 95 got their fault first, before names were taken apart. It orders what may be
//! looked up; nothing is judged by it.

use super::situation::Situation;
use super::table::{Condition, Fault, Sure};
use super::{described, releases, unknown};
use crate::words::KNOWN;
use busbw_model::{Component, Consequence, Exposure, KnownFault, Version};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Faults of programs whose version nobody tells, of which the likest are named.
const MOST_WITHOUT_VERSION: usize = 10;
/// Faults that stand before the others because they are like the text.
const MOST_ALIKE: usize = 5;
/// What the words alone give at least: a text of other things shares a word or two with most entries.
const LEAST: f64 = 3.0;
/// From here on the first one is named without being asked for, if it is so much liker than the second: pages about many faults,
/// and prose about NCCL, stay below one or the other.
const SURE: f64 = 6.0;
const LEAD: f64 = 2.0;
/// Words of a short text.
const SHORT: f64 = 90.0;
/// The most words of a text of which one fault is named without being asked for: more has no report of one failure.
const LONGEST: usize = 2000;
/// Words with which a text begins: its title, or its first sentences.
const BEGINNING: usize = 40;
/// What its name counts once more, and what the names in its conditions do.
const NAME: f64 = 0.7;
const CONDITIONS: f64 = 0.9;
/// What the words of a part weigh at least: one of few words is not met by one of them. A note has more.
const SHORTEST_PART: f64 = 5.0;
const SHORTEST_NOTE: f64 = 20.0;
/// What a condition takes that is not known to be met, and what one gives that is. Of several that are not known the root of their number
/// counts: an entry is not less likely because its source is precise.
const OPEN: f64 = 1.9;
const MET: f64 = 0.9;
/// What it gives that the text says that the job does what the fault does, that it names the program, and that its version is told.
const DOES: f64 = 1.3;
const NAMED: f64 = 1.0;
const TOLD: f64 = 0.5;
/// What it gives that the version that is told is the only one with the fault: people ask after an upgrade. Where more releases
/// have it, it gives less.
const NARROW: f64 = 1.8;
/// What it gives that the text has what the program prints when the fault hits, and only then. Chosen, not fitted: it
/// outweighs all others.
const PRINTED: f64 = 6.0;
/// What it gives that of several versions that are told some have the fault: who compares names one that works.
const APART: f64 = 1.0;
/// Ends of words that change with the sentence.
const ENDS: [&str; 4] = ["ing", "ed", "es", "s"];
/// The shortest word, and the shortest that is left of one.
const SHORTEST: usize = 3;

/// A text, and the words of the entries that it may be about.
struct Told<'a> {
    known: &'a Situation,
    text: String,
    words: HashSet<String>,
    beginning: HashSet<String>,
    does: Vec<Consequence>,
    /// By what a longer text must be liker: it has words of more entries.
    length: f64,
    entries: HashMap<&'a str, Entry>,
    /// How rare a word is: the logarithm of how few entries have it.
    rare: HashMap<String, f64>,
    releases: BTreeMap<Component, BTreeSet<&'a Version>>,
}

/// What an entry says.
struct Entry {
    title: BTreeSet<String>,
    name: BTreeSet<String>,
    note: BTreeSet<String>,
    conditions: BTreeSet<String>,
}

/// How like a fault is: by its words alone, and with what else is known.
#[derive(Clone, Copy)]
struct Likeness {
    words: f64,
    all: f64,
}

/// Faults of programs without a known version join those of the others, and the likest of all stand first. How like the first is, and how
/// far it is before the second.
pub(super) fn order(
    found: &mut Vec<KnownFault>,
    known: &Situation,
    faults: &[Fault],
    seen: Option<Consequence>,
) -> (f64, f64) {
    let told = Told::new(known, faults, seen);
    let by_id: HashMap<&str, &Fault> = faults.iter().map(|fault| (fault.id.as_str(), fault)).collect();
    let alike = |fault: &KnownFault| by_id.get(fault.id.as_str()).and_then(|entry| told.likeness(entry, fault));
    let mut others: Vec<(Likeness, KnownFault)> =
        without_version(known, faults).filter_map(|fault| Some((alike(&fault)?, fault))).collect();
    others.sort_by(|(one, _), (other, _)| other.all.total_cmp(&one.all));
    found.extend(others.into_iter().take(MOST_WITHOUT_VERSION).map(|(_, fault)| fault));

    let alike: HashMap<String, Likeness> =
        found.iter().filter_map(|fault| Some((fault.id.clone(), alike(fault)?))).collect();
    let mut best: Vec<Likeness> = alike.values().copied().collect();
    best.sort_by(|one, other| other.all.total_cmp(&one.all));
    let Some(first) = best.first() else { return (0.0, 0.0) };
    let lead = best.get(1).map_or(first.all, |second| first.all - second.all);
    let least = best.get(MOST_ALIKE - 1).map_or(f64::MIN, |least| least.all);
    let place = |fault: &KnownFault| Some((alike.get(&fault.id).filter(|alike| alike.all >= least)?.all * 1e6) as i64);
    found.iter_mut().for_each(|fault| fault.fits = place(fault).is_some());
    found.sort_by_cached_key(|fault| (fault.exposure != Exposure::HitYou, Reverse(place(fault))));
    (first.words / told.length, lead)
}

/// The fault that a text is about, where hardly anything else can be meant.
pub fn likest(known: &Situation, faults: &[Fault]) -> Option<KnownFault> {
    if known.written().is_empty() || names(known.written()).nth(LONGEST).is_some() {
        return None;
    }
    let mut found = super::advise(known, faults).faults;
    let (first, lead) = order(&mut found, known, faults, None);
    found.into_iter().next().filter(|_| first >= SURE && lead >= LEAD)
}

/// The faults of programs of which no version is known, as the newest release that has each; without those that cannot be. Who writes
/// of a fault may name only the release that ended it; and of a fault that only users reported, nobody may have tried older releases, or later ones.
fn without_version<'a>(known: &'a Situation, faults: &'a [Fault]) -> impl Iterator<Item = KnownFault> + 'a {
    let newest: BTreeMap<Component, Vec<_>> = Component::ALL
        .into_iter()
        .filter(|component| known.of(*component).is_none() || known.is_stated(*component))
        .map(|component| (component, releases(faults, component).into_iter().rev().collect()))
        .collect();
    let is_open = |fault: &&Fault| {
        let ended = |versions: &BTreeSet<Version>| fault.fixed.all().iter().any(|fixed| versions.contains(fixed));
        let has = |versions: &BTreeSet<Version>| versions.iter().any(|version| fault.affects(version));
        let mended = |version: &Version| fault.fixed.all().iter().any(|fixed| version >= fixed);
        let may_have = |versions: &BTreeSet<Version>| fault.sure == Sure::Reported && !versions.iter().any(mended);
        known.of(fault.component).is_none_or(|versions| (ended(versions) || may_have(versions)) && !has(versions))
    };
    faults.iter().filter(is_open).filter_map(move |fault| {
        let version = newest.get(&fault.component)?.iter().find(|version| fault.affects(version))?;
        let asked = format!("version: {}", fault.component.name());
        let open = unknown(known, fault, version)?.into_iter().chain([asked]).collect();
        Some(described(fault, version, Exposure::CannotKnow, open))
    })
}

impl<'a> Told<'a> {
    fn new(known: &'a Situation, faults: &'a [Fault], seen: Option<Consequence>) -> Self {
        let text = known.written().to_lowercase();
        let says = |(_, words): &&(Consequence, Vec<String>)| words.iter().any(|word| text.contains(word.as_str()));
        let does = KNOWN.does.iter().filter(says).map(|(does, _)| *does);
        let does = seen.map_or_else(|| does.collect(), |seen| vec![seen]);
        let words: Vec<String> = names(known.written()).map(stem).collect();
        let length = (words.len() as f64 / SHORT).ln_1p().max(1.0);
        let beginning = words.iter().take(BEGINNING).cloned().collect();
        let words = words.into_iter().collect();
        let entries: HashMap<&str, Entry> = faults.iter().map(|fault| (fault.id.as_str(), Entry::of(fault))).collect();
        let mut having: HashMap<String, u32> = HashMap::new();
        for word in entries.values().flat_map(Entry::words) {
            *having.entry(word.clone()).or_default() += 1;
        }
        let all = faults.len() as f64 + 1.0;
        let rare = having.into_iter().map(|(word, having)| (word, (all / (f64::from(having) + 0.5)).ln())).collect();
        let releases = Component::ALL.map(|component| (component, releases(faults, component))).into();
        Told { known, text, words, beginning, does, length, entries, rare, releases }
    }

    /// Whether some of the versions that are told have the fault, and others have it not.
    fn sets_apart(&self, fault: &Fault) -> bool {
        let has = |versions: &BTreeSet<Version>| versions.iter().filter(|version| fault.affects(version)).count();
        self.known.of(fault.component).is_some_and(|told| (1..told.len()).contains(&has(told)))
    }

    /// How like a fault is to the text; none where it shares no more than chance.
    fn likeness(&self, fault: &Fault, found: &KnownFault) -> Option<Likeness> {
        let entry = self.entries.get(fault.id.as_str())?;
        let words = self.share(&entry.title, &self.words, SHORTEST_PART)
            + self.share(&entry.title, &self.beginning, SHORTEST_PART)
            + NAME * self.share(&entry.name, &self.words, SHORTEST_PART)
            + self.share(&entry.note, &self.words, SHORTEST_NOTE)
            + CONDITIONS * self.share(&entry.conditions, &self.words, SHORTEST_PART);
        let names = [fault.component.name(), fault.component.title()];
        let is_named = names.iter().any(|name| self.text.contains(&name.to_lowercase()));
        let asked = format!("version: {}", fault.component.name());
        let is_told = !found.unknown.contains(&asked);
        let open = found.unknown.len();
        let conditions = fault.when.words().len().saturating_sub(open);
        let is_printed = self.known.shows(fault.text.as_slice());
        let affected = self.releases[&fault.component].iter().filter(|release| fault.affects(release)).count();
        let given = |weight: f64, is_so: bool| if is_so { weight } else { 0.0 };
        let all = words
            + given(DOES, self.does.contains(&fault.consequence))
            + given(NAMED, is_named)
            + given(APART, self.sets_apart(fault))
            + given(PRINTED, is_printed)
            + given(TOLD + NARROW / (affected.max(1) as f64).sqrt(), is_told)
            + MET * conditions as f64
            - OPEN * (open as f64).sqrt();
        // A text of other things names no program of these.
        let least = if is_told || is_named { LEAST } else { 2.0 * LEAST };
        (is_printed || words >= least * self.length).then_some(Likeness { words, all })
    }

    /// How much of some words stands in a text.
    fn share(&self, words: &BTreeSet<String>, text: &HashSet<String>, shortest: f64) -> f64 {
        let met: f64 = words.iter().filter(|word| text.contains(*word)).map(|word| self.rare[word]).sum();
        met / (words.iter().map(|word| self.rare[word]).sum::<f64>() + shortest).sqrt()
    }
}

impl Entry {
    fn of(fault: &Fault) -> Self {
        const NAMES: [Condition; 10] = [
            Condition::Only,
            Condition::Feature,
            Condition::Collective,
            Condition::Algorithm,
            Condition::Protocol,
            Condition::Variable,
            Condition::Launcher,
            Condition::Gpu,
            Condition::Arch,
            Condition::Fabric,
        ];
        let words = |text: &str| -> BTreeSet<String> { names(text).map(stem).collect() };
        let name = words(&fault.id);
        let title = words(&fault.title).union(&name).cloned().collect();
        let beside = |texts: BTreeSet<String>| texts.difference(&title).cloned().collect();
        let note = fault.note.iter().chain(&fault.workaround).flat_map(|text| words(text)).collect();
        let when = NAMES.iter().filter_map(|key| fault.when.conditions.get(key)).flat_map(|values| values.all());
        let shown = fault.shown.iter().chain(&fault.about).chain(&fault.text).flat_map(|text| text.pieces());
        let conditions = when.chain(shown).flat_map(|text| words(text)).collect();
        Entry { note: beside(note), conditions: beside(conditions), name, title }
    }

    /// Its words, each once.
    fn words(&self) -> BTreeSet<&String> {
        [&self.title, &self.note, &self.conditions].into_iter().flatten().collect()
    }
}

/// The words of a text, and the parts of its names: `trtllm_allreduce_fusion` has three.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| word.len() >= SHORTEST && !word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A word in small letters without its ending.
fn stem(word: &str) -> String {
    let mut word = word.to_ascii_lowercase();
    let rest = ENDS.iter().find_map(|end| word.strip_suffix(end).map(str::len).filter(|rest| *rest >= SHORTEST));
    word.truncate(rest.unwrap_or(word.len()));
    word
}

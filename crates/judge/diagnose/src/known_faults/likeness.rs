//! Which known faults a text that a person wrote is about: how much of an entry's words stands together in it.
//!
//! A word counts by how few entries have it (inverse document frequency), names of functions, variables and GPUs more, and what
//! many entries have not at all; what a program prints counts as a whole. Only the words of one passage count: in a long text
//! stands a word of everything. The sum is divided by the root of what all words of the entry would give, so that a long entry does
//! not win by its length. It orders what may be looked up; nothing is judged by it.

use super::situation::Situation;
use super::table::{Condition, Fault};
use super::{breadth, described, releases, unknown};
use crate::data::Template;
use crate::words::KNOWN;
use busbw_model::{Component, Consequence, Exposure, KnownFault, Version};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Faults of programs whose version nobody tells, of which the likest are named.
const MOST_WITHOUT_VERSION: usize = 10;
/// Faults that stand before the others because they are like the text.
const MOST_ALIKE: usize = 5;
/// Less than this is chance: a text of other things shares a word or two with most entries.
const LEAST: f64 = 1.0;
/// From here on the first one is named without being asked for, if it is so much liker than the second: pages about many faults,
/// and prose about NCCL, stay below one or the other.
const SURE: f64 = 3.5;
const LEAD: f64 = 1.5;
/// The most words of a text of which one fault is named without being asked for: more has no report of one failure.
const LONGEST: usize = 2000;
/// Words of a passage: as many as a short post has.
const PASSAGE: usize = 90;
/// What an entry's word must weigh to count: less than 9% of the entries have it.
const RARE: f64 = 2.4;
/// What a name of a program's counts beside a word of a sentence.
const NAME: f64 = 1.5;
/// What a word of a sentence counts that stands only in the note or the workaround.
const BESIDE: f64 = 0.5;
/// What the words of an entry weigh at least: a title of few words is not met by one of them.
const SHORTEST_ENTRY: f64 = 40.0;
/// What a condition is worth that is not known to be met, and one that is; and what it is that the text does not tell the version.
/// Of several that are not known the root of their number counts: an entry is not less likely because its source is precise.
const OPEN: f64 = 0.8;
const MET: f64 = 1.2;
const ASKED: f64 = 0.8;
/// What it is worth that the text names the program, or says that the job does what the fault does.
const SAID: f64 = 1.3;
/// What it is worth that a line stands in it which the program prints then.
const PRINTED: f64 = 2.0;
/// What it is worth that the version that is told is the only one with the fault: people ask after an upgrade. Where more releases
/// have it, it is worth less.
const NARROW: f64 = 1.0;
/// What it is worth that of several versions that are told some have the fault: who compares names one that works.
const APART: f64 = 1.3;
/// Ends of words that change with the sentence.
const ENDS: [&str; 4] = ["ing", "ed", "es", "s"];
/// The shortest word, and the shortest that is left of one.
const SHORTEST: usize = 3;

/// A text, and how much of each entry stands in it.
struct Told<'a> {
    known: &'a Situation,
    faults: &'a [Fault],
    text: String,
    does: Vec<Consequence>,
    /// Of each entry the words of the passage that has most of it, and all of its words.
    weights: HashMap<&'a str, (f64, f64)>,
    /// By what a longer text is divided: it has more passages, one of which is like something.
    length: f64,
}

/// Faults of programs without a known version join those of the others, and the likest of all stand first. How like the first and
/// the second are.
pub(super) fn order(
    found: &mut Vec<KnownFault>,
    known: &Situation,
    faults: &[Fault],
    seen: Option<Consequence>,
) -> [f64; 2] {
    let told = Told::new(known, faults, seen);
    let by_id: HashMap<&str, &Fault> = faults.iter().map(|fault| (fault.id.as_str(), fault)).collect();
    let alike = |fault: &KnownFault| by_id.get(fault.id.as_str()).map_or(0.0, |entry| told.likeness(entry, fault));
    let mut others: Vec<(f64, KnownFault)> = without_version(known, faults)
        .map(|fault| (alike(&fault), fault))
        .filter(|(alike, _)| *alike >= LEAST)
        .collect();
    others.sort_by(|one, other| other.0.total_cmp(&one.0));
    found.extend(others.into_iter().take(MOST_WITHOUT_VERSION).map(|(_, fault)| fault));

    let mut scores: BTreeMap<String, f64> = found.iter().map(|fault| (fault.id.clone(), alike(fault))).collect();
    let mut best: Vec<f64> = scores.values().copied().filter(|alike| *alike >= LEAST).collect();
    best.sort_by(|one, other| other.total_cmp(one));
    if best.is_empty() {
        return [0.0; 2];
    }
    let least = best.get(MOST_ALIKE - 1).copied().unwrap_or(LEAST);
    scores.retain(|_, alike| *alike >= least);
    for fault in found.iter_mut() {
        fault.fits = scores.contains_key(&fault.id);
    }
    let place = |fault: &KnownFault| scores.get(&fault.id).map_or(0, |alike| (alike * 1e6) as u64);
    found.sort_by_cached_key(|fault| (fault.exposure != Exposure::HitYou, Reverse(place(fault))));
    [0, 1].map(|at| best.get(at).copied().unwrap_or(0.0))
}

/// The fault that a text is about, where hardly anything else can be meant.
pub fn likest(known: &Situation, faults: &[Fault]) -> Option<KnownFault> {
    if names(known.written()).nth(LONGEST).is_some() {
        return None;
    }
    let mut found = super::advise(known, faults).faults;
    let [first, second] = order(&mut found, known, faults, None);
    found.into_iter().next().filter(|_| first >= SURE && first >= LEAD * second)
}

/// The faults of programs of which no version is known, as the newest release that has each; without those that cannot be. Who writes
/// of a fault may name only the release that ended it.
fn without_version<'a>(known: &'a Situation, faults: &'a [Fault]) -> impl Iterator<Item = KnownFault> + 'a {
    let newest: BTreeMap<Component, Vec<_>> = Component::ALL
        .into_iter()
        .filter(|component| known.of(*component).is_none() || known.is_stated(*component))
        .map(|component| (component, releases(faults, component).into_iter().rev().collect()))
        .collect();
    let is_open = |fault: &&Fault| {
        let ended = |versions: &BTreeSet<Version>| fault.fixed.all().iter().any(|fixed| versions.contains(fixed));
        let has = |versions: &BTreeSet<Version>| versions.iter().any(|version| fault.affects(version));
        known.of(fault.component).is_none_or(|versions| ended(versions) && !has(versions))
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
        let passages = words.len().div_ceil(PASSAGE / 2).saturating_sub(1).max(1);
        let length = 1.0 + (passages as f64).ln();
        Told { known, faults, weights: weights(&words, faults), text, does, length }
    }

    /// Whether some of the versions that are told have the fault, and others have it not.
    fn sets_apart(&self, fault: &Fault) -> bool {
        let has = |versions: &BTreeSet<Version>| versions.iter().filter(|version| fault.affects(version)).count();
        self.known.of(fault.component).is_some_and(|told| (1..told.len()).contains(&has(told)))
    }

    fn likeness(&self, fault: &Fault, found: &KnownFault) -> f64 {
        let (met, whole) = self.weights.get(fault.id.as_str()).copied().unwrap_or_default();
        let names = [fault.component.name(), fault.component.title()];
        let is_named = names.iter().any(|name| self.text.contains(&name.to_lowercase()));
        let said = [is_named, self.does.contains(&fault.consequence)].iter().filter(|said| **said).count();
        let asked = format!("version: {}", fault.component.name());
        let is_told = !found.unknown.contains(&asked);
        let open = found.unknown.len();
        let conditions = fault.when.words().len().saturating_sub(open);
        let apart = if self.sets_apart(fault) { APART } else { 1.0 };
        let beside = SAID.powi(said as i32) * OPEN.powf((open as f64).sqrt()) * MET.powi(conditions as i32) * apart;
        let version = match is_told {
            true if met > 0.0 => 1.0 + NARROW / (breadth(fault, self.faults).max(1) as f64).sqrt(),
            true => 1.0,
            false => ASKED,
        };
        let alike = met / whole.max(SHORTEST_ENTRY).sqrt() * beside * version / self.length;
        let is_printed = || printed(fault).any(|line| self.known.shows(std::slice::from_ref(line)));
        if alike * PRINTED >= LEAST && is_printed() { alike * PRINTED } else { alike }
    }
}

/// Of each entry, what its words weigh in the passage of a text that has most of them, and what all of its own would.
fn weights<'a>(text: &[String], faults: &'a [Fault]) -> HashMap<&'a str, (f64, f64)> {
    let entries: Vec<_> = faults.iter().map(entry).collect();
    let mut having: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        entry.keys().for_each(|word| having.entry(word).or_default().push(at));
    }
    let rare = |word: &str| (faults.len() as f64 / having[word].len() as f64).ln();
    let weight = |at: usize, word: &str| {
        Some(rare(word)).filter(|rare| *rare >= RARE).map_or(0.0, |rare| rare * entries[at][word].0)
    };
    let mut most = vec![0.0; faults.len()];
    let step = PASSAGE / 2;
    for begin in (0..text.len()).step_by(step).filter(|begin| *begin == 0 || begin + step < text.len()) {
        let passage: BTreeSet<&str> = text.iter().skip(begin).take(PASSAGE).map(String::as_str).collect();
        let mut met: BTreeMap<usize, f64> = BTreeMap::new();
        for word in passage {
            for at in having.get(word).into_iter().flatten() {
                *met.entry(*at).or_default() += weight(*at, word);
            }
        }
        met.into_iter().for_each(|(at, met)| most[at] = met.max(most[at]));
    }
    let whole = |at: usize| {
        let own = entries[at].iter().filter(|(_, (_, is_own))| *is_own);
        own.map(|(word, _)| weight(at, word)).sum()
    };
    faults.iter().enumerate().map(|(at, fault)| (fault.id.as_str(), (most[at], whole(at)))).collect()
}

/// What a program prints where it has the fault.
fn printed(fault: &Fault) -> impl Iterator<Item = &Template> {
    fault.shown.iter().chain(&fault.text).filter(|text| is_line(text))
}

/// Whether a text is more than one name or flag.
fn is_line(text: &Template) -> bool {
    text.pieces().iter().any(|piece| piece.trim().contains(' '))
}

/// The words of an entry: what each counts, and whether it stands in what the entry says of the fault itself.
fn entry(fault: &Fault) -> HashMap<String, (f64, bool)> {
    let conditions = [
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
    let when = conditions.iter().filter_map(|key| fault.when.conditions.get(key)).flat_map(|values| values.all());
    let shown = fault.shown.iter().chain(&fault.text).filter(|text| !is_line(text)).flat_map(|text| text.pieces());
    let own = [&fault.title, &fault.id].into_iter().chain(when).chain(shown).map(String::as_str);
    let beside = fault.note.iter().chain(&fault.workaround).map(String::as_str);
    let texts = beside.map(|text| (text, false)).chain(own.map(|text| (text, true)));
    let mut words: HashMap<String, (f64, bool)> = HashMap::new();
    for (text, is_own) in texts {
        for word in names(text) {
            let counts = match (is_name(word), is_own) {
                (true, _) => NAME,
                (false, true) => 1.0,
                (false, false) => BESIDE,
            };
            let known = words.entry(stem(word)).or_default();
            *known = (known.0.max(counts), known.1 || is_own);
        }
    }
    words
}

/// The words and names of a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    names.filter(|word| word.len() >= SHORTEST && !word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a word is none of a sentence: `init_process_group`, `ncclCommAbort`, `H100`.
fn is_name(word: &str) -> bool {
    let letters = || word.as_bytes().windows(2);
    word.contains('_')
        || word.bytes().any(|byte| byte.is_ascii_digit())
        || letters().any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

/// A word in small letters without its ending.
fn stem(word: &str) -> String {
    let mut word = word.to_ascii_lowercase();
    let rest = ENDS.iter().find_map(|end| word.strip_suffix(end).map(str::len).filter(|rest| *rest >= SHORTEST));
    word.truncate(rest.unwrap_or(word.len()));
    word
}

//! Which known faults a text that a person wrote is about: how much of an entry's words stands in it.
//!
//! A word counts by how few entries have it (inverse document frequency), and the sum by the root of what all words of the entry
//! would give, so that a long entry does not win by its length. It orders what may be looked up; nothing is judged by it.

use super::situation::Situation;
use super::table::{Condition, Fault};
use super::{described, releases, unknown};
use crate::words::KNOWN;
use busbw_model::{Component, Consequence, Exposure, KnownFault};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Faults of programs whose version nobody tells, of which the likest are named.
const MOST_WITHOUT_VERSION: usize = 10;
/// Faults that stand before the others because they are like the text.
const MOST_ALIKE: usize = 5;
/// Less than this is chance: a text of other things shares a word or two with most entries.
const LEAST: f64 = 1.0;
/// From here on the first one is named without being asked for: of 43 threads whose fault is known, all of the 17 above it have the
/// right fault first, and no ordinary output of a training comes near (3.5).
const SURE: f64 = 5.0;
/// What a condition is worth that is not known to be met.
const OPEN: f64 = 0.7;
/// What it is worth that the text names the program, or says that the job does what the fault does.
const SAID: f64 = 1.5;
/// Ends of words that change with the sentence.
const ENDS: [&str; 4] = ["ing", "ed", "es", "s"];
/// The shortest word, and the shortest that is left of one.
const SHORTEST: usize = 3;

/// A text, and how rare its words are among the entries.
struct Told {
    text: String,
    words: BTreeSet<String>,
    weights: HashMap<String, f64>,
    does: Vec<Consequence>,
}

/// Faults of programs without a known version join those of the others, and the likest of all stand first. How like the first is.
pub(super) fn order(
    found: &mut Vec<KnownFault>,
    known: &Situation,
    faults: &[Fault],
    seen: Option<Consequence>,
) -> f64 {
    let told = Told::new(known.written(), faults, seen);
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
    let least = best.get(MOST_ALIKE - 1).copied().unwrap_or(LEAST);
    scores.retain(|_, alike| *alike >= least);
    for fault in found.iter_mut() {
        fault.fits = scores.contains_key(&fault.id);
    }
    let place = |fault: &KnownFault| scores.get(&fault.id).map_or(0, |alike| (alike * 1e6) as u64);
    found.sort_by_cached_key(|fault| (fault.exposure != Exposure::HitYou, Reverse(place(fault))));
    found.first().and_then(|first| scores.get(&first.id)).copied().unwrap_or(0.0)
}

/// The fault that a text is about, where hardly anything else can be meant.
pub fn likest(known: &Situation, faults: &[Fault]) -> Option<KnownFault> {
    let mut found = super::advise(known, faults).faults;
    let likeness = order(&mut found, known, faults, None);
    found.into_iter().next().filter(|_| likeness >= SURE)
}

/// The faults of programs of which no version is known, as the newest release that has each; without those that cannot be.
fn without_version<'a>(known: &'a Situation, faults: &'a [Fault]) -> impl Iterator<Item = KnownFault> + 'a {
    let newest: BTreeMap<Component, Vec<_>> = Component::ALL
        .into_iter()
        .filter(|component| known.of(*component).is_none())
        .map(|component| (component, releases(faults, component).into_iter().rev().collect()))
        .collect();
    faults.iter().filter_map(move |fault| {
        let version = newest.get(&fault.component)?.iter().find(|version| fault.affects(version))?;
        let asked = format!("version: {}", fault.component.name());
        let open = unknown(known, fault, version)?.into_iter().chain([asked]).collect();
        Some(described(fault, version, Exposure::CannotKnow, open))
    })
}

impl Told {
    fn new(text: &str, faults: &[Fault], seen: Option<Consequence>) -> Self {
        let mut weights: HashMap<String, f64> = HashMap::new();
        for word in faults.iter().flat_map(|fault| words(&entry(fault))) {
            *weights.entry(word).or_default() += 1.0;
        }
        weights.values_mut().for_each(|count| *count = (faults.len() as f64 / *count).ln());
        let text = text.to_lowercase();
        let says = |(_, words): &&(Consequence, Vec<String>)| words.iter().any(|word| text.contains(word.as_str()));
        let does = KNOWN.does.iter().filter(says).map(|(does, _)| *does);
        let does = seen.map_or_else(|| does.collect(), |seen| vec![seen]);
        Told { words: words(&text), text, weights, does }
    }

    fn likeness(&self, fault: &Fault, found: &KnownFault) -> f64 {
        let of = words(&entry(fault));
        let weight =
            |words: &mut dyn Iterator<Item = &String>| -> f64 { words.filter_map(|word| self.weights.get(word)).sum() };
        let shared = weight(&mut of.iter().filter(|word| self.words.contains(*word)));
        let names = [fault.component.name(), fault.component.title()];
        let is_named = names.iter().any(|name| self.text.contains(&name.to_lowercase()));
        let said = [is_named, self.does.contains(&fault.consequence)].iter().filter(|said| **said).count();
        shared / weight(&mut of.iter()).sqrt() * SAID.powi(said as i32) * OPEN.powi(found.unknown.len() as i32)
    }
}

/// What an entry says, as one text.
fn entry(fault: &Fault) -> String {
    let conditions = [
        Condition::Only,
        Condition::Feature,
        Condition::Collective,
        Condition::Algorithm,
        Condition::Protocol,
        Condition::Variable,
        Condition::Launcher,
        Condition::Gpu,
        Condition::Fabric,
    ];
    let when = conditions.iter().filter_map(|key| fault.when.conditions.get(key)).flat_map(|values| values.all());
    let shown = fault.shown.iter().chain(&fault.text).flat_map(|text| text.pieces()).map(String::as_str);
    let told = [Some(&fault.title), fault.note.as_ref(), fault.workaround.as_ref(), Some(&fault.id)];
    let told = told.into_iter().flatten().map(String::as_str);
    told.chain(when.map(String::as_str)).chain(shown).collect::<Vec<_>>().join(" ")
}

/// The words of a text: names whole and in parts, without their endings.
fn words(text: &str) -> BTreeSet<String> {
    let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let parts = names.flat_map(|name| std::iter::once(name).chain(name.split('_')));
    let counts = |word: &&str| word.len() >= SHORTEST && !word.bytes().all(|byte| byte.is_ascii_digit());
    parts.filter(counts).map(|word| stem(&word.to_ascii_lowercase()).to_owned()).collect()
}

fn stem(word: &str) -> &str {
    let short = ENDS.iter().find_map(|end| word.strip_suffix(end).filter(|rest| rest.len() >= SHORTEST));
    short.unwrap_or(word)
}

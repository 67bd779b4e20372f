//! The book of causes: what `rules/signatures/*.toml` says, ready to be looked up in a line.
//!
//! A cause is a trouble that programs print; each text of it belongs to a speaker ([`crate::data`] declares both).

use crate::data::{self, Cause, Printed, Template, causes, forms};
use crate::known_faults::built_in;
use crate::known_faults::table::{Fault, faults};
use crate::lines;
use aho_corasick::AhoCorasick;
use busbw_model::{Run, Speaker};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

/// Whether a file of rules fits: its name tells which it is; a file of another name holds signatures, known faults or both.
///
/// # Errors
/// What does not fit, with file, line and column.
pub fn check_rules(name: &str, text: &str) -> Result<(), String> {
    data::check(name, text).unwrap_or_else(|| Book::with(name, text).map(drop))
}

/// All of `rules/signatures`, as JSON, each with its place.
const CAUSES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/causes.json"));

static BUILT_IN: LazyLock<Book> = LazyLock::new(|| match causes_in(&[]) {
    Ok(causes) => Book::of(causes, None),
    Err(error) => unreachable!("the build script read these: {error}"),
});

/// The causes that are compiled in, with further forms in which programs print an error of CUDA.
fn causes_in(own: &[Printed]) -> Result<Vec<Cause>, String> {
    let causes: Vec<(String, Cause)> = data::from_build(CAUSES);
    causes.into_iter().map(|(place, cause)| Cause { place, ..cause }.with_cuda(own)).collect()
}

/// What is a person's own, then what is known already under other ids.
fn in_place_of<T: Clone>(own: Vec<T>, known: &[T], id: impl Fn(&T) -> &str) -> Vec<T> {
    let others = known.iter().filter(|known| own.iter().all(|own| id(own) != id(known)));
    own.iter().chain(others).cloned().collect()
}

/// Whether a line of this speaker may hold a text of another. Programs quote what NCCL warned of in their own errors.
fn allows(by: Speaker, speaker: Speaker) -> bool {
    use Speaker::{Crash, Launcher, Nccl, NcclInfo, NcclTests, NcclWarn, NetLibrary, Python, Torch};
    match by {
        Nccl => matches!(speaker, NcclWarn | NcclInfo | NcclTests | Torch | Python | Crash),
        NcclWarn => matches!(speaker, NcclWarn | NcclTests | Torch | Python | Crash),
        NetLibrary => matches!(speaker, NetLibrary | NcclWarn | NcclInfo),
        Torch => matches!(speaker, Torch | Python | Crash | Launcher),
        Python => matches!(speaker, Python | Torch),
        Crash => matches!(speaker, Crash | Launcher),
        _ => by == speaker,
    }
}

/// Literal characters that a text needs to be taken for a program's where nothing in front of it says who speaks.
const ENOUGH_TO_STAND_ALONE: usize = 16;

impl Template {
    /// Whether the text is in a line.
    pub(crate) fn is_in(&self, line: &str) -> bool {
        self.find(line).is_some()
    }

    /// Where the text ends in a line; `None` where it is not in it. Its ends cut no word and no number.
    fn find(&self, line: &str) -> Option<usize> {
        let mut end = 0;
        self.places(line, |_, piece| end = piece.end)?;
        Some(end)
    }

    /// Takes where each piece stands in a line; `None` where one does not.
    fn places(&self, line: &str, mut take: impl FnMut(usize, Range<usize>)) -> Option<()> {
        let (mut from, last) = (0, self.pieces().len() - 1);
        for (index, piece) in self.pieces().iter().enumerate() {
            let (begins, ends) = (index == 0 && !self.begins_open(), index == last && !self.ends_open());
            let at = whole(line, piece, from, begins, ends)?;
            from = at + piece.len();
            take(index, at..from);
        }
        Some(())
    }

    /// What stands in the gaps that have a name, where it may stand in a command.
    pub(super) fn values<'a>(&'a self, line: &'a str) -> Vec<(&'a str, &'a str)> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-%".contains(c);
        let mut told = self.told(line);
        told.retain(|(_, value)| !value.starts_with('-') && value.chars().all(is_plain));
        told
    }

    /// What stands in the gaps that have a name.
    pub(super) fn told<'a>(&'a self, line: &'a str) -> Vec<(&'a str, &'a str)> {
        let (mut gaps, mut from) = (Vec::new(), 0);
        if self.names().is_empty()
            || self.places(line, |_, piece| gaps.push(std::mem::replace(&mut from, piece.end)..piece.start)).is_none()
        {
            return Vec::new();
        }
        gaps.push(from..line.len());
        let named = self.names().iter().map(|(gap, name)| (name.as_str(), line[gaps[*gap].clone()].trim()));
        named.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Whether a line is the text from its beginning on.
    fn begins(&self, line: &str) -> bool {
        self.literal() >= ENOUGH_TO_STAND_ALONE
            && self.pieces().first().is_some_and(|first| line.starts_with(first.as_str()))
            && self.find(line).is_some()
    }

    fn longest(&self) -> &str {
        self.pieces().iter().max_by_key(|piece| piece.len()).map_or("", String::as_str)
    }
}

/// The first place from `from` on where a piece stands; a text that begins there cuts no word, one that ends there no number.
fn whole(line: &str, piece: &str, mut from: usize, begins: bool, ends: bool) -> Option<usize> {
    let (bytes, first, last) = (line.as_bytes(), piece.as_bytes().first()?, piece.as_bytes().last()?);
    loop {
        let at = from + line.get(from..)?.find(piece)?;
        let end = at + piece.len();
        let cut_word = begins && first.is_ascii_alphanumeric() && at > 0 && bytes[at - 1].is_ascii_alphanumeric();
        let cut_number = ends && last.is_ascii_digit() && bytes.get(end).is_some_and(u8::is_ascii_digit);
        if !cut_word && !cut_number {
            return Some(at);
        }
        from = at + piece.chars().next().map_or(1, char::len_utf8);
    }
}

/// Causes, and an automaton that finds in one pass which texts a line may hold; and known faults of versions.
#[derive(Debug, Clone, Default)]
pub struct Book {
    causes: Vec<Cause>,
    /// None where only those that are compiled in: they are read when they are asked for.
    faults: Option<Vec<Fault>>,
    /// The texts by their place among the automaton's patterns: cause and role.
    owners: Vec<(usize, Role)>,
    automaton: Option<AhoCorasick>,
}

/// So many bytes of each text are looked for: longer ones find little less, and take longer to make an automaton of than a short log to read.
const LOOKED_FOR: usize = 16;

/// What a text is to its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// One of the texts that show the cause.
    Printed(usize),
    /// A text that must stand somewhere.
    With(usize),
    /// A text that must stand nowhere.
    Without(usize),
}

impl Book {
    /// The causes that are compiled in.
    pub fn built_in() -> &'static Book {
        &BUILT_IN
    }

    /// Whether a text has an error of CUDA's in words that people hardly use: not `out of memory`.
    pub(crate) fn has_error_of_cuda(&self, text: &str) -> bool {
        let errors = self.causes.iter().flat_map(|cause| &cause.cuda);
        errors.filter(|error| error.len() > ENOUGH_TO_STAND_ALONE).any(|error| text.contains(error.as_str()))
    }

    /// The causes and known faults that are compiled in, and those of another file, which come first. What the file holds takes the
    /// place of what is compiled in under its id. Of a file `forms.toml`, the causes that
    /// are compiled in, in its forms too.
    ///
    /// # Errors
    /// What does not fit, with file, line and column.
    ///
    /// ```
    /// let told = busbw_diagnose::Book::with("my.toml", "[[cause]]\nid = 'a'\ncod = 'gpu.error'\n").unwrap_err();
    /// assert!(told.starts_with("my.toml:3:1: unknown key `cod`"), "{told}");
    /// ```
    pub fn with(name: &str, text: &str) -> Result<Book, String> {
        BUILT_IN.and(name, text)
    }

    /// As [`with`](Book::with), beside what this book holds already.
    ///
    /// # Errors
    /// What does not fit, with file, line and column.
    pub fn and(&self, name: &str, text: &str) -> Result<Book, String> {
        if let Some(own) = forms(name, text) {
            let is_built_in = |cause: &&Cause| BUILT_IN.causes.iter().any(|known| known.place == cause.place);
            let mine = self.causes.iter().filter(|cause| !is_built_in(cause)).cloned().collect();
            let causes = causes_in(&own?)?;
            return Ok(Book::of(in_place_of(mine, &causes, |cause| &cause.id), self.faults.clone()));
        }
        let (own, own_faults) = (causes([(name, text)])?, faults([(name, text)])?);
        if own.is_empty() && own_faults.is_empty() {
            return Err(format!("{name}: nothing in it; write [[cause]] or [[fault]], as rules/README.md shows"));
        }
        let faults = match own_faults.is_empty() {
            true => self.faults.clone(),
            false => Some(in_place_of(own_faults, self.faults(), |fault| &fault.id)),
        };
        Ok(Book::of(in_place_of(own, &self.causes, |cause| &cause.id), faults))
    }

    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    pub fn faults(&self) -> &[Fault] {
        self.faults.as_deref().unwrap_or_else(|| built_in::all())
    }

    /// Those that print a text, if not all.
    pub(crate) fn printed_faults(&self) -> &[Fault] {
        self.faults.as_deref().unwrap_or_else(|| built_in::printed())
    }

    fn of(causes: Vec<Cause>, faults: Option<Vec<Fault>>) -> Self {
        let mut book = Book { causes, faults, ..Book::default() };
        let mut words: Vec<&str> = Vec::new();
        for (index, cause) in book.causes.iter().enumerate() {
            let texts = cause.printed.iter().enumerate().map(|(at, printed)| (Role::Printed(at), &printed.text));
            let with = cause.with.iter().enumerate().map(|(at, text)| (Role::With(at), text));
            let without = cause.without.iter().enumerate().map(|(at, text)| (Role::Without(at), text));
            for (role, text) in texts.chain(with).chain(without) {
                let word = text.longest();
                words.push(&word[..word.floor_char_boundary(LOOKED_FOR)]);
                book.owners.push((index, role));
            }
        }
        book.automaton = AhoCorasick::new(&words).ok();
        book
    }

    /// Texts that causes of different codes claim: one line would have both. `of`: the file whose causes are looked at.
    pub fn conflicts(&self, of: &str) -> Vec<String> {
        let chooses = |cause: &&Cause| cause.with.is_empty() && cause.without.is_empty() && cause.unless.is_empty();
        let plain = || self.causes.iter().filter(chooses);
        let looked_at = plain().filter(|cause| cause.place.starts_with(of));
        let said = |cause: &Cause, other: &Cause| {
            let same =
                |text: &&Printed| other.printed.iter().any(|known| known.by == text.by && known.text == text.text);
            let text = cause.printed.iter().find(same)?;
            let (place, id, code) = (&cause.place, &cause.id, cause.code);
            Some(format!(
                "{place}: {id} ({code}) claims {:?}, which is also a text of {} ({}, {}); tell them apart by with, without or unless",
                String::from(text.text.clone()),
                other.id,
                other.code,
                other.place
            ))
        };
        looked_at
            .flat_map(|cause| plain().filter(|other| other.code != cause.code).filter_map(|other| said(cause, other)))
            .collect()
    }

    pub fn cause(&self, index: usize) -> &Cause {
        &self.causes[index]
    }

    /// What a line of a speaker holds: causes by number, each with the roles of the texts.
    pub fn read(&self, speaker: Speaker, text: &str) -> Vec<(usize, Role)> {
        let near = self.automaton.iter().flat_map(|automaton| automaton.find_overlapping_iter(text));
        let mut found: Vec<(usize, Role)> = near
            .map(|found| self.owners[found.pattern().as_usize()])
            .filter(|(index, role)| self.causes[*index].holds(*role, speaker, text))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Book {
    /// The ids of the causes whose texts are in a run, refuted or not.
    pub fn told(&self, run: &Run) -> BTreeSet<String> {
        let found = lines::of(run).into_iter().flat_map(|line| self.read(line.speaker, &line.text));
        let printed = found.filter(|(_, role)| matches!(role, Role::Printed(_)));
        printed.map(|(cause, _)| self.causes[cause].id.clone()).collect()
    }
}

impl Cause {
    /// Whether the text of a role is in a line.
    fn holds(&self, role: Role, speaker: Speaker, line: &str) -> bool {
        let said = |text: &Template| match speaker {
            Speaker::Program => text.begins(line),
            _ => text.find(line).is_some(),
        };
        match role {
            Role::Printed(at) => {
                let Printed { by, text, .. } = &self.printed[at];
                (speaker == Speaker::Program || allows(*by, speaker))
                    && said(text)
                    && !self.unless.iter().any(|text| text.find(line).is_some())
            }
            Role::With(at) => said(&self.with[at]),
            // A logger's level may stand in front of what takes a cause back.
            Role::Without(at) => {
                let text = &self.without[at];
                said(text) || text.literal() >= ENOUGH_TO_STAND_ALONE && text.find(line).is_some()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::try_from(text.to_string()).expect("a text")
    }

    #[test]
    fn every_remedy_begins_with_a_command() {
        for cause in Book::built_in().causes() {
            assert!(cause.remedy.first().is_some_and(|first| first.contains('`')), "{}: no command", cause.id);
        }
    }

    #[test]
    fn no_text_has_two_codes() {
        assert_eq!(Book::built_in().conflicts(""), [""; 0]);
    }

    #[test]
    fn a_text_cuts_no_word_and_no_number() {
        let cases = [
            ("error 12", "Got completion with error 12, opcode 0", true),
            ("error 12", "Got completion with error 129", false),
            ("Call to {} failed", "x.cc:1 NCCL WARN Call to ibv_reg_mr failed with error", true),
            ("Call to {} failed", "failed. Call to nothing", false),
            ("error", "terror", false),
            ("on the PCIe slot ({}W)", "power on the PCIe slot (27W).", true),
            ("status {}2", "status 12, opcode 0", true),
            ("status {}2", "status 123, opcode 0", false),
        ];
        for (text, line, held) in cases {
            assert_eq!(template(text).find(line).is_some(), held, "{text} in {line}");
        }
    }

    #[test]
    fn without_a_speaker_a_text_begins_the_line() {
        let text = template("Call to {} failed with error");
        assert!(text.begins("Call to ibv_reg_mr failed with error Cannot allocate memory"));
        assert!(!text.begins("the docs of Call to x failed with error say"));
    }
}

//! Which runs of an input have the variables that its shell sets: what stands before a run, and was neither unset nor overwritten since.

use crate::command::{Act, Leader, ShellLine, starts_run};
use busbw_model::{EnvOrigin, EnvSetting, Place, SourceLine};

/// More lines only damage gives.
const MOST_LINES: usize = 1 << 16;

/// The lines of a shell, in order.
#[derive(Default)]
pub(super) struct Shell(Vec<(ShellLine, SourceLine)>);

/// A setting, and what it waits for.
struct Open {
    setting: EnvSetting,
    of_command: bool,
    /// It stands behind a `#`.
    is_hashed: bool,
    waits: Waits,
}

/// What a setting needs to be in force.
#[derive(PartialEq)]
enum Waits {
    No,
    /// It stands in a text, which the command printed: the run of that file.
    For(String),
    /// It stands behind a `#`: a command behind another.
    ForHash,
}

impl Shell {
    pub fn take(&mut self, line: ShellLine, source: SourceLine) {
        if self.0.len() < MOST_LINES {
            self.0.push((line, source));
        }
    }

    /// The commands that start something or print what was printed.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|(line, _)| &line.acts).filter_map(|act| match act {
            Act::Run(words) => Some(words.as_str()),
            _ => None,
        })
    }

    /// Where commands stand that start a run.
    pub fn starts(&self) -> impl Iterator<Item = Place> {
        let starts = |act: &Act| matches!(act, Act::Run(words) if starts_run(words));
        self.0.iter().filter(move |(line, _)| line.acts.iter().any(starts)).map(|(_, source)| source.place)
    }

    /// The settings that one of the runs had which begin at `tables`; where there is no table, those that a run may have had.
    pub fn end(self, tables: Vec<Place>) -> Vec<EnvSetting> {
        let mut session = Session { tables, ..Session::default() };
        for (line, source) in self.0 {
            session.line(line, &source);
        }
        let Session { tables, runs, open, .. } = session;
        let is_of_run = |one: &Open| {
            let EnvSetting { source, until, .. } = &one.setting;
            let within = |run: &Place| source.place <= *run && until.is_none_or(|until| *run <= until);
            match tables.is_empty() {
                true => until.is_none() || one.of_command || runs.iter().any(within),
                false => tables.iter().any(within),
            }
        };
        let had = open.into_iter().filter(|one| one.waits != Waits::ForHash && is_of_run(one));
        had.map(|one| one.setting).collect()
    }
}

#[derive(Default)]
struct Session {
    tables: Vec<Place>,
    /// Where programs are started.
    runs: Vec<Place>,
    open: Vec<Open>,
    /// The words of the command whose output follows, where that is a text.
    printed: Option<String>,
    /// The last line of a command that goes on behind it.
    goes_on: Option<Place>,
}

impl Session {
    fn line(&mut self, line: ShellLine, source: &SourceLine) {
        /// Lines between the parts of a command that set nothing.
        const APART: u64 = 30;
        let place = source.place;
        let is_new = self.goes_on.take().is_none_or(|last| place.line - last.line > APART);
        self.goes_on = line.goes_on.then_some(place);
        if matches!(line.led_by, Leader::Prompt | Leader::Trace) && is_new {
            self.printed = None;
        }
        for act in line.acts {
            let is_text = self.printed.is_some() && line.led_by == Leader::Nothing;
            match act {
                Act::Export(name, value) => self.set((name, value), false, line.led_by, source),
                Act::Give(name, value) => self.set((name, value), true, line.led_by, source),
                Act::Unset(name) if !is_text && line.led_by != Leader::Hash => self.end(&name, place),
                Act::Run(words) if is_new && !is_text => self.run(&words, line.led_by, place),
                // NCCL reads this file itself.
                Act::Print(words) => self.printed = (!words.contains("nccl.conf")).then_some(words),
                Act::Unset(_) | Act::Run(_) => {}
            }
        }
    }

    fn set(&mut self, (name, value): (String, String), of_command: bool, led_by: Leader, source: &SourceLine) {
        let waits = match (led_by, &self.printed) {
            (Leader::Nothing, Some(text)) => Waits::For(text.clone()),
            (Leader::Hash, _) if self.runs.last() != Some(&source.place) => Waits::ForHash,
            _ => Waits::No,
        };
        let is_told = |one: &Open| {
            let EnvSetting { name: known, value: with, until, .. } = &one.setting;
            let is_wide = one.of_command == of_command || !one.of_command;
            until.is_none() && is_wide && one.waits == waits && *known == name && *with == value
        };
        if self.open.iter().any(is_told) {
            return;
        }
        if waits == Waits::No {
            self.end(&name, source.place);
        }
        let (origin, hosts) = (EnvOrigin::CommandLine, Vec::new());
        let setting = EnvSetting { name, value, origin, source: source.clone(), until: None, hosts };
        self.open.push(Open { setting, of_command, is_hashed: led_by == Leader::Hash, waits });
    }

    /// A variable does not hold any more.
    fn end(&mut self, name: &str, place: Place) {
        let held = self.open.iter_mut().filter(|one| one.setting.name == name && one.setting.until.is_none());
        held.filter(|one| one.waits == Waits::No).for_each(|one| one.setting.until = Some(before(place)));
    }

    /// Another program starts: what was of the last one ends, and what was printed of its file begins.
    fn run(&mut self, words: &str, led_by: Leader, place: Place) {
        self.printed = None;
        self.runs.push(place);
        let table = self.tables.iter().filter(|table| **table < place).max();
        self.open.retain_mut(|one| {
            let had_table = table.is_some_and(|table| one.setting.source.place <= *table);
            let goes_with_it = match &one.waits {
                // A program may start others, and print how.
                Waits::No if one.of_command && (led_by == Leader::Prompt || one.is_hashed || had_table) => false,
                Waits::No => return true,
                Waits::For(text) => names_one_of(words, text),
                Waits::ForHash if led_by == Leader::Hash => true,
                Waits::ForHash => return false,
            };
            if goes_with_it {
                one.of_command = matches!(one.waits, Waits::For(_));
                one.waits = Waits::No;
            } else if had_table || one.waits == Waits::No {
                one.waits = Waits::No;
                one.setting.until.get_or_insert(before(place));
            }
            one.waits == Waits::No
        });
    }
}

/// Whether a command names one of the files that another printed.
fn names_one_of(words: &str, printed: &str) -> bool {
    let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_string();
    let files: Vec<String> = printed.split(' ').map(name).filter(|file| file.contains('.') && file.len() > 2).collect();
    words.split(' ').any(|word| files.contains(&name(word)))
}

fn before(place: Place) -> Place {
    Place { line: place.line.saturating_sub(1), ..place }
}

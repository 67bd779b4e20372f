//! Lines that are no messages of NCCL's, which the job's programs, launchers and tools print: who may want them, who speaks, and how
//! the output of a stream goes on and ends.

use crate::clean::may_be_wrapped;
use crate::cursor::{kept, lossy};
use crate::ends::{self, EndLine};
use crate::evidence::{self, Wanted};
use crate::facts::{BlockFacts, CommandLine, EndFact, Fact, FirstLine, MessageLine, Offered, StatementFact, TextFact};
use crate::json_objects::JsonReader;
use crate::label::Streams;
use crate::last_lines::LastLines;
use crate::launcher::{self, peel, without_inner_tags};
use crate::nccl_log::{self, LogMessage, Version};
use crate::notes::{Met, SeenWordings};
use crate::passed_on::PassedOn;
use crate::prefix;
use crate::readers::may_belong;
use crate::recent::Hashed;
use crate::steps::{self, Step};
use crate::wording::{with_blanks, wording};
use crate::{command, speaker};
use busbw_model::Speaker;
use rustc_hash::FxBuildHasher;
use std::borrow::Cow;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Lines whose wording is remembered, a power of two.
const REMEMBERED: usize = 1 << 12;

/// Reads the lines of programs.
#[derive(Default)]
pub(crate) struct Program {
    streams: Streams,
    met: SeenWordings,
    wordings: Wordings,
    /// Lines of late that nobody wants, and labels in front of messages.
    unwanted_lines: Hashed<Unwanted, REMEMBERED>,
    /// What ranks print alike behind their labels: texts that no reader wants for their form, and texts that show no end.
    unwanted: Texts,
    endless: Texts,
    tracebacks: ends::Follower,
    last_lines: LastLines,
    /// Whose line it is, by what the program put in front that passed it on.
    passed_on: Arc<str>,
    heading: Heading,
}

/// A heading of `dshbak -c` or `clush -b`, as far as it was read: a rule, the hosts, a rule.
#[derive(Default)]
enum Heading {
    #[default]
    None,
    Rule,
    Hosts(Box<str>),
}

/// The hosts in the middle of such a heading: `node[01-03]`; clush tells their number behind, ` (3)`.
fn heading_hosts(line: &[u8]) -> Option<Box<str>> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let hosts = line.split_once(" (").map_or(line, |(hosts, _)| hosts);
    let is_list = hosts.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.[],".contains(&b));
    (is_list && hosts.starts_with(|c: char| c.is_ascii_alphanumeric())).then(|| hosts.into())
}

/// Where a bar of tqdm ends in its line: the program, or the shell that started it, printed what follows before the bar's line ended.
fn end_of_bar(text: &str) -> Option<usize> {
    let rate = text.rfind("it/s").max(text.rfind("s/it"))?;
    let end = rate + text[rate..].find(']')? + 1;
    (!text[end..].trim().is_empty()).then_some(end)
}

/// Where another program's line begins behind one that its own did not end: `step 10 loss 7.0srun: error: …`, `.....[rank3]: ValueError: …`. Only a form
/// that begins behind a digit or dots counts: behind words and blanks, a line quotes it.
fn torn_at(text: &str) -> Option<usize> {
    let is_known = |text: &str| {
        let line = peel(text).text;
        ends::beginning(line).is_some() || speaker::of(line) != Speaker::Program || ends::read(line, false).is_some()
    };
    let at = seams(text.as_bytes()).find(|at| is_known(&text[*at..]))?;
    (!is_known(text)).then_some(at)
}

/// Where a word or a bracket stands right behind a digit or dots.
fn seams(line: &[u8]) -> impl Iterator<Item = usize> {
    const FARTHEST: usize = 512;
    const SHORTEST: usize = 4;
    let line = &line[..line.len().min(FARTHEST)];
    let is_end = |at: usize| line[at].is_ascii_digit() || at > 0 && line[at - 1..=at] == *b"..";
    // `python3[4242]: `
    let is_tag = |at: usize| {
        let name = line[..at].iter().rev().take_while(|b| b.is_ascii_alphanumeric()).any(u8::is_ascii_alphabetic);
        let number = line[at..].iter().skip(1).take_while(|b| b.is_ascii_digit()).count();
        name && line[at] == b'[' && number > 0 && line[at + 1 + number..].starts_with(b"]: ")
    };
    let begins = |at: usize| {
        matches!(line[at], b'[' | b'(' | b'=')
            || line[at..].iter().take(SHORTEST).take_while(|b| b.is_ascii_alphabetic()).count() == SHORTEST
    };
    (1..line.len()).filter(move |at| is_end(at - 1) && begins(*at) && !is_tag(*at))
}

/// What is so of all lines that differ in no more than the digits of their numbers.
#[derive(Clone, Copy)]
struct Wording {
    /// The same only for such lines.
    alike: u64,
    words: evidence::Found,
    /// Nothing of NCCL's stands in it, and it wraps no lines.
    is_plain: bool,
    /// mpirun's tag may stand in it.
    may_have_tags: bool,
    /// A logger's level may.
    may_be_logged: bool,
    /// A line of another program may begin inside of it.
    may_be_torn: bool,
    /// Who speaks it, where it begins with a word in brackets: `[INFO] step 7`. No such form counts digits.
    of_bracket: Option<Speaker>,
}

impl Wording {
    fn of(line: &[u8], alike: u64) -> Self {
        Wording {
            alike,
            words: evidence::Found::of(line),
            is_plain: !prefix::has_marker(line) && !may_be_wrapped(line),
            may_have_tags: launcher::may_have_tags(line),
            may_be_logged: ends::may_be_logged(line),
            may_be_torn: seams(line).next().is_some(),
            of_bracket: begins_with_word(peel(&lossy(line)).text).map(speaker::of),
        }
    }
}

/// A text that begins with a word in brackets.
fn begins_with_word(text: &str) -> Option<&str> {
    let text = text.trim_start();
    text.strip_prefix('[')?.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(text)
}

/// What is known of a line that nobody wants: it shows no more than that its stream goes on.
#[derive(Clone, Copy, Default)]
struct Unwanted {
    wording: u64,
    stream: u32,
    is_labelled: bool,
    step: Option<Step>,
}

/// The wordings of the lines of late.
struct Wordings(Vec<Option<Wording>>);

impl Default for Wordings {
    fn default() -> Self {
        Wordings(vec![None; REMEMBERED])
    }
}

impl Wordings {
    fn of(&mut self, line: &[u8], alike: u64) -> Wording {
        let slot = &mut self.0[(alike >> (u64::BITS - REMEMBERED.ilog2())) as usize];
        *slot.insert(slot.filter(|known| known.alike == alike).unwrap_or_else(|| Wording::of(line, alike)))
    }
}

/// Texts of late.
type Texts = Hashed<(), REMEMBERED>;

/// What a text is by its form.
#[derive(Default)]
struct Form {
    /// It begins a traceback.
    begins: Option<EndLine>,
    version: Option<Version>,
    /// A reader of a line-based format may want it, or the reader of JSON.
    is_of_format: bool,
    is_json: bool,
}

impl Form {
    fn of(body: &str) -> Form {
        Form {
            begins: ends::beginning(body),
            version: nccl_log::read_version(body.trim_start().as_bytes()),
            is_of_format: may_belong(body.as_bytes()),
            is_json: JsonReader::may_belong(body.as_bytes()),
        }
    }

    fn is_none(&self) -> bool {
        self.begins.is_none() && self.version.is_none() && !self.is_of_format && !self.is_json
    }
}

impl Program {
    /// Begins a block, into which tracebacks go on.
    pub fn begin_block(&mut self, block: &[u8], open: ends::Follower) {
        self.heading = Heading::None;
        self.is_of("");
        self.tracebacks = open;
        self.met.begin_block();
        self.last_lines.begin_block(block);
    }

    pub fn end_block(&mut self, block: &[u8], facts: &mut BlockFacts) {
        self.last_lines.end_block(block, facts);
        facts.open = self.tracebacks.left_open();
    }

    /// The line that a program printed, behind what another put in front of it.
    pub fn behind<'l>(&mut self, form: &PassedOn, line: &'l [u8]) -> &'l [u8] {
        let (stream, line) = form.split(line).unwrap_or((String::new(), line));
        self.is_of(&stream);
        line
    }

    /// Takes a line that may be of a heading: what follows is of its hosts.
    pub fn may_head(&mut self, line: &[u8]) {
        const RULES: std::ops::RangeInclusive<usize> = 15..=16;
        let is_rule = line.first() == Some(&b'-') && RULES.contains(&line.len()) && line.iter().all(|b| *b == b'-');
        self.heading = match std::mem::take(&mut self.heading) {
            Heading::Hosts(hosts) if is_rule => {
                self.is_of(&hosts);
                Heading::None
            }
            Heading::Rule => heading_hosts(line).map_or(Heading::None, Heading::Hosts),
            _ if is_rule => Heading::Rule,
            _ => Heading::None,
        };
    }

    /// Tells whose the next lines are, where they have no label of their own.
    pub fn is_of(&mut self, stream: &str) {
        let is_none = stream.is_empty() && self.passed_on.is_empty();
        if !is_none && *stream != *self.passed_on {
            self.passed_on = stream.into();
        }
    }

    /// Takes a line in which nothing of NCCL's stands; false when something may.
    pub fn takes(&mut self, line: &[u8], number: u32, facts: &mut BlockFacts) -> bool {
        if self.takes_again(line, number, facts) {
            return true;
        }
        let found = wording(line);
        let of_alike = self.wordings.of(line, with_blanks(line, found));
        if of_alike.is_plain {
            self.plain(line, (found, of_alike), number, facts);
        }
        of_alike.is_plain
    }

    /// Takes a part of a line: a program's line, a piece of a table row, a launcher's label.
    pub fn piece(&mut self, piece: &[u8], number: u32, facts: &mut BlockFacts) {
        if self.takes_again(piece, number, facts) {
            return;
        }
        let found = wording(piece);
        let of_alike = self.wordings.of(piece, with_blanks(piece, found));
        self.plain(piece, (found, of_alike), number, facts);
    }

    /// Whether a message of the wording may be one to keep.
    pub fn is_new(&mut self, wording: u64) -> bool {
        self.met.meet(wording, 0).may_be_kept
    }

    /// Takes a text of late that nobody wants, where no traceback or message is open.
    fn takes_again(&mut self, text: &[u8], number: u32, facts: &mut BlockFacts) -> bool {
        let known = self.unwanted_lines.of(FxBuildHasher.hash_one(text));
        let known = known.filter(|known| known.is_labelled || self.passed_on.is_empty());
        let Some(Unwanted { wording, stream, step, .. }) = known.filter(|_| self.tracebacks.pass()) else {
            return false;
        };
        let Met { may_be_kept, since } = self.met.meet(wording, number);
        self.last_lines.take(stream, number, text);
        if !self.last_lines.goes_on(stream, number, since) {
            facts.first_lines.push(FirstLine { stream, line: number, wording });
        }
        if let Some(step) = step {
            facts.loops.take(&step, number);
        }
        if may_be_kept {
            let said = StatementFact { by: Speaker::Program, wording, text: kept(text) };
            facts.of_nobody(number, Fact::Statement(Box::new(said)));
        }
        true
    }

    fn plain(&mut self, plain: &[u8], (wording, of_alike): (u64, Wording), number: u32, facts: &mut BlockFacts) {
        if plain.trim_ascii().is_empty() {
            return;
        }
        let lossy = lossy(plain);
        let may_have_tags = of_alike.may_have_tags || lossy.starts_with('[');
        let untagged = if may_have_tags { without_inner_tags(&lossy) } else { None };
        let peeled = peel(&lossy);
        let (body, wanted) = match &untagged {
            Some(untagged) => (peel(untagged).text, evidence::of(untagged.as_bytes())),
            None => (peeled.text, of_alike.words.wanted(plain)),
        };
        let spoken = wanted.speaker.then(|| launcher::spoken(body));
        let body = spoken.map_or(body, |(_, said)| said);
        let is_whole = untagged.is_none() && matches!(lossy, Cow::Borrowed(_));
        let unended = match () {
            () if wanted.progress => end_of_bar(body),
            () if of_alike.may_be_torn && (wanted.end || wanted.speaker) => {
                torn_at(body).filter(|_| !self.tracebacks.is_inside(peeled.stream))
            }
            () => None,
        };
        if let Some(at) = unended.filter(|_| is_whole) {
            let (label, _) = plain.split_at(plain.len() - body.len());
            let (before, rest) = plain.split_at(label.len() + at);
            self.piece(before, number, facts);
            // A bar's title is no label of what follows.
            let labelled = [label, rest].concat();
            let is_label = peel(&self::lossy(&labelled)).stream == peeled.stream;
            return self.piece(if is_label { &labelled } else { rest }, number, facts);
        }
        let is_passed_on = peeled.stream.is_empty() && !self.passed_on.is_empty();
        let passed_on = is_passed_on.then(|| Arc::clone(&self.passed_on));
        let stream = passed_on.as_deref().unwrap_or(peeled.stream);
        let text = FxBuildHasher.hash_one(body);
        let form = if self.unwanted.of(text).is_some() { Form::default() } else { Form::of(body) };
        let is_formless = form.is_none();
        if is_formless {
            self.unwanted.remember(text, ());
        }
        let may_be_logged = of_alike.may_be_logged || untagged.is_some();
        let is_of_format = form.is_of_format;
        let of_bracket = of_alike.of_bracket.filter(|_| untagged.is_none());
        let by = match spoken.map(|(by, _)| by).or(of_bracket) {
            Some(by) => by,
            None if body.trim_start().starts_with('[') => speaker::of(body),
            _ => Speaker::Program,
        };
        let line = Line { stream, body, text, plain, number, wording, wanted, by, may_be_logged, is_of_format };
        let is_idle = self.tracebacks.is_idle();
        let step = self.speaks(&line, form.begins, facts);
        let is_unwanted = is_formless && of_alike.is_plain && wanted == Wanted::default() && !may_be_logged;
        if is_unwanted && is_idle && !is_passed_on && by == Speaker::Program {
            let (is_labelled, stream) = (!stream.is_empty(), self.stream(stream, facts));
            let text = FxBuildHasher.hash_one(plain);
            self.unwanted_lines.remember(text, Unwanted { wording, stream, is_labelled, step });
        }
        if let Some(version) = form.version {
            let said = MessageLine { said: LogMessage::Version(version), text: kept(plain) };
            facts.of_nobody(number, Fact::LogMessage(Box::new(said)));
        }
        let offered = if wanted.torch {
            Some((&*lossy, Offered::All))
        } else if wanted.other || form.is_of_format {
            Some((body, Offered::Lines))
        } else if form.is_json {
            Some((body, Offered::Json))
        } else {
            None
        };
        if let Some((text, offered)) = offered {
            let text = self.text(stream, text, offered, facts);
            facts.of_nobody(number, text);
        }
        if wanted.variables
            && let Some(line) = command::read(&lossy).or_else(|| command::read(body))
        {
            facts.of_nobody(number, Fact::Shell(Box::new(CommandLine { line, text: kept(plain) })));
        }
    }

    /// Who speaks a line, and whether it shows an end, or that a loop goes on: its step.
    fn speaks(&mut self, line: &Line, mut begins: Option<EndLine>, facts: &mut BlockFacts) -> Option<Step> {
        let Line { stream, body, text, plain, number, wording, wanted, by, may_be_logged, is_of_format } = *line;
        let Met { may_be_kept, since } = self.met.meet(wording, number);
        let last = self.tracebacks.ends(stream, (body, may_be_logged), begins.as_mut());
        let joined = if begins.is_some() { ends::joined(body) } else { Vec::new() };
        let quoted = self.tracebacks.is_in_message(stream);
        let read = |last: bool| {
            let is_of_program = |text: &str| speaker::of(text) == Speaker::Program;
            let logged = || if last { None } else { ends::logged(body.trim_start(), is_of_program) };
            ends::read(body, last).or_else(logged)
        };
        let mut may_end = || {
            let is_endless = self.endless.of(text).is_some() || read(false).is_none();
            if is_endless {
                self.endless.remember(text, ());
            }
            !is_endless
        };
        let is_quoted = self.tracebacks.may_quote(stream) && ends::exception(body).is_some();
        let end = match begins {
            None if is_quoted => Some(EndLine::Quoted(body.trim().to_string())),
            None if last || wanted.end && !quoted && may_end() => read(last),
            begins => begins,
        };
        let by = if self.tracebacks.is_python(stream, end.as_ref()) { Speaker::Python } else { by };
        if matches!(joined.last(), Some(EndLine::Exception { .. })) {
            self.tracebacks.ended(stream);
        }
        let is_known = is_of_format || end.is_some() || wanted.torch || wanted.other;
        if let Some(said) = end {
            let stream = self.stream(stream, facts);
            self.last_lines.ended(stream, number);
            for said in std::iter::once(said).chain(joined) {
                facts.of_nobody(number, Fact::End(Box::new(EndFact { stream, said, text: kept(plain) })));
            }
        } else if by == Speaker::Program {
            let inside = self.tracebacks.is_inside(stream);
            let stream = self.stream(stream, facts);
            if !inside {
                self.last_lines.take(stream, number, plain);
                if !wanted.progress && !self.last_lines.goes_on(stream, number, since) {
                    facts.first_lines.push(FirstLine { stream, line: number, wording });
                }
            }
        } else if by == Speaker::Torch {
            let stream = self.stream(stream, facts);
            self.last_lines.heard(stream, number, plain);
        }
        let step = match by == Speaker::Program {
            true if wanted.progress && steps::is_bar(body) => steps::bar(stream, body),
            true if !is_known => steps::step(body, wording),
            _ => None,
        };
        if let Some(step) = step {
            facts.loops.take(&step, number);
        }
        if may_be_kept && !self.tracebacks.is_ignored() {
            facts.of_nobody(number, Fact::Statement(Box::new(StatementFact { by, wording, text: kept(plain) })));
        }
        step
    }

    fn stream(&mut self, stream: &str, facts: &mut BlockFacts) -> u32 {
        self.streams.number(stream).unwrap_or_else(|new| {
            facts.new_streams.push(stream.into());
            new
        })
    }

    /// A text for the readers of line-based formats.
    pub fn text(&mut self, stream: &str, body: &str, offered: Offered, facts: &mut BlockFacts) -> Fact {
        let stream = self.stream(stream, facts);
        Fact::Text(Box::new(TextFact { stream, text: body.into(), offered }))
    }
}

/// A line, taken apart.
#[derive(Clone, Copy)]
struct Line<'a> {
    stream: &'a str,
    /// The text behind all labels, and its hash.
    body: &'a str,
    text: u64,
    plain: &'a [u8],
    /// The line's number in the block.
    number: u32,
    wording: u64,
    wanted: Wanted,
    /// Who speaks, by its form.
    by: Speaker,
    may_be_logged: bool,
    /// A reader of a line-based format may want it.
    is_of_format: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_another_did_not_end_shows_where_the_next_begins() {
        let cases = [
            ("step 1000 loss 7.0", "srun: error: n1: task 3: Segmentation fault (core dumped)"),
            (".....", "slurmstepd: error: Detected 1 oom_kill event in StepId=8811.0."),
            ("epoch 3", "[rank3]: RuntimeError: found NaN in local forward loss calculation"),
            ("loss 0.25", "Traceback (most recent call last):"),
        ];
        for (torn, line) in cases {
            assert_eq!(torn_at(&format!("{torn}{line}")), Some(torn.len()), "{torn}{line}");
            // Who quotes a line puts a blank or a mark in front.
            for front in [" ", ": ", " '", " ("] {
                assert_eq!(torn_at(&format!("{torn}{front}{line}")), None, "{torn}{front}{line}");
            }
            assert_eq!(torn_at(line), None, "{line}");
        }
        assert_eq!(torn_at("rank 3: 0x7fRuntime 8x400G 10ms v2.3rc1 step 7[0] -> 1[1]"), None);
    }
}

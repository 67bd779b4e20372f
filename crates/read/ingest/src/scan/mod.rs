//! From a block of bytes to facts: takes lines apart and reads the messages. Runs in any number of threads.

use crate::clean::{is_odd, may_wrap, unwrapped, whole_row, without_entities, without_escapes};
use crate::cursor::{finder, kept, lossy, offset, text};
use crate::envelope::Said;
use crate::facts::{
    BlockFacts, Event, Fact, HostLines, MessageLine, NOBODY, Offered, SpeakerFact, StatementFact, WarnLine,
};
use crate::launcher::peel;
use crate::nccl_log::{self, EdgeLine, Level, LogMessage, read_edge, read_transport, without_repetition};
use crate::passed_on::PassedOn;
use crate::prefix::{self, MARKER, Message, Piece, SpeakerRef, pieces};
use crate::program::Program;
use crate::readers::DUMP_STREAM;
use crate::recent::{Hashed, Recent};
use crate::source::Block;
use crate::wording::{wording, wording_without_hex};
use crate::{ends, inspector};
use busbw_model::{ChannelSet, Edge, Place, Speaker, Transport};
use memchr::memchr;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::borrow::Cow;
use std::hash::BuildHasher;

const CHANNEL: &[u8] = b"Channel ";
/// Where a channel of two digits ends.
const BEHIND: usize = CHANNEL.len() + 2;

/// More of a prefix does not distinguish streams of a dump.
const LONGEST_PREFIX: usize = 256;
const MOST_CACHED: usize = 1 << 16;
/// A longer message is not looked up among those that ranks repeat.
const LONGEST_STATEMENT: usize = 512;

type ReadPrefix = fn(&[u8]) -> Option<(SpeakerRef<'_>, &[u8])>;

/// What is known of a prefix.
#[derive(Clone, Copy, Default)]
struct Head {
    speaker: u32,
    /// Nothing ran into the name.
    clean: bool,
    /// Messages and warnings were read behind it: the label is in front of the latter, of this length.
    informs: bool,
    warns: bool,
    label: u8,
}

/// Reads blocks. What it met once it knows again in later blocks, which saves time and changes nothing in what it reads.
#[derive(Default)]
pub(crate) struct Scanner {
    facts: BlockFacts,
    line: u32,
    /// Prefixes up to the device: `[1,3]<stdout>:host:pid:tid [3] `.
    prefixes: Recent<Head, 4096>,
    /// By host, process, thread and device, all small to stay in a core's cache.
    speakers: FxHashMap<[u32; 4], u32>,
    host_of: Vec<u32>,
    hosts: FxHashMap<Box<[u8]>, u32>,
    /// By host, where the block's facts show it if it spoke; and what the host said that spoke last.
    spoken: Vec<u32>,
    last_host: HostLines,
    transports: FxHashMap<(String, bool), u16>,
    /// Texts after `via` and their transport; `None` when the text is torn.
    vias: FxHashMap<Box<[u8]>, Option<u16>>,
    recent_vias: Recent<u16, 64>,
    /// The line of the block's last event where that is a connection, and where its channel's digits stand.
    last_edge: Vec<u8>,
    digits: usize,
    /// Number of the block's events, then.
    events_then: usize,
    /// Statements that ranks of a host repeat, by hash of host and message, and whether they were understood.
    statements: FxHashMap<u64, bool>,
    /// The number of the statement that is read, where all ranks of its host make it.
    once: Option<u64>,
    /// By hash of the speaker and what it [`said`].
    warnings: FxHashMap<u64, u32>,
    next_warning: u32,
    /// What lines say that stand behind known prefixes of warnings, as [`said`] tells it.
    warned: Hashed<u64, 4096>,
    program: Program,
}

impl Scanner {
    pub fn new(worker: usize) -> Self {
        let facts = BlockFacts { worker, ..BlockFacts::default() };
        Scanner { facts, ..Scanner::default() }
    }

    /// Takes back the room of events that were assembled: pages that go back and forth between the process and the kernel
    /// cost more than reading the block.
    pub fn reuse(&mut self, mut events: Vec<Event>) {
        events.clear();
        self.facts.events = events;
    }

    /// Reads a block of whole lines (the last may lack its line end), into which tracebacks of the block before may go on.
    pub fn scan(&mut self, whole: &Block, open: ends::Follower) -> BlockFacts {
        (self.line, self.events_then) = (0, usize::MAX);
        let (block, indent, passed_on, envelope) = (whole.lines(), whole.indent(), whole.passed_on(), whole.envelope());
        self.program.begin_block(block, open);
        let odd = is_odd(block);
        let is_bare = !odd && indent.is_empty() && passed_on.is_none() && envelope.is_none();
        let mut start = 0;
        while start < block.len() {
            let rest = &block[start..];
            if is_bare && self.repeats_edge(rest) {
                start += self.last_edge.len() + 1;
                self.line += 1;
                continue;
            }
            // Lines without a text lack the indent.
            let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
            start += line.len() + 1;
            let line = if indent.is_empty() { line } else { line.strip_prefix(indent).unwrap_or(line) };
            let (line, more) = whole_row(line, block.get(start..).unwrap_or_default());
            start += more;
            match envelope.map(|envelope| envelope.open(&line)) {
                Some(Some(said)) => self.said(&said),
                of_none => {
                    of_none.inspect(|_| self.program.is_of(""));
                    self.printed(&line, passed_on, odd);
                }
            }
            self.line += 1 + u32::from(more > 0);
        }
        self.facts.lines = u64::from(self.line) - u64::from(block.last().is_some_and(|last| *last != b'\n'));
        self.flush_host();
        self.facts.spoken.iter().for_each(|spoken| self.spoken[spoken.host as usize] = NOBODY);
        self.program.end_block(block, &mut self.facts);
        let next = BlockFacts { worker: self.facts.worker, ..BlockFacts::default() };
        std::mem::replace(&mut self.facts, next)
    }

    /// Reads what a record says.
    fn said(&mut self, said: &Said) {
        self.program.is_of(&said.stream);
        said.lines().for_each(|line| self.segment(&line));
    }

    /// Reads a line as somebody printed it.
    fn printed(&mut self, line: &[u8], passed_on: Option<&PassedOn>, odd: bool) {
        let clean = if odd { without_escapes(line) } else { Cow::Borrowed(line) };
        let line = passed_on.map_or(&*clean, |form| self.program.behind(form, &clean));
        self.program.may_head(line);
        if odd {
            // Progress bars end in a bare CR: what stands between two of them is a line of its own with the same number.
            let clean = without_entities(line);
            clean.split(|b| *b == b'\r').filter(|segment| !segment.is_empty()).for_each(|line| self.segment(line));
        } else {
            self.segment(line);
        }
    }

    fn segment(&mut self, line: &[u8]) {
        if line.len() == self.last_edge.len() && self.repeats_edge(line) {
            return;
        }
        let head = self.prefixes.start_of(line).map(|(head, length)| (head, &line[length..]));
        if let Some((head, rest)) = head.filter(|(head, _)| head.warns)
            && self.known_warning(line, head, rest)
        {
            return;
        }
        let met = head.filter(|(head, _)| head.informs);
        let met = met.and_then(|(head, rest)| Some((rest.strip_prefix(prefix::INFO)?, head.speaker)));
        let met = met.or_else(|| self.whole_prefix(line, prefix::whole));
        if met.is_none() && self.program.takes(line, self.line, &mut self.facts) {
            return;
        }
        if let Some((message, speaker)) = met.or_else(|| self.whole_prefix(line, prefix::behind_label))
            && self.known_message(line, message, speaker)
        {
            return;
        }
        if inspector::may_belong(line)
            && let Some(sample) = inspector::read(line)
        {
            self.push(NOBODY, Fact::Inspector(Box::new((sample, kept(line)))));
            return;
        }
        match unwrapped(line) {
            Some(lines) => lines.iter().for_each(|line| self.whole_line(&without_escapes(line.as_bytes()))),
            None => self.whole_line(line),
        }
    }

    /// The message and the speaker of a line with a whole prefix, as `read` finds it.
    fn whole_prefix<'l>(&mut self, line: &'l [u8], read: ReadPrefix) -> Option<(&'l [u8], u32)> {
        let (speaker, message) = read(line)?;
        let speaker = self.speaker(&speaker);
        let length = line.len() - message.len() - prefix::INFO.len();
        self.remember(line, length, Head { speaker, clean: true, informs: true, ..Head::default() });
        Some((message, speaker))
    }

    fn remember(&mut self, line: &[u8], length: usize, head: Head) {
        let same = |(known, of): &(Head, usize)| *of == length && known.speaker == head.speaker;
        let known = self.prefixes.start_of(line).filter(same).map_or(head, |(known, _)| known);
        let (informs, warns) = (known.informs || head.informs, known.warns || head.warns);
        let (clean, label) = if head.warns { (head.clean, head.label) } else { (known.clean, known.label) };
        self.prefixes.remember_start(line, length, Head { clean, informs, warns, label, ..head });
    }

    /// Remembers the prefix of a warning that was taken apart: what stands between it and the text does not change what it is.
    fn remember_warning(&mut self, line: &[u8], speaker: u32, message: &Message) {
        let (Some(who), Some(site)) = (message.speaker, message.site) else { return };
        let (label, length) = (offset(who.host, line), offset(site, line));
        let (prefix, rest) = line.split_at(length);
        let whole = prefix.ends_with(b"] ") && who.device.is_some() && !prefix::has_level(prefix);
        if whole
            && prefix::warned(rest).is_some()
            && let Ok(label) = u8::try_from(label)
        {
            self.remember(line, length, Head { speaker, clean: who.clean, informs: false, warns: true, label });
        }
    }

    /// A warning behind a known prefix, if nothing else landed in the line.
    fn known_warning(&mut self, line: &[u8], head: Head, rest: &[u8]) -> bool {
        let read = || {
            let (site, text) = prefix::warned(rest).filter(|(_, text)| !prefix::has_level(text))?;
            Some((Some(site), without_repetition(text)))
        };
        let text = FxBuildHasher.hash_one(rest);
        let said = self.warned.of(text).or_else(|| read().map(said));
        let Some(said) = said.filter(|_| !may_wrap(line)) else { return false };
        self.warned.remember(text, said);
        if head.label > 0 {
            self.program.piece(&line[..usize::from(head.label)], self.line, &mut self.facts);
        }
        self.count_line(head.speaker, head.clean);
        self.warning(head.speaker, said, || WarnLine::of(read().unwrap_or_default(), line));
        true
    }

    /// The quick way, for most lines of any log: the prefix is known and nothing else landed in the line. False sends
    /// the line the long way.
    fn known_message(&mut self, line: &[u8], message: &[u8], speaker: u32) -> bool {
        if message.starts_with(CHANNEL)
            && let Some(edge) = read_edge(message)
        {
            let Some(transport) = self.known_transport(edge.via) else { return false };
            self.count_line(speaker, true);
            self.push_edge(speaker, &edge, transport);
            if matches!(message.get(BEHIND), Some(b'/' | b' ')) {
                self.last_edge.clear();
                self.last_edge.extend_from_slice(line);
                self.digits = line.len() - message.len() + CHANNEL.len();
                self.events_then = self.facts.events.len();
            }
            return true;
        }
        if finder!(MARKER).find(message).is_some_and(|at| !message[at..].starts_with(b"NCCL version")) {
            return false;
        }
        self.count_line(speaker, true);
        self.info(speaker, message, line);
        true
    }

    fn push_edge(&mut self, speaker: u32, edge: &EdgeLine, transport: u16) {
        if let Some(comm) = edge.comm {
            self.push(speaker, Fact::EdgeComm(comm));
        }
        self.push(speaker, Fact::Edge(Edge { transport, ..edge.edge }));
    }

    fn known_transport(&mut self, via: &[u8]) -> Option<u16> {
        if let Some(transport) = self.recent_vias.of(via) {
            return Some(transport);
        }
        let transport = (*self.vias.get(via)?)?;
        self.recent_vias.remember_text(via, transport);
        Some(transport)
    }

    /// Ranks tell a connection in a line per channel, one after the other. Whether a text begins with a line that differs from that of the
    /// last event in its channel's two digits alone: it is that connection again.
    fn repeats_edge(&mut self, text: &[u8]) -> bool {
        let (last, events) = (&self.last_edge, &mut self.facts.events);
        let Some((line, rest)) = text.split_at_checked(last.len()) else { return false };
        if events.len() != self.events_then || !matches!(rest.first(), None | Some(b'\n')) {
            return false;
        }
        let behind = self.digits + 2;
        if line[behind..] != last[behind..] || line[..self.digits] != last[..self.digits] {
            return false;
        }
        let [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = line[self.digits..behind] else { return false };
        let Some(&mut Event { speaker, what: Fact::Edge(ref mut edge), .. }) = events.last_mut() else { return false };
        edge.channels.add(ChannelSet::of(u16::from((tens - b'0') * 10 + ones - b'0')));
        self.count_line(speaker, true);
        true
    }

    fn push(&mut self, speaker: u32, what: Fact) {
        if let Some(number) = self.once.take() {
            self.facts.events.push(Event { speaker, line: self.line, what: Fact::Once(number) });
        }
        self.facts.events.push(Event { speaker, line: self.line, what });
    }

    fn count_line(&mut self, speaker: u32, clean: bool) {
        self.facts.nccl_lines += 1;
        let Some(&host) = self.host_of.get(speaker as usize) else { return };
        if host != self.last_host.host || self.last_host.lines == 0 {
            self.flush_host();
            self.last_host = HostLines { host, speaker, ..HostLines::default() };
        }
        self.last_host.lines += 1;
        self.last_host.clean_lines += u32::from(clean);
    }

    /// Adds the lines of the host that spoke last to those of the block.
    fn flush_host(&mut self) {
        let last = std::mem::take(&mut self.last_host);
        if last.lines == 0 {
            return;
        }
        let (all, at) = (&mut self.facts.spoken, &mut self.spoken[last.host as usize]);
        match all.get_mut(*at as usize) {
            Some(known) => {
                known.lines += last.lines;
                known.clean_lines += last.clean_lines;
            }
            None => {
                *at = all.len() as u32;
                all.push(last);
            }
        }
    }

    /// The long way: takes the line apart and reads every piece.
    fn whole_line(&mut self, line: &[u8]) {
        pieces(line, &mut |piece| match piece {
            Piece::Plain(plain) => self.program.piece(plain, self.line, &mut self.facts),
            Piece::Nccl(message) => self.message(&message, line),
        });
    }

    fn message(&mut self, message: &Message, line: &[u8]) {
        let speaker = message.speaker.map_or(NOBODY, |s| self.speaker(&s));
        self.count_line(speaker, message.speaker.is_some_and(|s| s.clean));
        match message.level {
            Level::Warn => {
                self.remember_warning(line, speaker, message);
                let warning = (message.site, message.text);
                self.warning(speaker, said(warning), || WarnLine::of(warning, line));
            }
            Level::Info => self.info(speaker, message.text, line),
            Level::Other => {}
        }
    }

    fn warning(&mut self, speaker: u32, said: u64, new: impl FnOnce() -> WarnLine) {
        self.facts.warn_lines += 1;
        let key = FxBuildHasher.hash_one((speaker, said));
        let number = self.warnings.get(&key).copied().unwrap_or_else(|| {
            if self.warnings.len() >= MOST_CACHED {
                self.warnings.clear(); // what comes back gets a second number, which stands for the same warning
            }
            let next = self.next_warning;
            self.next_warning += 1;
            self.warnings.insert(key, next);
            self.facts.new_warnings.push(new());
            next
        });
        self.push(speaker, Fact::Warn(number));
    }

    fn info(&mut self, speaker: u32, message: &[u8], line: &[u8]) {
        if let Some(edge) = read_edge(message) {
            match self.transport(edge.via, line) {
                Some(transport) => self.push_edge(speaker, &edge, transport),
                None => self.facts.unknown_lines += 1,
            }
            return;
        }
        if message.starts_with(b"cudaDriverVersion ") {
            self.push(speaker, Fact::Driver);
        }
        if !nccl_log::is_of_the_host(message) || message.len() > LONGEST_STATEMENT {
            self.statement(speaker, message, line);
            return;
        }
        let host = self.host_of.get(speaker as usize).copied().unwrap_or(NOBODY);
        let key = FxBuildHasher.hash_one((host, message));
        match self.statements.get(&key) {
            Some(known) => self.facts.unknown_lines += u64::from(!known),
            None => {
                if self.statements.len() >= MOST_CACHED {
                    self.statements.clear();
                }
                self.once = Some(FxBuildHasher.hash_one(message));
                let known = self.statement(speaker, message, line);
                self.once = None;
                self.statements.insert(key, known);
            }
        }
    }

    /// Reads a message that is no edge; false when nobody knows it.
    fn statement(&mut self, speaker: u32, message: &[u8], line: &[u8]) -> bool {
        match nccl_log::read(message) {
            LogMessage::Known if nccl_log::tells_of_trouble(message) => self.note(speaker, message, line),
            LogMessage::Known => {}
            LogMessage::Unknown => {
                self.facts.unknown_lines += 1;
                self.note(speaker, message, line);
                return false;
            }
            LogMessage::SystemDump => self.dump_line(message, line),
            said => {
                let text = if said.is_evidence() { kept(line) } else { Box::default() };
                self.push(speaker, Fact::LogMessage(Box::new(MessageLine { said, text })));
            }
        }
        true
    }

    fn note(&mut self, speaker: u32, message: &[u8], line: &[u8]) {
        // No program's line has the wording of a message: what ranks repeat is not met again.
        let wording = !wording(message);
        if self.once.is_some() || self.program.is_new(wording) {
            let fact = StatementFact { by: Speaker::NcclInfo, wording, text: kept(line) };
            self.push(speaker, Fact::Statement(Box::new(fact)));
        }
    }

    /// Ranks dump their machine at the same time, so each has a stream of its own: its prefix, without the time in front of it.
    fn dump_line(&mut self, message: &[u8], line: &[u8]) {
        let prefix = &line[..offset(message, line)];
        let prefix = text(&prefix[prefix.len().saturating_sub(LONGEST_PREFIX)..]);
        let (stream, text) = (format!("{DUMP_STREAM}{}", peel(&prefix).text), text(message));
        let text = self.program.text(&stream, &text, Offered::Lines, &mut self.facts);
        self.push(NOBODY, text);
    }

    fn transport(&mut self, via: &[u8], line: &[u8]) -> Option<u16> {
        if let Some(known) = self.vias.get(via) {
            return *known;
        }
        let index = read_transport(via, Place::default()).and_then(|transport| self.number(transport, line));
        if self.vias.len() < MOST_CACHED {
            self.vias.insert(via.into(), index);
        }
        index
    }

    /// The number of a transport; none beyond the last that fits, which only damage gives.
    fn number(&mut self, transport: Transport, line: &[u8]) -> Option<u16> {
        let key = (transport.via.clone(), transport.pxn);
        if let Some(known) = self.transports.get(&key) {
            return Some(*known);
        }
        let next = u16::try_from(self.transports.len()).ok()?;
        self.transports.insert(key, next);
        self.facts.new_transports.push((transport, self.line, kept(line)));
        Some(next)
    }

    fn speaker(&mut self, speaker: &SpeakerRef) -> u32 {
        let SpeakerRef { pid, tid, device, .. } = *speaker;
        let host = self.host(speaker.host);
        // No number of a process or thread is larger (PID_MAX_LIMIT in Linux's threads.h): those that are come of damage.
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let key = [host, small(pid), small(tid), device.unwrap_or(u32::MAX)];
        if let Some(index) = self.speakers.get(&key) {
            return *index;
        }
        let index = self.host_of.len() as u32;
        self.host_of.push(host);
        if self.speakers.len() >= MOST_CACHED {
            self.speakers.clear(); // who comes back gets a second index, which stands for the same speaker
        }
        self.speakers.insert(key, index);
        self.facts.new_speakers.push(SpeakerFact { host, pid, tid, device });
        index
    }

    fn host(&mut self, name: &[u8]) -> u32 {
        if let Some(host) = self.hosts.get(name) {
            return *host;
        }
        let host = self.spoken.len() as u32;
        self.spoken.push(NOBODY);
        self.hosts.insert(name.into(), host);
        self.facts.new_hosts.push(lossy(name).into());
        host
    }
}

/// A number for what a warning says: its place in the source and its wording.
fn said((site, message): (Option<&[u8]>, &[u8])) -> u64 {
    FxBuildHasher.hash_one((site, wording_without_hex(message.trim_ascii())))
}

#[cfg(test)]
mod tests;

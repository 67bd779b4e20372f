//! From a block of bytes to facts: takes lines apart and reads the messages. Runs in any number of threads.

use crate::clean::{has_entities, unwrapped, without_entities, without_escapes};
use crate::cursor::{finder, kept, lossy, offset, text};
use crate::ends::EndLine;
use crate::evidence::{self, Wanted};
use crate::facts::{
    BlockFacts, CommandLine, EndFact, Event, Fact, FirstLine, HostLines, MessageLine, NOBODY, Offered, SpeakerFact,
    StatementFact, TextFact, WarnLine,
};
use crate::json_objects::JsonReader;
use crate::last_lines::LastLines;
use crate::launcher::{peel, without_inner_tags};
use crate::nccl_log::{self, EdgeLine, Level, LogMessage, read_edge, read_transport};
use crate::notes::{SeenWordings, wording};
use crate::prefix::{self, MARKER, Message, Piece, SpeakerRef, pieces};
use crate::readers::{DUMP_STREAM, may_belong};
use crate::recent::Recent;
use crate::source::Block;
use crate::{command, ends, inspector, speaker};
use busbw_model::{ChannelSet, Edge, Place, Speaker, Transport};
use memchr::{memchr, memchr_iter};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;

const CHANNEL: &[u8] = b"Channel ";
/// Where a channel of two digits ends.
const BEHIND: usize = CHANNEL.len() + 2;

/// More of a prefix does not distinguish streams of a dump.
const LONGEST_PREFIX: usize = 256;
const MOST_CACHED: usize = 1 << 16;
/// A longer message is not looked up among those that ranks repeat.
const LONGEST_STATEMENT: usize = 512;

/// Reads blocks. What it met once it knows again in later blocks, which saves time and changes nothing in what it reads.
#[derive(Default)]
pub(crate) struct Scanner {
    facts: BlockFacts,
    line: u32,
    /// Whole prefixes (`[1,3]<stdout>:host:pid:tid [3] NCCL INFO `) and their speakers.
    prefixes: Recent<4096>,
    /// By host, process, thread and device, all small to stay in a core's cache.
    speakers: FxHashMap<[u32; 4], u32>,
    host_of: Vec<u32>,
    hosts: FxHashMap<Box<[u8]>, u32>,
    /// By host, where the block's facts show it if it spoke; and what the host said that spoke last.
    spoken: Vec<u32>,
    last_host: HostLines,
    streams: FxHashMap<Box<str>, u32>,
    transports: FxHashMap<(String, bool), u16>,
    /// Texts after `via` and their transport; `None` when the text is torn.
    vias: FxHashMap<Box<[u8]>, Option<u16>>,
    recent_vias: Recent<64>,
    /// The message of the block's last event where that is a connection.
    last_edge: Vec<u8>,
    /// Number of the block's events, then.
    events_then: usize,
    /// Statements that ranks of a host repeat, by hash of host and message, and whether they were understood.
    statements: FxHashMap<u64, bool>,
    /// The number of the statement that is read, where all ranks of its host make it.
    once: Option<u64>,
    met: SeenWordings,
    tracebacks: ends::Follower,
    /// The last lines of known wording, by stream, of this block.
    known_lines: FxHashMap<u32, Vec<u32>>,
    last_lines: LastLines,
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
    pub fn scan(&mut self, block: &Block, open: ends::Follower) -> BlockFacts {
        (self.line, self.events_then, self.tracebacks) = (0, usize::MAX, open);
        self.met.begin_block();
        let (block, indent) = (block.lines(), block.indent());
        let odd = memchr(0x1b, block).is_some() || memchr(b'\r', block).is_some() || has_entities(block);
        let mut start = 0;
        let rest = block.last().filter(|last| **last != b'\n').map(|_| block.len());
        for end in memchr_iter(b'\n', block).chain(rest) {
            // Lines without a text lack the indent.
            let line = &block[start..end];
            let line = if indent.is_empty() { line } else { line.strip_prefix(indent).unwrap_or(line) };
            if odd {
                // Progress bars end in a bare CR: what stands between two of them is a line of its own with the same number.
                let clean = without_escapes(line);
                let clean = without_entities(&clean);
                clean.split(|b| *b == b'\r').filter(|segment| !segment.is_empty()).for_each(|line| self.segment(line));
            } else {
                self.segment(line);
            }
            self.line += 1;
            start = end + 1;
        }
        self.facts.lines = u64::from(self.line) - rest.iter().count() as u64;
        self.flush_host();
        self.facts.spoken.iter().for_each(|spoken| self.spoken[spoken.host as usize] = NOBODY);
        self.facts.known_lines.extend(self.known_lines.drain());
        self.facts.last_lines.extend(self.last_lines.drain());
        self.facts.open = self.tracebacks.left_open();
        let next = BlockFacts { worker: self.facts.worker, ..BlockFacts::default() };
        std::mem::replace(&mut self.facts, next)
    }

    fn segment(&mut self, line: &[u8]) {
        if let Some((message, speaker)) = self.whole_prefix(line)
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

    /// The message and the speaker of a line with a whole prefix.
    fn whole_prefix<'l>(&mut self, line: &'l [u8]) -> Option<(&'l [u8], u32)> {
        if let Some((speaker, length)) = self.prefixes.start_of(line) {
            return Some((&line[length..], speaker));
        }
        let (speaker, message) = prefix::quick(line)?;
        let speaker = self.speaker(&speaker);
        self.prefixes.remember_start(line, line.len() - message.len(), speaker);
        Some((message, speaker))
    }

    /// The quick way, for most lines of any log: the prefix is known and nothing else landed in the line. False sends
    /// the line the long way.
    fn known_message(&mut self, line: &[u8], message: &[u8], speaker: u32) -> bool {
        if message.starts_with(CHANNEL) {
            if self.repeats_edge(speaker, message) {
                return true;
            }
            if let Some(edge) = read_edge(message) {
                let Some(transport) = self.known_transport(edge.via) else { return false };
                self.count_line(speaker, true);
                self.push_edge(speaker, &edge, transport);
                if matches!(message.get(BEHIND), Some(b'/' | b' ')) {
                    self.last_edge.clear();
                    self.last_edge.extend_from_slice(message);
                    self.events_then = self.facts.events.len();
                }
                return true;
            }
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
        if let Some(number) = self.recent_vias.number_of(via) {
            return u16::try_from(number).ok();
        }
        let transport = (*self.vias.get(via)?)?;
        self.recent_vias.remember_text(via, transport.into());
        Some(transport)
    }

    /// Ranks tell a connection in a line per channel, one after the other: a message that differs from the last event's in its
    /// channel's two digits alone is that connection again.
    fn repeats_edge(&mut self, speaker: u32, message: &[u8]) -> bool {
        let (last, events) = (&self.last_edge, &mut self.facts.events);
        if events.len() != self.events_then || last.len() != message.len() || last[BEHIND..] != message[BEHIND..] {
            return false;
        }
        let [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = message[CHANNEL.len()..BEHIND] else { return false };
        let Some(Event { speaker: teller, what: Fact::Edge(edge), .. }) = events.last_mut() else { return false };
        if *teller != speaker {
            return false;
        }
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
        let mut found = Vec::new();
        pieces(line, &mut found);
        for piece in &found {
            match piece {
                Piece::Plain(plain) => self.plain(plain),
                Piece::Nccl(message) => self.message(message, line),
            }
        }
    }

    fn message(&mut self, message: &Message, line: &[u8]) {
        let speaker = message.speaker.map_or(NOBODY, |s| self.speaker(&s));
        self.count_line(speaker, message.speaker.is_some_and(|s| s.clean));
        match message.level {
            Level::Warn => self.warning(speaker, message, line),
            Level::Info => self.info(speaker, message.text, line),
            Level::Other => {}
        }
    }

    fn warning(&mut self, speaker: u32, message: &Message, line: &[u8]) {
        self.facts.warn_lines += 1;
        let warn =
            WarnLine { site: message.site.map(text), message: text(message.text.trim_ascii()), text: kept(line) };
        self.push(speaker, Fact::Warn(Box::new(warn)));
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
        if self.once.is_some() || self.met.meet(wording).0 {
            let fact = StatementFact { by: Speaker::NcclInfo, wording, text: kept(line) };
            self.push(speaker, Fact::Statement(Box::new(fact)));
        }
    }

    /// Ranks dump their machine at the same time, so each has a stream of its own: its prefix, without the time in front of it.
    fn dump_line(&mut self, message: &[u8], line: &[u8]) {
        let prefix = &line[..offset(message, line)];
        let prefix = text(&prefix[prefix.len().saturating_sub(LONGEST_PREFIX)..]);
        self.text(&format!("{DUMP_STREAM}{}", peel(&prefix).text), &text(message), Offered::Lines);
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

    /// Text that is no message of NCCL's: a program's line, a piece of a table row, a launcher's label.
    fn plain(&mut self, plain: &[u8]) {
        if plain.trim_ascii().is_empty() {
            return;
        }
        let lossy = lossy(plain);
        let untagged = without_inner_tags(&lossy);
        let peeled = peel(&lossy);
        let body = match &untagged {
            Some(untagged) => peel(untagged).text,
            None => peeled.text,
        };
        let wanted = evidence::of(untagged.as_ref().map_or(plain, String::as_bytes));
        self.speaks(peeled.stream, body, plain, wanted);
        let unindented = body.trim_start();
        if (unindented.starts_with("NCCL version") || unindented.starts_with("RCCL version"))
            && let Some(version) = nccl_log::read_version(unindented.as_bytes())
        {
            self.push(
                NOBODY,
                Fact::LogMessage(Box::new(MessageLine { said: LogMessage::Version(version), text: kept(plain) })),
            );
        }
        if wanted.torch {
            self.text(peeled.stream, &lossy, Offered::All);
        } else if wanted.other || may_belong(body.as_bytes()) {
            self.text(peeled.stream, body, Offered::Lines);
        } else if JsonReader::may_belong(body.as_bytes()) {
            self.text(peeled.stream, body, Offered::Json);
        }
        if wanted.variables {
            let variables = command::variables(&lossy);
            if !variables.is_empty() {
                self.push(NOBODY, Fact::Variables(Box::new(CommandLine { variables, text: kept(plain) })));
            }
        }
    }

    /// Who speaks a plain line, and whether it shows an end, or that a loop goes on.
    fn speaks(&mut self, stream: &str, body: &str, plain: &[u8], wanted: Wanted) {
        let wording = wording(plain);
        let (may_be_kept, first) = self.met.meet(wording);
        let mut begins = ends::beginning(body);
        let last = self.tracebacks.ends(stream, body, begins.as_mut());
        let joined = if begins.is_some() { ends::joined(body) } else { Vec::new() };
        let quoted = self.tracebacks.is_in_message(stream);
        let end = begins.or_else(|| if last || wanted.end && !quoted { ends::read(body, last) } else { None });
        let by = match self.tracebacks.is_python(stream, end.as_ref()) {
            true => Speaker::Python,
            false if wanted.speaker || body.trim_start().starts_with('[') => speaker::of(body),
            false => Speaker::Program,
        };
        if matches!(joined.last(), Some(EndLine::Exception { .. })) {
            self.tracebacks.ended(stream);
        }
        if let Some(said) = end {
            let stream = self.stream(stream);
            for said in std::iter::once(said).chain(joined) {
                self.push(NOBODY, Fact::End(Box::new(EndFact { stream, said, text: kept(plain) })));
            }
        } else if by == Speaker::Program {
            let inside = self.tracebacks.is_inside(stream);
            let stream = self.stream(stream);
            if !inside {
                self.last_lines.take(stream, self.line, plain);
            }
            if !wanted.progress {
                self.goes_on(stream, first.then_some(wording));
            }
        }
        if may_be_kept {
            self.push(NOBODY, Fact::Statement(Box::new(StatementFact { by, wording, text: kept(plain) })));
        }
    }

    /// Notes that a stream printed a line of a wording that the block has before, or that is new in it.
    fn goes_on(&mut self, stream: u32, new: Option<u64>) {
        if let Some(wording) = new {
            self.facts.first_lines.push(FirstLine { stream, line: self.line, wording });
            return;
        }
        let lines = self.known_lines.entry(stream).or_default();
        if lines.len() == ends::MOST_SHOWN {
            lines.remove(0);
        }
        lines.push(self.line);
    }

    fn stream(&mut self, stream: &str) -> u32 {
        if let Some(index) = self.streams.get(stream) {
            return *index;
        }
        let index = self.streams.len() as u32;
        self.facts.new_streams.push(stream.into());
        self.streams.insert(stream.into(), index);
        index
    }

    fn text(&mut self, stream: &str, body: &str, offered: Offered) {
        let stream = self.stream(stream);
        self.push(NOBODY, Fact::Text(Box::new(TextFact { stream, text: body.into(), offered })));
    }
}

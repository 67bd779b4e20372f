//! Tables of nccl-tests, every release from 2.0 to 2.19.6, whole, in excerpts, and torn by other output.

mod header;
pub(crate) mod infer;
pub(crate) mod preamble;
mod row;

use crate::TextLine;
use crate::cursor::finder;
use busbw_model::{BenchDevice, BenchRow, BenchSettings, BenchTable, Collective, GBps, OutOfBounds, Place, SourceLine};
use header::Layout;
use preamble::Note;
use row::{Context, RowBuilder};
use rustc_hash::{FxHashMap, FxHashSet};

/// Reads the tables of nccl-tests out of lines of text.
///
/// ```
/// use busbw_ingest::{TextLine, nccl_tests::TableReader};
/// use busbw_model::{Collective, Place};
///
/// let text = "\
/// #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
///   1073741824     268435456     float     sum      -1    12234   87.77  153.60      0    12227   87.82  153.68      0
/// # Avg bus bandwidth    : 153.64 ";
/// let mut reader = TableReader::default();
/// for (line, text) in (1..).zip(text.lines()) {
///     assert!(reader.feed(&TextLine { place: Place { input: 0, line }, stream: "", text }));
/// }
/// let tables = reader.finish();
/// assert_eq!(tables[0].rows[0].best_busbw().unwrap().0, 153.68);
/// assert_eq!((tables[0].collective, tables[0].nranks), (Some(Collective::AllReduce), Some(8)));
/// ```
#[derive(Debug, Default)]
pub struct TableReader {
    drafts: Vec<Draft>,
    streams: Vec<Stream>,
    /// The streams of each input by name.
    by_name: FxHashMap<u32, FxHashMap<Box<str>, usize>>,
}

/// How far a table has come. Lines come in this order, so a line that belongs further up begins a new table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Nothing,
    Version,
    Starting,
    Settings,
    UsingDevices,
    Devices,
    Banner,
    Header,
    Rows,
    OutOfBounds,
    Average,
}

/// A table that is being read.
#[derive(Debug)]
struct Draft {
    table: BenchTable,
    stream: usize,
    phase: Phase,
    layout: Option<Layout>,
    concluded: bool,
    /// Of the devices listed so far.
    ranks: FxHashSet<u32>,
    /// What a command line above the table names.
    hint: Option<Collective>,
}

/// The output of one process. Several processes that print a table each, without a launcher's labels, are one stream
/// too: that is why more than one table can be open.
#[derive(Debug, Default)]
struct Stream {
    /// What the launcher puts in front of its lines.
    label: Box<str>,
    /// Tables that may go on, as indices into `drafts`.
    open: Vec<usize>,
    rows: RowBuilder,
    /// What the latest command line names.
    hint: Option<Collective>,
}

impl TableReader {
    /// False only when the text cannot belong to a table and names no program of nccl-tests. Cheap and without state,
    /// so that workers can sort out most lines of a large file before anyone reads them.
    pub fn may_belong(text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        let words: &[&[u8]] = match text.first() {
            None => return false,
            Some(b'#') => return true,
            Some(b'0'..=b'9' | b'-' | b'.') if begins_with_number(text) => return true,
            Some(b'[') if strip_tag(text).len() < text.len() => return true,
            Some(b'a') => &[b"avg"],
            Some(b'b') => &[b"bfloat16", b"bf16"],
            Some(b'c') => &[b"char"],
            Some(b'd') => &[b"double"],
            Some(b'f') => &[b"float", b"f8e", b"fp8"],
            Some(b'h') => &[b"half"],
            Some(b'i') => &[b"int", b"inf"],
            Some(b'm') => &[b"max", b"min", b"mulsum"],
            Some(b'n') => &[b"none", b"nan", b"nThread "],
            Some(b'p') => &[b"prod"],
            Some(b's') => &[b"sum", b"size"],
            Some(b'u') => &[b"uint"],
            Some(b'A') => &[b"Avg bus bandwidth"],
            Some(b'N') => &[b"N/A"],
            Some(b'O') => &[b"Out of bounds values"],
            _ => &[],
        };
        words.iter().any(|word| text.starts_with(word)) || finder!(PERF).find(text).is_some()
    }

    /// Offers a line, or a piece of a line. True when it belongs to a table; then no other reader needs it.
    ///
    /// The pieces of a line must come in their order; lines of other streams and other text may lie between.
    pub fn feed(&mut self, line: &TextLine<'_>) -> bool {
        if !Self::may_belong(line.text.as_bytes()) {
            return false;
        }
        let tagged = line.text.trim();
        let text = &tagged[tagged.len() - strip_tag(tagged.as_bytes()).len()..];
        let stream = self.stream(line);
        if let Some(note) = preamble::read(text) {
            return self.note(stream, line, note);
        }
        if self.row(stream, line, text) {
            return true;
        }
        match programs(text) {
            [None, ..] => {}
            [program, None] => self.streams[stream].hint = program,
            // A text about several programs says nothing about the next table.
            [Some(_), Some(_)] => self.streams[stream].hint = None,
        }
        false
    }

    /// All tables in the order in which their first lines came.
    pub fn finish(mut self) -> Vec<BenchTable> {
        for stream in 0..self.streams.len() {
            self.flush(stream);
        }
        let complete = |draft: Draft| {
            let Draft { mut table, layout, hint, .. } = draft;
            let redop_without_root = layout.is_some_and(|layout| layout.redop && layout.lead.is_empty());
            infer::complete(&mut table, hint, redop_without_root);
            table
        };
        self.drafts.into_iter().map(complete).collect()
    }

    /// The index of the line's stream.
    fn stream(&mut self, line: &TextLine<'_>) -> usize {
        let names = self.by_name.entry(line.place.input).or_default();
        if let Some(stream) = names.get(line.stream) {
            return *stream;
        }
        let stream = self.streams.len();
        names.insert(line.stream.into(), stream);
        self.streams.push(Stream { label: line.stream.into(), ..Stream::default() });
        stream
    }

    /// Takes in a line around the rows.
    fn note(&mut self, stream: usize, line: &TextLine<'_>, note: Note) -> bool {
        if note == Note::Remark {
            return self.latest(stream).is_some();
        }
        self.flush(stream);
        let phase = match &note {
            Note::Version { .. } => Phase::Version,
            Note::Starting(_) => Phase::Starting,
            Note::Settings(_) => Phase::Settings,
            Note::UsingDevices => Phase::UsingDevices,
            Note::Device(_) => Phase::Devices,
            Note::Banner => Phase::Banner,
            Note::Header(_) => Phase::Header,
            Note::OutOfBounds { .. } => Phase::OutOfBounds,
            Note::Average { .. } => Phase::Average,
            Note::ReducedMax(bytes) => {
                let Some(draft) = self.latest(stream) else { return false };
                self.drafts[draft].table.settings.max_bytes = Some(bytes.to_owned());
                return true;
            }
            Note::Memory(memory) => {
                let Some(draft) = self.latest(stream) else { return false };
                self.drafts[draft].table.settings.memory = Some(*memory);
                return true;
            }
            Note::Skew { size, datatype, skew } => {
                let Some(draft) = self.latest(stream) else { return false };
                let is_it = |row: &&mut BenchRow| {
                    row.skew.is_none() && row.size == *size && (row.datatype == *datatype || datatype.is_none())
                };
                if let Some(row) = self.drafts[draft].table.rows.iter_mut().find(is_it) {
                    row.skew = Some((**skew).clone());
                }
                return true;
            }
            Note::Concluded(program) => return self.conclude(stream, program),
            Note::Remark => return false,
        };
        let id = self.draft_for(stream, phase, &note, line);
        let draft = &mut self.drafts[id];
        draft.phase = phase;
        draft.take(note, line);
        if phase == Phase::Average {
            self.streams[stream].open.retain(|open| *open != id);
        }
        true
    }

    /// The open table that waits for a line of this phase, the latest first, else a new one.
    fn draft_for(&mut self, stream: usize, phase: Phase, note: &Note, line: &TextLine<'_>) -> usize {
        let waits = |draft: &Draft| match note {
            Note::Device(device) if draft.phase == phase => !draft.ranks.contains(&device.rank),
            _ => draft.phase < phase,
        };
        let found = self.streams[stream].open.iter().rev().find(|id| waits(&self.drafts[**id])).copied();
        found.unwrap_or_else(|| {
            if phase <= Phase::Header {
                // A new run: the tables before it are at their end, or their run was interrupted.
                let drafts = &self.drafts;
                self.streams[stream].open.retain(|id| drafts[*id].phase < Phase::Header);
            }
            self.open(stream, line.place)
        })
    }

    fn open(&mut self, stream: usize, place: Place) -> usize {
        // The shell that starts the launcher prints its command line without the launcher's labels.
        let shell = self.by_name.get(&place.input).and_then(|names| names.get(""));
        let hint = self.streams[stream].hint.or_else(|| self.streams[*shell?].hint);
        let label = self.streams[stream].label.to_string();
        let table = BenchTable { place, label, ..Default::default() };
        let (phase, ranks) = (Phase::Nothing, FxHashSet::default());
        self.drafts.push(Draft { table, stream, phase, layout: None, concluded: false, ranks, hint });
        let id = self.drafts.len() - 1;
        let open = &mut self.streams[stream].open;
        open.push(id);
        if open.len() > MAX_WAITING {
            open.remove(0);
        }
        id
    }

    /// `# Collective test concluded: NAME` ends a table whose average came before.
    fn conclude(&mut self, stream: usize, program: &str) -> bool {
        let waits = |draft: &&mut Draft| draft.stream == stream && !draft.concluded && draft.phase >= Phase::Rows;
        let Some(draft) = self.drafts.iter_mut().rev().take(MAX_WAITING).find(waits) else { return false };
        draft.concluded = true;
        draft.table.finished = true;
        draft.table.settings.program.get_or_insert_with(|| program.to_string());
        true
    }

    fn latest(&self, stream: usize) -> Option<usize> {
        let recent = self.drafts.iter().enumerate().rev().take(MAX_WAITING);
        recent.filter(|(_, draft)| draft.stream == stream).map(|(id, _)| id).next()
    }

    /// Offers a text to the rows of a stream.
    fn row(&mut self, stream: usize, line: &TextLine<'_>, text: &str) -> bool {
        let Stream { open, rows, .. } = &mut self.streams[stream];
        let context = context(&self.drafts, open);
        let Some(rows) = rows.feed(line, text, context) else { return false };
        for row in rows {
            self.add(stream, row);
        }
        true
    }

    /// Ends the open row of a stream.
    fn flush(&mut self, stream: usize) {
        let Stream { open, rows, .. } = &mut self.streams[stream];
        let row = rows.flush(context(&self.drafts, open).layout);
        if let Some(row) = row {
            self.add(stream, row);
        }
    }

    fn add(&mut self, stream: usize, row: BenchRow) {
        let id = self.continued_by(stream, &row).unwrap_or_else(|| self.open(stream, row.source.place));
        self.drafts[id].phase = Phase::Rows;
        self.drafts[id].table.rows.push(row);
    }

    /// The open table that a row continues. Among several it is the one whose last size comes next before the row's,
    /// else the shortest.
    fn continued_by(&self, stream: usize, row: &BenchRow) -> Option<usize> {
        let open = || self.streams[stream].open.iter().copied();
        let begun = || open().filter(|id| self.drafts[*id].takes_rows());
        let last_size = |id: &usize| self.drafts[*id].table.rows.last().map_or(0, |last| last.size.0);
        let growing = begun().filter(|id| last_size(id) < row.size.0).max_by_key(last_size);
        growing
            .or_else(|| begun().min_by_key(|id| self.drafts[*id].table.rows.len()))
            .or_else(|| open().rfind(|id| self.drafts[*id].phase < Phase::Header))
    }
}

/// Ends the name of every program of nccl-tests.
const PERF: &[u8] = b"_perf";

/// How many tables back a line may refer to: as many processes can print theirs at once.
const MAX_WAITING: usize = 1024;

/// What a stream's open tables say about its next row.
fn context<'a>(drafts: &'a [Draft], open: &[usize]) -> Context<'a> {
    let mut begun = open.iter().rev().map(|id| &drafts[*id]).filter(|draft| draft.takes_rows()).peekable();
    Context { in_table: begun.peek().is_some(), layout: begun.find_map(|draft| draft.layout.as_ref()) }
}

impl Draft {
    /// Whether its header or its first row came, and its end did not.
    fn takes_rows(&self) -> bool {
        (Phase::Header..=Phase::Rows).contains(&self.phase)
    }

    fn take(&mut self, note: Note, line: &TextLine<'_>) {
        let table = &mut self.table;
        match note {
            Note::Version { nccl_tests, nccl } => {
                table.settings.nccl_tests_version = Some(nccl_tests);
                table.settings.nccl_version = nccl;
            }
            Note::Starting(program) => table.settings.program = Some(program),
            Note::Settings(settings) => {
                table.settings = BenchSettings {
                    program: table.settings.program.take(),
                    nccl_tests_version: table.settings.nccl_tests_version.take(),
                    nccl_version: table.settings.nccl_version.take(),
                    memory: table.settings.memory,
                    ..settings
                };
            }
            Note::Device(device) => {
                self.ranks.insert(device.rank);
                table.devices.push(BenchDevice { source: SourceLine::new(line.place, line.text), ..device });
            }
            Note::Header(layout) => {
                table.settings.cpu_time = layout.cpu_time;
                self.layout = Some(layout);
            }
            Note::OutOfBounds { count, ok } => {
                table.out_of_bounds = Some(OutOfBounds { count, ok, source: SourceLine::new(line.place, line.text) });
            }
            Note::Average { value, failed } => {
                table.printed_avg_busbw = value.map(GBps);
                table.below_minimum = failed.then(|| SourceLine::new(line.place, line.text));
                table.finished = true;
            }
            Note::UsingDevices
            | Note::Banner
            | Note::ReducedMax(_)
            | Note::Memory(_)
            | Note::Skew { .. }
            | Note::Concluded(_)
            | Note::Remark => {}
        }
    }
}

/// Whether the text begins with a number as rows print them, and not with an address, a date or a name.
fn begins_with_number(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let after = text.get(digits).copied();
    match digits {
        0 => matches!(text, [b'.', b'0'..=b'9', ..]) || text.starts_with(b"nan") || text.starts_with(b"inf"),
        // `-1host:1:2`, `0# NCCL_TESTS_…`: other output sticks to a last cell.
        _ => after.is_none_or(|byte| byte.is_ascii_whitespace() || matches!(byte, b'.' | b'e' | b'#')),
    }
}

/// The text after a tag that a script put before the line: `[STAT]:524288000 …`.
fn strip_tag(text: &[u8]) -> &[u8] {
    let Some(rest) = text.strip_prefix(b"[") else { return text };
    let name = rest.iter().take_while(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-')).count();
    let Some(rest) = rest.get(name..).filter(|_| name > 0).and_then(|rest| rest.strip_prefix(b"]")) else {
        return text;
    };
    let rest = rest.strip_prefix(b":").unwrap_or(rest).trim_ascii_start();
    if rest.starts_with(b"#") || begins_with_number(rest) { rest } else { text }
}

/// The collectives whose nccl-tests programs a command line names, the first two different ones.
fn programs(text: &str) -> [Option<Collective>; 2] {
    /// The longest name of a program is not half as long.
    const LONGEST_NAME: usize = 64;
    let mut found = [None, None];
    for end in finder!(PERF).find_iter(text.as_bytes()) {
        let head = &text.as_bytes()[end.saturating_sub(LONGEST_NAME)..end];
        let start = head.iter().rposition(|b| !b.is_ascii_alphanumeric() && *b != b'_').map_or(0, |at| at + 1);
        let name = std::str::from_utf8(&head[start..]).unwrap_or_default();
        match (Collective::from_name(name), found) {
            (Some(program), [None, _]) => found[0] = Some(program),
            (Some(program), [first, None]) if first != Some(program) => found[1] = Some(program),
            _ => {}
        }
    }
    found
}

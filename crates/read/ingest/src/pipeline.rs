//! Reading with all cores: one thread reads blocks, workers scan them, the caller's thread assembles them in order.

use crate::assemble::Assembler;
use crate::ends::Follower;
use crate::envelope::{Envelope, in_order};
use crate::facts::{BlockFacts, Event};
use crate::scan::Scanner;
use crate::source::{Block, Blocks, ReadError, Source, binary_kind, read_up_to};
use crate::{iperf, nccl_tests_json, own, packed, perftest, torch};
use busbw_model::{InputKind, Place, Run, SourceLine};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

#[derive(Clone, Default)]
pub struct ReadOptions {
    /// Number of threads that scan; `None` for as many as there are cores.
    pub threads: Option<NonZeroUsize>,
    /// Called now and then with the number of bytes read since the last call.
    pub progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
    /// Turns a recording of `busbw monitor` into a line of monitor's JSON; without it a recording is binary data.
    pub recording: Option<fn(&mut dyn BufRead) -> Option<String>>,
}

/// How a recording of `busbw monitor` begins; its version follows.
const RECORDING: &[u8] = b"busbw monitor recording ";

/// What Windows' programs begin a text in UTF-8 with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A document (JSON) larger than this is read line by line only.
const LARGEST_DOCUMENT: u64 = 256 << 20;

/// Reads inputs into a [`Run`]. Inputs may be of any kind and hold several; what no reader knows is counted, never an
/// error.
///
/// # Errors
/// When an input is missing, a directory, no text, or cannot be read, or when all inputs are empty. Of a folder's files
/// ([`Source::all`]), those that cannot be read are problems of the run.
pub fn read(sources: &[Source], options: &ReadOptions) -> Result<Run, ReadError> {
    if sources.is_empty() {
        return Err(ReadError::NoInput);
    }
    let mut assembler = Assembler::default();
    let mut bytes = 0;
    for source in sources {
        assembler.begin(&source.name());
        let read = match read_one(source, options, &mut assembler) {
            Err(error) if source.is_of_folder() => {
                assembler.problem(0, error.reason());
                0
            }
            read => read?,
        };
        assembler.end(read);
        bytes += read;
    }
    if bytes == 0 {
        return Err(ReadError::Empty(sources.iter().map(Source::name).collect::<Vec<_>>().join(", ")));
    }
    Ok(assembler.finish())
}

/// Reads texts at hand, each with a name. For tests, other languages and fuzzing; the same as [`read`], in one thread.
///
/// # Errors
/// As [`read`].
pub fn read_bytes(texts: &[(&str, &[u8])]) -> Result<Run, ReadError> {
    let sources: Vec<Source> =
        texts.iter().map(|(name, text)| Source::Bytes(name.to_string(), text.to_vec())).collect();
    read(&sources, &ReadOptions { threads: NonZeroUsize::new(1), ..ReadOptions::default() })
}

fn read_one(source: &Source, options: &ReadOptions, assembler: &mut Assembler) -> Result<u64, ReadError> {
    let mut reader = source.open()?;
    let mut start = start_of(&mut reader).map_err(|e| source.error(e))?;
    let mut is_packed = false;
    if packed::is_packed(&start) {
        reader = packed::unpacked(Cursor::new(start).chain(reader));
        start = start_of(&mut reader).map_err(|e| source.error(e))?;
        is_packed = true;
    }
    if torch::looks_like_pickle(&start) {
        return read_flight_dump(source, Cursor::new(start).chain(reader), assembler);
    }
    if let Some(replay) = options.recording.filter(|_| start.starts_with(RECORDING)) {
        let line = replay(&mut BufReader::new(Cursor::new(start).chain(reader)));
        let why = "a recording that this version cannot read; `busbw monitor --replay` says why";
        start = line.ok_or_else(|| source.error(std::io::Error::other(why)))?.into_bytes();
        reader = Box::new(std::io::empty());
    }
    if let Some(kind) = binary_kind(&start) {
        return Err(ReadError::Binary { name: source.name(), kind });
    }
    if own::is_page(&start) {
        assembler.problem(1, "a page of busbw; explain reads what the page is about".into());
        return Ok(0);
    }
    if let Some(command) = own::text_of(&start) {
        assembler
            .problem(1, format!("the text of `busbw {command}`; explain reads its JSON: `busbw {command} --json`"));
    }
    let begins = start.trim_ascii_start();
    let is_list = begins.strip_prefix(b"[").is_some_and(|list| list.trim_ascii_start().starts_with(b"{"));
    let newest_first = Envelope::of(&start).is_some_and(|records| records.is_newest_first());
    let may_be_document = begins.starts_with(b"{") || is_list || newest_first;
    let mut reader: Box<dyn Read + Send> = Box::new(Cursor::new(start).chain(reader));
    if may_be_document {
        let mut whole = Vec::new();
        (&mut reader).take(LARGEST_DOCUMENT).read_to_end(&mut whole).map_err(|e| source.error(e))?;
        if read_document(&whole, assembler) {
            return Ok(whole.len() as u64);
        }
        if (whole.len() as u64) < LARGEST_DOCUMENT {
            let (text, turned) = in_order(whole);
            if turned {
                let order = "the newest record stands first; read from the end, where lines are counted from";
                assembler.problem(1, order.into());
            }
            whole = text;
        }
        reader = Box::new(Cursor::new(whole).chain(reader));
    }
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    // What is known beforehand is the packed size.
    let progress = options.progress.clone().filter(|_| !is_packed);
    let counted = Counted { reader, read: 0, progress };
    let small = !is_packed && source.size().is_some_and(|size| size < Blocks::<Counted>::SIZE as u64);
    let (blocks, scan) = (Blocks::new(counted), Scanner::scan);
    let read =
        if threads == 1 || small { alone(blocks, scan, assembler) } else { together(blocks, scan, threads, assembler) };
    read.map_err(|e| source.error(e))
}

/// The first bytes, which show what an input is.
fn start_of(reader: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut start = vec![0; 64 << 10];
    let length = read_up_to(reader, &mut start)?;
    start.truncate(length);
    if start.starts_with(BYTE_ORDER_MARK) {
        start.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(start)
}

/// Reads JSON that busbw, nccl-tests, perftest or iperf3 wrote; false when the text is something else.
fn read_document(whole: &[u8], assembler: &mut Assembler) -> bool {
    let Ok(text) = std::str::from_utf8(whole) else { return false };
    let input = assembler.current_input();
    let lines = memchr::memchr_iter(b'\n', whole).count() as u64;
    if let Some(schema) = own::Schema::of(whole) {
        let mut read = Ok(());
        assembler.document(InputKind::Busbw, lines, |run| read = own::read(schema, text, input, run));
        if let Err(reason) = read {
            assembler.problem(reason.line() as u64, format!("an answer of busbw's that is not whole: {reason}"));
        }
        return true;
    }
    if nccl_tests_json::looks_like(text) {
        match nccl_tests_json::read(text, input) {
            Ok(table) => assembler.document(InputKind::NcclTestsJson, lines, |run| run.tables.push(table)),
            Err(reason) => assembler.problem(1, format!("nccl-tests JSON: {reason}")),
        }
        return true;
    }
    if perftest::looks_like_json(text) {
        match perftest::read_json(text, input) {
            Ok(test) => assembler.document(InputKind::Perftest, lines, |run| run.perftests.push(test)),
            Err(reason) => assembler.problem(1, format!("perftest JSON: {reason}")),
        }
        return true;
    }
    if let Some(test) = iperf::read_json(text, input) {
        assembler.document(InputKind::Perftest, lines, |run| run.perftests.push(test));
        return true;
    }
    let first = SourceLine::new(Place { input, line: 1 }, text.lines().next().unwrap_or_default());
    if let Some(recording) = torch::read_json(text, first) {
        assembler.document(InputKind::FlightRecorder, lines, |_| ());
        assembler.recording(recording);
        return true;
    }
    false
}

/// Reads a pickle, which only PyTorch's flight recorder writes here.
fn read_flight_dump(source: &Source, reader: impl Read, assembler: &mut Assembler) -> Result<u64, ReadError> {
    let mut whole = Vec::new();
    reader.take(LARGEST_DOCUMENT).read_to_end(&mut whole).map_err(|e| source.error(e))?;
    match torch::read_pickle(&whole, assembler.current_input()) {
        Ok(Some(recording)) => {
            assembler.document(InputKind::FlightRecorder, 0, |_| ());
            assembler.recording(recording);
        }
        Ok(None) => {
            let kind = "a pickle that is no dump of PyTorch's flight recorder";
            return Err(ReadError::Binary { name: source.name(), kind });
        }
        Err(reason) => {
            assembler.problem(0, format!("flight recorder dump: {reason}"));
            assembler.recording(torch::cut_off(assembler.current_input()));
        }
    }
    Ok(whole.len() as u64)
}

/// Counts what is read and tells the progress.
struct Counted<'a> {
    reader: Box<dyn Read + Send + 'a>,
    read: u64,
    progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.read += count as u64;
        if let Some(progress) = &self.progress {
            progress(count as u64);
        }
        Ok(count)
    }
}

/// How a block is scanned into which tracebacks go on: [`Scanner::scan`].
type Scan = fn(&mut Scanner, &Block, Follower) -> BlockFacts;

/// A block's facts; an error when the scanner panicked over it. It is not used again.
fn scan_safely(scan: Scan, scanner: &mut Scanner, block: &Block, open: Follower) -> std::io::Result<BlockFacts> {
    // A bug of busbw's, told as an error: nobody should wait for a thread that is gone.
    let bug = "busbw failed over this input, which is a bug; cut the input in halves to find the line, and report it";
    catch_unwind(AssertUnwindSafe(|| scan(scanner, block, open))).map_err(|_| std::io::Error::other(bug))
}

fn alone(mut blocks: Blocks<Counted>, scan: Scan, assembler: &mut Assembler) -> std::io::Result<u64> {
    let mut block = Block::default();
    let mut scanner = Scanner::new(0);
    let mut open = Follower::default();
    while blocks.next(&mut block)? {
        let mut facts = scan_safely(scan, &mut scanner, &block, open)?;
        open = std::mem::take(&mut facts.open);
        scanner.reuse(assembler.absorb(facts));
    }
    Ok(blocks.into_inner().read)
}

/// Room of events that were assembled, for scanners to use again.
type Rooms = Mutex<Vec<Vec<Event>>>;

/// A block on its way to a worker and on to the assembler, or what goes with it.
type Numbered<T> = (u64, T);
/// A block and its facts, if nothing goes on into it.
type Scanned = std::io::Result<(Block, BlockFacts)>;

/// Blocks that are read, scanned or wait to be assembled, at most: with their facts about 1 MB each.
const MOST_UNDER_WAY: usize = 96;

/// Where threads wait for each other to have started. One that gets no memory for its signal stack, or for what a channel keeps of a thread that waits,
/// aborts the process, so no other may take memory before.
#[derive(Default)]
struct Gate {
    /// How many wait, and whether it is open.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let (_kept, empty) = channel::<()>();
        let _ = empty.recv_timeout(Duration::from_micros(50));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, open)| !*open));
    }

    /// Opens once so many threads wait.
    fn open_to(&self, threads: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(state, |(waiting, _)| *waiting < threads);
        waited.unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }
}

/// A thread reads, `threads` scan, this one assembles. Blocks under way are bounded, and so is memory.
fn together(reader: Blocks<Counted>, scan: Scan, threads: usize, assembler: &mut Assembler) -> std::io::Result<u64> {
    let under_way = (8 * threads).min(MOST_UNDER_WAY);
    let (to_workers, blocks) = sync_channel::<Numbered<Block>>(under_way);
    let (to_assembler, scanned) = channel::<Numbered<Scanned>>();
    let (give_back, buffers) = channel::<Block>();
    let (tokens, permits) = sync_channel::<()>(under_way);
    let blocks = Mutex::new(blocks);
    let rooms = Mutex::new(Vec::new());
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let (blocks, rooms, gate) = (&blocks, &rooms, &gate);
        let read = move || {
            gate.pass();
            read_blocks(reader, &to_workers, &buffers, &tokens)
        };
        for worker in 0..threads {
            let (to_assembler, scanner) = (to_assembler.clone(), Scanner::new(worker));
            let work = move || {
                gate.pass();
                scan_blocks((scan, scanner), (blocks, rooms), &to_assembler);
            };
            Builder::new().spawn_scoped(scope, work).map_err(|error| {
                gate.open_to(worker);
                no_thread(error)
            })?;
        }
        drop(to_assembler);
        let reading = Builder::new().spawn_scoped(scope, read).map_err(|error| {
            gate.open_to(threads);
            no_thread(error)
        })?;
        gate.open_to(threads + 1);
        // Both channels end here, whatever happened: who still sends on them stops, and the scope's threads with it.
        let again = (scan, Scanner::new(threads));
        let assembled = assemble_in_order(scanned, again, (permits, rooms, give_back), assembler);
        let read = reading.join().unwrap_or_else(|_| Err(std::io::Error::other("the reading thread failed")));
        assembled.and(read)
    })
}

/// Memory for its stack, or a process number for it, is not to be had.
fn no_thread(error: std::io::Error) -> std::io::Error {
    std::io::Error::other(format!("no more threads ({error}); try --threads 1, or raise `ulimit -v` and `ulimit -u`"))
}

fn read_blocks(
    mut blocks: Blocks<Counted>,
    to_workers: &SyncSender<Numbered<Block>>,
    buffers: &Receiver<Block>,
    tokens: &SyncSender<()>,
) -> std::io::Result<u64> {
    let mut number = 0;
    loop {
        let mut block = buffers.try_recv().unwrap_or_default();
        if !blocks.next(&mut block)? {
            return Ok(blocks.into_inner().read);
        }
        // A token per block under way; the assembler takes it back. Both ends close only when all is done.
        if tokens.send(()).is_err() || to_workers.send((number, block)).is_err() {
            return Ok(blocks.into_inner().read);
        }
        number += 1;
    }
}

fn scan_blocks(
    (scan, mut scanner): (Scan, Scanner),
    (blocks, rooms): (&Mutex<Receiver<Numbered<Block>>>, &Rooms),
    done: &Sender<Numbered<Scanned>>,
) {
    loop {
        let next = blocks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, block)) = next else { return };
        if let Some(room) = rooms.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            scanner.reuse(room);
        }
        let facts = scan_safely(scan, &mut scanner, &block, Follower::default());
        let failed = facts.is_err();
        if done.send((number, facts.map(|facts| (block, facts)))).is_err() || failed {
            return;
        }
    }
}

/// A worker does not know what the block before its own leaves open: where that is anything, the block is scanned again.
fn assemble_in_order(
    scanned: Receiver<Numbered<Scanned>>,
    (scan, mut scanner): (Scan, Scanner),
    (permits, rooms, give_back): (Receiver<()>, &Rooms, Sender<Block>),
    assembler: &mut Assembler,
) -> std::io::Result<()> {
    let mut early = BTreeMap::new();
    let mut open = Follower::default();
    let mut wanted = 0;
    for (number, block) in scanned {
        early.insert(number, block?);
        while let Some((block, mut facts)) = early.remove(&wanted) {
            if !open.is_empty() {
                assembler.meet(&mut facts);
                facts = scan_safely(scan, &mut scanner, &block, open)?;
            }
            open = std::mem::take(&mut facts.open);
            let _ = give_back.send(block); // the reader may be done and gone
            let room = assembler.absorb(facts);
            rooms.lock().unwrap_or_else(PoisonError::into_inner).push(room);
            wanted += 1;
            let _ = permits.recv();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn blocks(text: Vec<u8>) -> Blocks<Counted<'static>> {
        Blocks::new(Counted { reader: Box::new(Cursor::new(text)), read: 0, progress: None })
    }

    /// More blocks than may be under way: without the error, the reader would wait for a permit for ever.
    #[test]
    fn a_panic_over_a_block_is_an_error() {
        let scan: Scan = |scanner, block, open| {
            assert!(memchr::memmem::find(block.lines(), b"poison").is_none(), "a bug");
            scanner.scan(block, open)
        };
        let read = |text| together(blocks(text), scan, 2, &mut begun());
        let line = b"host:1:2 [0] NCCL INFO Using network IB\n";
        let many = 40 * Blocks::<Counted>::SIZE / line.len();
        for place in [0, many / 2, many] {
            let mut text = line.repeat(place);
            text.extend_from_slice(b"poison\n");
            text.extend(line.repeat(many - place));
            let error = read(text).expect_err("a failure");
            assert!(error.to_string().contains("bug"), "{error}");
        }
        assert!(read(line.repeat(many)).is_ok());
    }

    fn begun() -> Assembler {
        let mut assembler = Assembler::default();
        assembler.begin("log");
        assembler
    }

    /// Wordings beyond those that are remembered, tracebacks that go on behind other lines, hosts whose ranks say the same, torn
    /// names, versions behind drivers' and connections, in an order that no block's size divides.
    fn busy_log(torn: bool) -> String {
        let mut log = String::new();
        for i in 0..12_000_u32 {
            let (rank, letters) = (i % 7, format!("{:?}", i.to_be_bytes().map(|b| char::from(b'a' + b % 26))));
            let (host, pid) = (rank / 2 + i / 500 * 4, 100 + rank);
            let name = if torn && i % 211 == 0 { format!("sumn{host}") } else { format!("n{host}") };
            let line = match i % 19 {
                0 => format!("[rank{rank}]: Traceback (most recent call last):"),
                1..=3 => format!("[rank{}]:   File \"/x/train.py\", line {i}, in main", (i - i % 19) % 7),
                4 => format!("[rank{}]: Odd: text {i}", (i - 4) % 7),
                5 => format!("{name}:{pid}:{pid} [{rank}] NCCL INFO NET/Odd : {letters} of the host"),
                6 => format!("{name}:{pid}:{pid} [{rank}] NCCL INFO an odd message {letters}"),
                7 => format!("{name}:{pid}:{pid} [{rank}] NCCL INFO cudaDriverVersion 12020"),
                8 => format!("NCCL version 2.{}.3+cuda12.2", 10 + i % 3),
                9..=12 => format!(
                    "{name}:{pid}:{pid} [{rank}] NCCL INFO Channel {:02}/0 : {rank}[0] -> {}[0] via NET/IB/{}",
                    i % 4,
                    (rank + 1) % 7,
                    i % 97
                ),
                13 => format!("2026-11-23 10:00:00 - ERROR - {letters}"),
                14 => "Exception ignored in: <function f>".to_string(),
                15 => format!("[rank{rank}]: step {i} loss {}.5", 12_000 - i),
                16 => format!("    {letters}"),
                _ => format!("{letters} {i}"),
            };
            let _ = writeln!(log, "{line}");
        }
        log
    }

    #[test]
    fn an_answer_does_not_depend_on_threads_or_blocks() {
        let answer = |log: &str, size: usize, threads: usize| {
            let (blocks, mut assembler) = (blocks(log.as_bytes().to_vec()).sized(size), begun());
            let read = match threads {
                1 => alone(blocks, Scanner::scan, &mut assembler),
                _ => together(blocks, Scanner::scan, threads, &mut assembler),
            };
            assembler.end(read.expect("a log"));
            format!("{:#?}", assembler.finish())
        };
        let same = |one: &str, other: &str, how: (usize, usize)| {
            let differs = one.lines().zip(other.lines()).find(|(a, b)| a != b);
            assert_eq!((differs, one.len()), (None, other.len()), "size of blocks and threads: {how:?}");
        };
        let (plain, torn) = (busy_log(false), busy_log(true));
        let whole = answer(&plain, 64 << 20, 1);
        for (size, threads) in [(1 << 10, 4), (5_003, 2), (5_003, 8), (100_000, 3)] {
            same(&whole, &answer(&plain, size, 1), (size, 1));
            same(&whole, &answer(&plain, size, threads), (size, threads));
            // Which host a torn name is of, follows from the lines so far, which are counted by blocks.
            same(&answer(&torn, size, 1), &answer(&torn, size, threads), (size, threads));
        }
    }
}

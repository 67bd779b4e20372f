//! Reading with all cores: one thread reads blocks, workers scan them, the caller's thread assembles them in order.

use crate::assemble::Assembler;
use crate::facts::{BlockFacts, Event};
use crate::scan::Scanner;
use crate::source::{Block, Blocks, ReadError, Source, binary_kind, read_up_to};
use crate::{nccl_tests_json, own, perftest, torch};
use busbw_model::{InputKind, Run};
use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

/// How to read.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// Number of threads that scan; `None` for as many as there are cores.
    pub threads: Option<NonZeroUsize>,
    /// Called now and then with the number of bytes read since the last call.
    pub progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

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
    read(&sources, &ReadOptions { threads: NonZeroUsize::new(1), progress: None })
}

fn read_one(source: &Source, options: &ReadOptions, assembler: &mut Assembler) -> Result<u64, ReadError> {
    let mut reader = source.open()?;
    let mut start = vec![0; 64 << 10];
    let length = read_up_to(&mut reader, &mut start).map_err(|e| source.error(e))?;
    start.truncate(length);
    if torch::looks_like_pickle(&start) {
        return read_flight_dump(source, std::io::Cursor::new(start).chain(reader), assembler);
    }
    if let Some(kind) = binary_kind(&start) {
        return Err(ReadError::Binary { name: source.name(), kind });
    }
    let may_be_document = start.trim_ascii_start().starts_with(b"{");
    let mut reader: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(start).chain(reader));
    if may_be_document {
        let mut whole = Vec::new();
        (&mut reader).take(LARGEST_DOCUMENT).read_to_end(&mut whole).map_err(|e| source.error(e))?;
        if read_document(&whole, assembler) {
            return Ok(whole.len() as u64);
        }
        reader = Box::new(std::io::Cursor::new(whole).chain(reader));
    }
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let counted = Counted { reader, read: 0, progress: options.progress.clone() };
    let small = source.size().is_some_and(|size| size < Blocks::<Counted>::SIZE as u64);
    let read = if threads == 1 || small { alone(counted, assembler) } else { together(counted, threads, assembler) };
    read.map_err(|e| source.error(e))
}

/// Reads JSON that busbw, nccl-tests or perftest wrote; false when the text is something else.
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
        Err(reason) => assembler.problem(0, format!("flight recorder dump: {reason}")),
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

/// A block's facts; `None` when the scanner panicked over it. It is not used again.
fn scan_safely(scanner: &mut Scanner, block: &Block) -> Option<BlockFacts> {
    let scan = || {
        #[cfg(test)]
        tests::panic_over_poison(block.lines());
        scanner.scan(block.lines())
    };
    catch_unwind(AssertUnwindSafe(scan)).ok()
}

/// A bug of busbw's, told as an error: nobody should wait for a thread that is gone.
fn scanner_failed() -> std::io::Error {
    std::io::Error::other(
        "busbw failed over this input, which is a bug; cut the input in halves to find the line, and report it",
    )
}

/// One thread does everything.
fn alone(reader: Counted, assembler: &mut Assembler) -> std::io::Result<u64> {
    let mut blocks = Blocks::new(reader);
    let mut block = Block::default();
    let mut scanner = Scanner::new(0);
    while blocks.next(&mut block)? {
        let facts = scan_safely(&mut scanner, &block).ok_or_else(scanner_failed)?;
        scanner.reuse(assembler.absorb(facts));
    }
    Ok(blocks.into_inner().read)
}

/// Room of events that were assembled, for scanners to use again.
type Rooms = Mutex<Vec<Vec<Event>>>;

/// A block on its way to a worker, and back for its buffer to be used again.
type Numbered<T> = (u64, T);

/// Blocks that are read, scanned or wait to be assembled, at most: with their facts about 1 MB each.
const MOST_UNDER_WAY: usize = 96;

/// A thread reads, `threads` scan, this one assembles. Blocks under way are bounded, and so is memory.
fn together(reader: Counted, threads: usize, assembler: &mut Assembler) -> std::io::Result<u64> {
    let under_way = (8 * threads).min(MOST_UNDER_WAY);
    let (to_workers, blocks) = sync_channel::<Numbered<Block>>(under_way);
    let (to_assembler, scanned) = channel::<Numbered<Option<BlockFacts>>>();
    let (give_back, buffers) = channel::<Block>();
    let (tokens, permits) = sync_channel::<()>(under_way);
    let blocks = Mutex::new(blocks);
    let rooms = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let reading =
            Builder::new().spawn_scoped(scope, move || read_blocks(reader, &to_workers, &buffers, &tokens))?;
        for worker in 0..threads {
            let (blocks, rooms) = (&blocks, &rooms);
            let (to_assembler, give_back) = (to_assembler.clone(), give_back.clone());
            let work = move || scan_blocks(Scanner::new(worker), (blocks, rooms), &to_assembler, &give_back);
            Builder::new().spawn_scoped(scope, work)?;
        }
        drop((to_assembler, give_back));
        // Both channels end here, whatever happened: who still sends on them stops, and the scope's threads with it.
        let assembled = assemble_in_order(scanned, (permits, &rooms), assembler);
        let read = reading.join().unwrap_or_else(|_| Err(std::io::Error::other("the reading thread failed")));
        assembled.and(read)
    })
}

fn read_blocks(
    reader: Counted,
    to_workers: &SyncSender<Numbered<Block>>,
    buffers: &Receiver<Block>,
    tokens: &SyncSender<()>,
) -> std::io::Result<u64> {
    let mut blocks = Blocks::new(reader);
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
    mut scanner: Scanner,
    (blocks, rooms): (&Mutex<Receiver<Numbered<Block>>>, &Rooms),
    done: &Sender<Numbered<Option<BlockFacts>>>,
    give_back: &Sender<Block>,
) {
    loop {
        let next = blocks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, block)) = next else { return };
        if let Some(room) = rooms.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            scanner.reuse(room);
        }
        let facts = scan_safely(&mut scanner, &block);
        let failed = facts.is_none();
        if done.send((number, facts)).is_err() || failed {
            return;
        }
        let _ = give_back.send(block); // the reader may be done and gone
    }
}

fn assemble_in_order(
    scanned: Receiver<Numbered<Option<BlockFacts>>>,
    (permits, rooms): (Receiver<()>, &Rooms),
    assembler: &mut Assembler,
) -> std::io::Result<()> {
    let mut early = BTreeMap::new();
    let mut wanted = 0;
    for (number, facts) in scanned {
        early.insert(number, facts.ok_or_else(scanner_failed)?);
        while let Some(facts) = early.remove(&wanted) {
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

    pub(super) fn panic_over_poison(lines: &[u8]) {
        assert!(memchr::memmem::find(lines, b"poison").is_none(), "a bug");
    }

    fn read_with_bug(text: Vec<u8>, threads: usize) -> std::io::Result<u64> {
        let reader = Counted { reader: Box::new(std::io::Cursor::new(text)), read: 0, progress: None };
        let mut assembler = Assembler::default();
        assembler.begin("log");
        together(reader, threads, &mut assembler)
    }

    /// More blocks than may be under way: without the error, the reader would wait for a permit for ever.
    #[test]
    fn a_panic_over_a_block_is_an_error() {
        let line = b"host:1:2 [0] NCCL INFO Using network IB\n";
        let blocks = 40 * Blocks::<Counted>::SIZE / line.len();
        for place in [0, blocks / 2, blocks] {
            let mut text = line.repeat(place);
            text.extend_from_slice(b"poison\n");
            text.extend(line.repeat(blocks - place));
            let error = read_with_bug(text, 2).expect_err("a failure");
            assert!(error.to_string().contains("bug"), "{error}");
        }
        assert!(read_with_bug(line.repeat(blocks), 2).is_ok());
    }
}

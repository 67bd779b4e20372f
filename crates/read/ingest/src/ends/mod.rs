//! How processes end: the last line of a traceback, a crash handler, a launcher's report of an exit status.
//!
//! [`read`] looks at one line without its labels and tells what it is by its form. [`EndReader`] takes these in the order of the
//! input and puts together what stands on several lines.

mod forms;
mod python;

use busbw_model::{Ended, RankEnd, SourceLine};
pub(crate) use forms::{is_of_crash, is_of_nccl_program};
pub(crate) use python::{Follower, beginning, exception};
use rustc_hash::FxHashMap;

/// More ends tell nothing new.
const MOST_KEPT: usize = 10_000;
/// More ranks than this no job has; all ends together name no more.
const MOST_RANKS: usize = 1 << 20;
/// Lines of known wording that show that a process went on: other ranks print a step or two before they notice, and a list of
/// packages has lines of one wording.
pub(crate) const MOST_SHOWN: usize = 3;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EndLine {
    /// `Traceback (most recent call last):`, and whether a logger's warning or error stands before it.
    Header { logged: bool },
    /// `  File "/x/train.py", line 88, in main`: `train.py:88`; whether it is one of Python's own helpers, whether
    /// stacks begin there, and those of `multiprocessing`.
    Frame { at: String, helper: bool, entry: bool, child: bool },
    /// `ValueError: text`, and whether it ends a traceback.
    Exception { kind: String, message: String, traceback: bool },
    /// The traceback that follows ends no process.
    Survived,
    /// The next traceback tells of the exception that came of the last.
    Chained,
    /// `-- Process 1 terminated with the following error:` of torch.multiprocessing, `rank      : 3 (local_rank: 3)` of torchrun:
    /// whose end follows.
    Whose(u32),
    /// `[ 1] /lib/libnccl.so.2(+0x14e63f)[0x7bdb0174e63f]`: a frame of the crash that was told last.
    Library(String),
    /// `  what():  text`.
    What(String),
    /// An end that a line tells wholly.
    Ended(RankEnd),
}

/// What a line is that ends a traceback of its stream (`last`), or holds one of the words of ends; its labels left out.
pub(crate) fn read(body: &str, last: bool) -> Option<EndLine> {
    python::read(body, last).or_else(|| forms::read(body.trim_start()))
}

/// The rank in a stream's label: `rank3`, `1,3`, `3`, `head, rank=0, pid=1`; and the process.
fn named(stream: &str) -> (Option<u32>, Option<u64>) {
    let after = |key: &str| stream.split_once(key).and_then(|(_, rest)| crate::text::leading::<u64>(rest));
    let number = stream.strip_prefix("rank").or_else(|| stream.rsplit(',').next()).unwrap_or(stream);
    let rank = after("rank=").and_then(|rank| u32::try_from(rank).ok()).or_else(|| number.parse().ok());
    (rank, after("pid="))
}

/// A traceback whose exception follows.
#[derive(Debug, Default)]
struct Traceback {
    /// The innermost frame so far.
    at: Option<String>,
    /// Its outermost frame is a helper's, which goes on.
    helper: bool,
    /// Its outermost frame is where `multiprocessing` starts a process.
    child: bool,
    headed: bool,
    /// A logger wrote it.
    logged: bool,
    /// It does not begin where a process or thread does: a handler printed it.
    caught: bool,
}

/// Puts ends together, by stream.
#[derive(Debug, Default)]
pub(crate) struct EndReader {
    found: Vec<RankEnd>,
    streams: Vec<Box<str>>,
    ranks: usize,
    /// Each stream's open traceback.
    open: FxHashMap<Box<str>, Traceback>,
    /// Streams whose next traceback ends no process, and whether it has begun.
    survived: FxHashMap<Box<str>, bool>,
    /// Whose end follows.
    whose: Option<u32>,
    /// The last lines of known wording of each stream.
    known: FxHashMap<Box<str>, Vec<u64>>,
}

impl EndReader {
    /// Takes what a line of a stream is.
    pub fn feed(&mut self, stream: &str, line: EndLine, source: SourceLine) {
        match line {
            EndLine::Header { logged } => {
                let logged = logged || self.open.get(stream).is_some_and(|chained| chained.logged);
                self.open.insert(stream.into(), Traceback { logged, headed: true, ..Traceback::default() });
                // The traceback of a marker begins; one after it is another.
                if self.survived.get_mut(stream).is_some_and(|begun| std::mem::replace(begun, true)) {
                    self.survived.remove(stream);
                }
            }
            EndLine::Survived => drop(self.survived.insert(stream.into(), false)),
            EndLine::Frame { at, helper, entry, child } => {
                let open = self.open.entry(stream.into()).or_default();
                if open.at.replace(at).is_none() {
                    (open.helper, open.child) = (helper, child);
                    open.logged &= !entry;
                    // PyTorch labels what nobody caught (`_distributed_excepthook` of distributed_c10d.py, 2.3 and later): `[rank3]: Traceback …`.
                    let uncaught = entry || self.whose.is_some() || stream.starts_with("rank");
                    open.caught = open.headed && !uncaught;
                }
            }
            EndLine::Exception { kind, message, traceback } => {
                let Traceback { at, helper, child, logged, caught, .. } = self.open.remove(stream).unwrap_or_default();
                if self.survived.remove(stream).is_some() || helper {
                    return;
                }
                let logged = logged || caught && !forms::is_final(&kind, &message);
                let how = match (kind.as_str(), forms::of_child(at.as_deref(), &message)) {
                    ("KeyboardInterrupt", _) => Ended::Interrupted("Ctrl-C".into()),
                    (_, Some(how)) => how,
                    _ => Ended::Exception { kind, message, traceback: traceback || at.is_some(), at },
                };
                self.keep(stream, RankEnd { logged, child, source, ..RankEnd::of(how) });
            }
            EndLine::Chained => {
                if let Some(index) = self.streams.iter().rposition(|known| &**known == stream) {
                    self.streams.remove(index);
                    let logged = self.found.remove(index).logged;
                    self.open.insert(stream.into(), Traceback { logged, ..Traceback::default() });
                }
            }
            EndLine::Whose(rank) => self.whose = Some(rank),
            EndLine::Library(name) => {
                if let Some(Ended::Crash { library, .. }) = self.found.last_mut().map(|end| &mut end.how) {
                    library.get_or_insert(name);
                }
            }
            EndLine::What(text) => {
                if let Some(Ended::Crash { message, .. }) = self.found.last_mut().map(|end| &mut end.how) {
                    *message = text;
                }
            }
            EndLine::Ended(end) => self.keep(stream, RankEnd { source, ..end }),
        }
    }

    fn keep(&mut self, stream: &str, mut end: RankEnd) {
        let whose = self.whose.take();
        if let Some(Ended::Crash { what, .. }) = self.found.last_mut().map(|end| &mut end.how)
            && let Ended::Crash { what: named, .. } = &end.how
            && what.is_empty()
        {
            *what = named.clone(); // the handler's first line has no name; `Signal: Segmentation fault (11)` follows
            return;
        }
        if self.found.len() >= MOST_KEPT {
            return;
        }
        let (rank, pid) = named(stream);
        if end.ranks.is_empty() {
            end.ranks.extend(whose.or(rank));
        }
        end.ranks.truncate(MOST_RANKS - self.ranks);
        self.ranks += end.ranks.len();
        end.pid = end.pid.or(pid);
        self.found.push(end);
        self.streams.push(stream.into());
    }

    /// Lines of a stream whose wording is known: a loop that goes on. Of each block the last ones.
    pub fn known(&mut self, stream: &str, lines: impl Iterator<Item = u64>) {
        let kept = self.known.entry(stream.into()).or_default();
        kept.extend(lines);
        kept.sort_unstable();
        let more = kept.len().saturating_sub(MOST_SHOWN);
        kept.drain(..more);
    }

    /// The ends in order. `path`: torchrun writes a file per rank, `attempt_0/3/stderr.log`.
    pub fn finish(mut self, path: &str) -> Vec<RankEnd> {
        let of_path = rank_of_path(path);
        for (end, stream) in self.found.iter_mut().zip(&self.streams) {
            let lines = self.known.get(stream).map_or(&[][..], |lines| lines);
            let after = lines.iter().filter(|line| **line > end.source.place.line).count();
            // Without a label, what follows an error of NCCL's is another program's: its communicator is gone.
            let survives = |kind: &str| !(stream.is_empty() && kind.ends_with("DistBackendError"));
            let survives = match &end.how {
                Ended::Exception { kind, .. } => survives(kind),
                _ => end.command.is_some(), // a shell tells of a child, and the stream is of others too
            };
            end.went_on = after >= MOST_SHOWN && survives;
            if end.ranks.is_empty() {
                end.ranks.extend(of_path);
            }
        }
        self.found
    }
}

fn rank_of_path(path: &str) -> Option<u32> {
    let (folder, name) = path.rsplit_once('/')?;
    let is_stream = name.starts_with("stderr") || name.starts_with("stdout");
    is_stream.then(|| folder.rsplit('/').next()?.parse().ok())?
}

#[cfg(test)]
mod tests;

//! How processes end: the last line of a traceback, a crash handler, a launcher's report of an exit status.
//!
//! [`read`] looks at one line without its labels and tells what it is by its form. [`EndReader`] takes these in the order of the
//! input and puts together what stands on several lines.

mod codes;
mod forms;
mod hpc;
mod jobs;
mod launchers;
mod objects;
mod python;
mod reports;
mod runners;

use crate::label::{self, Streams, Whose};
use crate::logger;
use busbw_model::{CollectiveCall, EndTeller, Ended, LogLevel, ProgramFrame, RankEnd, RankOutput, SourceLine};
pub(crate) use codes::by_failure;
pub(crate) use forms::{is_of_crash, is_of_nccl_program};
use jobs::Listed;
pub(crate) use jobs::{is_of_step, is_row_of_slurm};
pub(crate) use objects::ends_in;
pub(crate) use python::{Follower, beginning, exception, joined, may_be_logged};
use rustc_hash::FxHashMap;

/// A service of the machine, of which [`crate::host`] tells.
pub(crate) const FABRIC_MANAGER: &str = "nvidia-fabricmanager";
/// More ends add nothing new.
const MOST_KEPT: usize = 10_000;
/// Lines between two containers of a pod: another one that runs may be the one with the ranks.
const A_POD: u64 = 60;
/// A crash and its reason stand together.
const LINES_OF_A_REASON: u64 = 3;
/// Frames of a program above the one that calls a collective.
const MOST_FRAMES: usize = 16;
/// More ranks than this no job has; all ends together name no more.
const MOST_RANKS: usize = 1 << 20;
/// Lines of known wording that show that a process went on: other ranks print a step or two before they notice, and a list of
/// packages has lines of one wording.
pub(crate) const MOST_SHOWN: usize = 3;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EndLine {
    /// `Traceback (most recent call last):`, and whether a logger's warning or error stands before it.
    Header {
        logged: bool,
    },
    /// `  File "/x/train.py", line 88, in main`; whether it is one of Python's own helpers, whether
    /// stacks begin there, and those of `multiprocessing`; whether a parent waits for its children there; whether it is PyTorch's, and which
    /// collective of its it is in.
    Frame {
        frame: ProgramFrame,
        helper: bool,
        entry: bool,
        child: bool,
        relays: bool,
        of_torch: bool,
        collective: Option<String>,
    },
    /// `ValueError: text`, and whether it ends a traceback.
    Exception {
        kind: String,
        message: String,
        traceback: bool,
    },
    /// The traceback that follows ends no process.
    Survived,
    /// The next traceback shows the exception that came of the last, and whether it was raised from that.
    Chained {
        from: bool,
    },
    /// `Root Cause (first observed failure):` of torchrun: the end that follows came first.
    First,
    /// `host      : h2` of torchrun: where the end that follows was.
    Host(String),
    /// `-- Process 1 terminated with the following error:` of torch.multiprocessing, `rank      : 3 (local_rank: 3)` of torchrun:
    /// whose end follows, and its number on its host.
    Whose(u32, Option<u32>),
    /// Of whom the lines of a list speak that follow.
    Listed(Listed),
    /// `[ 1] /lib/libnccl.so.2(+0x14e63f)[0x7bdb0174e63f]`: a frame of the crash that was told last.
    Library(String),
    /// `  what():  text`.
    What(String),
    /// The exception that the message of the one above quotes: `BackendCompilerFailed: backend='inductor' raised:`.
    Quoted(String),
    /// The reason of the crash in a line above.
    Reason(String),
    /// A launcher starts so many processes, and one of them left with status 0.
    Started(u64),
    LeftWell,
    /// An end that a line shows wholly.
    Ended(Box<RankEnd>),
}

/// What a line is that ends a traceback of its stream (`last`), or holds one of the words of ends; its labels left out.
pub(crate) fn read(body: &str, last: bool) -> Option<EndLine> {
    let server = || forms::server(body.trim_start()).map(|end| EndLine::Ended(Box::new(end))).filter(|_| !last);
    server().or_else(|| python::read(body, last)).or_else(|| forms::read(body.trim_start()))
}

/// The end that a program's logger reports at a level for failures. PyTorch's and launchers' have forms of their own.
pub(crate) fn logged(text: &str, is_of_program: impl Fn(&str) -> bool) -> Option<EndLine> {
    let (_, message) = logger::read(text).filter(|(level, _)| *level == LogLevel::Error && is_of_program(text))?;
    let (end, logged) = match python::read(message, false).or_else(|| forms::read(message))? {
        EndLine::Exception { kind, message, .. } => {
            let logged = !forms::is_final(&kind, &message);
            (RankEnd::of(Ended::Exception { kind, message, at: None, traceback: false }), logged)
        }
        EndLine::Ended(end) => (*end, true),
        _ => return None,
    };
    Some(EndLine::Ended(Box::new(RankEnd { logged, ..end })))
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
    /// The innermost frame so far, and its line.
    at: Option<String>,
    frame: SourceLine,
    /// The innermost frame outside PyTorch, and the collective of PyTorch's that it called.
    call: CollectiveCall,
    /// The frames outside PyTorch, the outermost first.
    frames: Vec<ProgramFrame>,
    /// Its outermost frame is a helper's, which goes on.
    helper: bool,
    /// Its outermost frame is where `multiprocessing` starts a process.
    child: bool,
    /// Its innermost frame is where a parent waits for its children.
    relays: bool,
    headed: bool,
    /// A logger wrote it.
    logged: bool,
    /// Its process said that it fails of it.
    fatal: bool,
    /// It does not begin where a process or thread does: a handler printed it.
    caught: bool,
    /// The exception during whose handling its own was raised, and whether it was raised from that.
    during: Option<Box<RankEnd>>,
    from: bool,
}

impl Traceback {
    /// Whether the output failed where it ends: in a traceback, or behind the exception during whose handling one follows.
    fn shows_a_failure(&self) -> bool {
        (self.at.is_some() || self.during.is_some()) && !self.helper
    }
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
    /// Whose end follows, where, and whether torchrun saw it first.
    whose: Option<(u32, Option<u32>)>,
    host: Option<String>,
    first: bool,
    /// Processes that a launcher started, and those that left with status 0.
    started: u64,
    left_well: u64,
    /// The unit of systemd's that was listed last; whether a container waits for its next run, and whether its last is told.
    unit: Option<String>,
    waits: bool,
    of_last: bool,
    /// Where containers run, by `kubectl describe pod`.
    running: Vec<u64>,
    numbers: Streams,
    outputs: Vec<Output>,
    /// The last line of a library's in a block that holds no line of the program itself.
    heard: Option<SourceLine>,
}

/// What a stream printed.
#[derive(Debug, Default)]
struct Output {
    stream: Box<str>,
    /// The last line that is of no traceback.
    last: Option<SourceLine>,
    /// The last lines of known wording.
    known: Vec<u64>,
}

impl EndReader {
    /// Takes what a line of a stream is.
    pub fn feed(&mut self, stream: &str, line: EndLine, source: SourceLine) {
        match line {
            EndLine::Header { logged } => {
                let chained = self.open.remove(stream).unwrap_or_default();
                let fatal = self.is_fatal(stream, &source) || chained.fatal;
                let logged = !fatal && (logged || chained.logged);
                let Traceback { during, from, .. } = chained;
                let headed = Traceback { logged, fatal, during, from, headed: true, ..Traceback::default() };
                self.open.insert(stream.into(), headed);
                // The traceback of a marker begins; one after it is another.
                if self.survived.get_mut(stream).is_some_and(|begun| std::mem::replace(begun, true)) {
                    self.survived.remove(stream);
                }
            }
            EndLine::Survived => drop(self.survived.insert(stream.into(), false)),
            EndLine::Frame { frame, helper, entry, child, relays, of_torch, collective } => {
                let at = format!("{}:{}", frame.file, frame.line);
                let open = self.open.entry(stream.into()).or_default();
                (open.relays, open.frame) = (relays, source);
                if !of_torch {
                    open.call = CollectiveCall { operation: None, at: Some(at.clone()) };
                    if open.frames.len() < MOST_FRAMES {
                        open.frames.push(frame);
                    }
                } else if collective.is_some() {
                    open.call.operation = collective;
                }
                if open.at.replace(at).is_none() {
                    (open.helper, open.child) = (helper, child);
                    open.logged &= !entry;
                    // PyTorch labels what nobody caught (`_distributed_excepthook` of distributed_c10d.py, 2.3 and later): `[rank3]: Traceback …`.
                    let uncaught = entry || open.fatal || self.whose.is_some() || stream.starts_with("rank");
                    open.caught = open.headed && !uncaught;
                }
            }
            EndLine::Exception { kind, message, traceback } => {
                // A name alone ends a traceback whose header is not there: Ray prints that of a task so, and copies begin anywhere.
                let is_alone = message.is_empty() && !traceback && kind != "KeyboardInterrupt";
                if is_alone && self.open.get(stream).is_none_or(|open| open.at.is_none()) {
                    return;
                }
                let open = self.open.remove(stream).unwrap_or_default();
                let Traceback { at, call, frames, helper, child, relays, logged, caught, during, from, .. } = open;
                // Who handles an exception by leaving leaves because of it.
                let during = match during {
                    Some(of) if kind == "SystemExit" => return self.keep(stream, RankEnd { caught: false, ..*of }),
                    during => during,
                };
                let raised_from = during.filter(|_| from).map(|of| {
                    let RankEnd { raised_from, how, .. } = *of;
                    raised_from.unwrap_or_else(|| Box::new(how))
                });
                if self.survived.remove(stream).is_some() || helper {
                    return;
                }
                let caught = caught && !forms::is_final(&kind, &message);
                let logged = logged && !forms::is_of_dead(&kind);
                let how = match (kind.as_str(), forms::of_child(at.as_deref(), &message)) {
                    ("KeyboardInterrupt", _) => Ended::Interrupted(Ended::CTRL_C.into()),
                    (_, Some(how)) => how,
                    // PyTorch labels what nobody caught; a copy may lack the frames.
                    _ => {
                        let traceback = traceback || at.is_some() || stream.starts_with("rank");
                        Ended::Exception { kind, message, traceback, at }
                    }
                };
                let call = call.at.is_some().then_some(call);
                // Scripts ask `ray status` until the head is up.
                let of_ray = frames.first().is_some_and(|frame| frame.file == "ray" && frame.function == "<module>");
                let told_by = if of_ray { EndTeller::Runner } else { EndTeller::Job };
                let end = RankEnd { told_by, raised_from, logged, caught, ..RankEnd::of(how) };
                self.keep(stream, RankEnd { child, relays, call, frames, source, ..end });
            }
            EndLine::Chained { from } => {
                if let Some(index) = self.streams.iter().rposition(|known| &**known == stream) {
                    self.streams.remove(index);
                    let during = self.found.remove(index);
                    let (logged, fatal) = (during.logged, !during.is_handled());
                    let during = Some(Box::new(during));
                    self.open.insert(stream.into(), Traceback { logged, fatal, during, from, ..Traceback::default() });
                }
            }
            EndLine::Whose(rank, local) => self.whose = Some((rank, local)),
            EndLine::First => self.first = true,
            EndLine::Host(host) => self.host = Some(host),
            EndLine::Listed(Listed::Unit(unit)) => self.unit = Some(unit),
            EndLine::Listed(Listed::State { waits, runs }) => {
                (self.waits, self.of_last) = (waits, false);
                self.running.extend(runs.then_some(source.place.line));
            }
            EndLine::Listed(Listed::LastState) => self.of_last = !self.waits,
            // Each host says it of all, before any process leaves.
            EndLine::Started(all) => (self.started, self.left_well) = (all, 0),
            EndLine::LeftWell => {
                self.left_well += 1;
                if self.left_well == self.started {
                    let end = RankEnd { told_by: EndTeller::Launcher, source, ..RankEnd::of(Ended::Success) };
                    self.keep(stream, end);
                }
            }
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
            EndLine::Quoted(text) => {
                if let Some(Ended::Exception { message, .. }) = self.found.last_mut().map(|end| &mut end.how)
                    && message.ends_with(':')
                {
                    message.push_str(&format!(" {text}"));
                }
            }
            EndLine::Reason(text) => {
                let is_below = |end: &RankEnd| source.place.line - end.source.place.line <= LINES_OF_A_REASON;
                let last = self.found.last_mut().filter(|end| is_below(end)).map(|end| &mut end.how);
                if let Some(Ended::Crash { message, .. }) = last
                    && message.is_empty()
                {
                    *message = text;
                }
            }
            EndLine::Ended(end) => {
                let mut end = RankEnd { source, ..*end };
                if self.names(&mut end) {
                    self.keep(stream, end);
                }
            }
        }
    }

    /// Tells of an end in a list whose it is; false where a machine's own facts have it.
    fn names(&mut self, end: &mut RankEnd) -> bool {
        let line = end.source.text.trim_start();
        // A container that did not start has this one (`StartError`): it runs now.
        if self.of_last && line.starts_with("Exit Code:") && line.ends_with(" 128") {
            return false;
        }
        if self.of_last && line.starts_with("Exit Code:") {
            end.told_by = EndTeller::List;
        }
        let unit = self.unit.take_if(|_| line.starts_with("Active: "));
        let is_of_machine = unit.as_ref().is_some_and(|unit| unit == FABRIC_MANAGER);
        end.command = unit.or(end.command.take());
        !is_of_machine
    }

    /// Whether the line above says that the process of a stream fails: it fails of the traceback that follows.
    fn is_fatal(&self, stream: &str, source: &SourceLine) -> bool {
        let above = self.found.last().zip(self.streams.last());
        let above = above.filter(|(end, _)| end.how != Ended::Success);
        above.is_some_and(|(end, of)| &**of == stream && end.source.place.line + 1 == source.place.line)
    }

    fn keep(&mut self, stream: &str, mut end: RankEnd) {
        let (whose, host, first) = (self.whose.take(), self.host.take(), std::mem::take(&mut self.first));
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
            end.ranks.extend(whose.map(|(rank, _)| rank).or(rank));
        }
        end.ranks.truncate(MOST_RANKS - self.ranks);
        self.ranks += end.ranks.len();
        end.pid = end.pid.or(pid);
        let of_label = || label::of_stream(stream).and_then(label::Whose::on_host);
        end.local = end.local.or(whose.and_then(|(_, local)| local)).or_else(of_label);
        (end.host, end.first) = (end.host.or(host), first);
        self.found.push(end);
        self.streams.push(stream.into());
    }

    /// Lines of a stream whose wording is known: a loop that goes on. Of each block the last ones.
    pub fn known(&mut self, stream: &str, lines: impl Iterator<Item = u64>) {
        let kept = &mut self.output(stream).known;
        kept.extend(lines);
        kept.sort_unstable();
        let more = kept.len().saturating_sub(MOST_SHOWN);
        kept.drain(..more);
    }

    /// The last line of a stream in a block that is of no traceback.
    pub fn last(&mut self, stream: &str, source: SourceLine, of_program: bool) {
        match of_program {
            true => self.output(stream).last = Some(source),
            false if stream.is_empty() => self.heard = Some(source),
            false => {}
        }
    }

    fn output(&mut self, stream: &str) -> &mut Output {
        let number = self.numbers.number(stream).unwrap_or_else(|new| {
            self.outputs.push(Output { stream: stream.into(), ..Output::default() });
            new
        });
        &mut self.outputs[number as usize]
    }

    /// The output of each rank that a label or the path tells, and of all others together. A file of one rank's may have lines without a label.
    fn outputs(&mut self, of_path: Option<Whose>) -> Vec<RankOutput> {
        let mut found: Vec<RankOutput> = Vec::new();
        for Output { stream, last, .. } in &mut self.outputs {
            let whose = label::of_stream(stream).or(of_path);
            let Some(last) = last.take() else { continue };
            let (rank, local) = (whose.and_then(Whose::in_job), whose.and_then(Whose::on_host));
            found.push(RankOutput { rank, local, host: None, last });
        }
        let of_library = self.heard.take().filter(|_| found.is_empty() && self.found.is_empty());
        if let (Some(whose), Some(last)) = (of_path, of_library) {
            found.push(RankOutput { rank: whose.in_job(), local: whose.on_host(), host: None, last });
        }
        let whose = |output: &RankOutput| (output.rank, output.local);
        found.sort_by_key(|output| (whose(output), std::cmp::Reverse(output.last.place)));
        found.dedup_by_key(|output| whose(output));
        found
    }

    /// Tracebacks that the output of their streams ends in: the process failed, and somebody cut off of what, unless it stands in front. Whether it
    /// failed of one whose beginning lacks as well, nobody sees.
    fn cut_off(&mut self) {
        let mut open: Vec<_> = self.open.drain().filter(|(_, open)| open.shows_a_failure()).collect();
        open.sort_by_key(|(_, open)| open.frame.place);
        for (stream, open) in open {
            let last = self.numbers.known(&stream).and_then(|known| self.outputs[known as usize].last.as_ref());
            // Below a frame stands its line of code, and marks below that: they are known as such behind a header only.
            let of_frame = if open.headed { 0 } else { 2 };
            let goes_on = last.is_some_and(|last| {
                let (last, frame) = (last.place, open.frame.place);
                last > frame && last.line > frame.line + of_frame
            });
            if !goes_on && !open.logged && !open.caught && !self.survived.contains_key(&stream) {
                let Traceback { call, frames, child, relays, frame: source, headed, during, .. } = open;
                let (call, caught) = (call.at.is_some().then_some(call), !headed);
                let cut = || RankEnd { child, relays, caught, call, frames, source, ..RankEnd::of(Ended::Exit(None)) };
                let end = during.map_or_else(cut, |during| RankEnd { caught: false, ..*during });
                self.keep(&stream, end);
            }
        }
    }

    /// The ends in order, and the output of ranks. `path`: some write a file per rank.
    pub fn finish(mut self, path: &str) -> (Vec<RankEnd>, Vec<RankOutput>) {
        let of_path = label::of_path(path);
        self.cut_off();
        let outputs = self.outputs(of_path);
        for (end, stream) in self.found.iter_mut().zip(&self.streams) {
            if jobs::is_of_container(end)
                && self.running.iter().any(|line| line.abs_diff(end.source.place.line) < A_POD)
            {
                end.told_by = EndTeller::List;
            }
            let lines = self.numbers.known(stream).map_or(&[][..], |known| &self.outputs[known as usize].known);
            let after = lines.iter().filter(|line| **line > end.source.place.line).count();
            // Without a label, what follows an error of NCCL's is another program's: its communicator is gone.
            let survives = |kind: &str| !(stream.is_empty() && kind.ends_with("DistBackendError"));
            let survives = match &end.how {
                Ended::Exception { kind, .. } => survives(kind),
                Ended::Interrupted(by) if by == Ended::CTRL_C => true,
                _ => end.command.is_some() || end.told_by == EndTeller::Runner, // a shell tells of a child, and the stream is of others too
            };
            end.went_on = after >= MOST_SHOWN && survives;
            if end.ranks.is_empty() && end.local.is_none() {
                end.ranks.extend(of_path.and_then(Whose::in_job));
                end.local = of_path.and_then(Whose::on_host);
            }
        }
        (self.found, outputs)
    }
}

#[cfg(test)]
mod tests;

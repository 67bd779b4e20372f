//! Reads stacks: `py-spy dump` (with `--native` too), gdb's `thread apply all bt`, and Python's faulthandler; and which processes are stopped, or do not end.

use crate::label::{self, Whose};
use crate::text::{TextLine, leading};
use busbw_model::{Frame, SourceLine, Stack, StoppedProcess, UnendedLauncher};
use rustc_hash::{FxHashMap, FxHashSet};

/// More threads, or deeper stacks, add nothing new.
const MOST_STACKS: usize = 4096;
const MOST_FRAMES: usize = 256;

/// Collects stacks.
#[derive(Debug, Default)]
pub(crate) struct StackReader {
    pid: Option<u64>,
    /// The stack that a stream's next frame belongs to.
    open: FxHashMap<Box<str>, usize>,
    /// The last thread of faulthandler's dump in a stream, which is the main thread if none follows.
    last: FxHashMap<Box<str>, usize>,
    /// Streams of processes that crashed: what they show is not where they wait.
    crashed: FxHashSet<Box<str>>,
    found: Vec<Stack>,
    stopped: Vec<StoppedProcess>,
    /// A launcher that was told to end its ranks.
    asked: Option<SourceLine>,
    /// Where `ps` has the number and the state of a process: which word of a row.
    ps: Option<(usize, usize)>,
}

impl StackReader {
    /// Whether a line may be of a stack.
    pub fn may_belong(text: &[u8]) -> bool {
        text.starts_with(b"Thread ")
            || text.starts_with(b"Current thread ")
            || text.starts_with(CRASHED.as_bytes())
            || text.starts_with(b"Timeout (")
            || text.trim_ascii_start().starts_with(FILE.as_bytes())
            || text.starts_with(b"Process ")
            || text.starts_with(b"State:")
            || text.starts_with(b"Pid:")
            || text.starts_with(b"/proc/")
            || is_row_of_ps(text)
            || text.starts_with(b"    ") && text.trim_ascii_end().ends_with(b")")
            || text.starts_with(b"#") && text.get(1).is_some_and(u8::is_ascii_digit)
    }

    /// Takes a line; true when it is of a stack.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim_end();
        if let Some((pid, _)) = text.strip_prefix("Process ").and_then(|rest| rest.split_once(": ")) {
            self.pid = pid.parse().ok();
            self.open.remove(line.stream);
            return self.pid.is_some();
        }
        // `/proc/PID/status`, proc_pid_status(5): the number stands below the state.
        if let Some(state) = text.strip_prefix("State:") {
            let stopped = matches!(state.trim(), "T (stopped)" | "t (tracing stop)");
            if stopped && self.stopped.len() < MOST_STACKS {
                let source = SourceLine::new(line.place, line.text);
                self.stopped.push(StoppedProcess { rank: None, pid: self.pid, source });
            }
            return stopped;
        }
        if let Some(pid) = text.strip_prefix("Pid:") {
            let unknown = self.stopped.last_mut().filter(|stopped| stopped.pid.is_none());
            return unknown.is_some_and(|stopped| {
                stopped.pid = pid.trim().parse().ok();
                true
            });
        }
        // torch/distributed/elastic/agent/server/api.py
        if text.contains(" death signal, shutting down workers") {
            self.asked = Some(SourceLine::new(line.place, line.text));
            return false;
        }
        // torch/distributed/elastic/multiprocessing/api.py: a process that runs ends at once.
        if let Some((_, rest)) = text.split_once("Unable to shutdown process ") {
            let pid = rest.split_once(" via ").and_then(|_| leading(rest));
            self.stopped.push(StoppedProcess { rank: None, pid, source: SourceLine::new(line.place, line.text) });
            return false;
        }
        if self.row_of_ps(line) {
            return true;
        }
        if text.starts_with(CRASHED) {
            self.crashed.insert(line.stream.into());
            return false;
        }
        // Python/traceback.c, faulthandler.c: a dump shows the newest thread first; the time-out of `dump_traceback_later` begins another one.
        if text.starts_with("Timeout (") {
            self.last.remove(line.stream);
            return false;
        }
        if is_of_faulthandler(text) {
            self.begin(line, "MainThread".into());
            let newer = self.open.get(line.stream).and_then(|index| self.last.insert(line.stream.into(), *index));
            if let Some(stack) = newer.and_then(|index| self.found.get_mut(index)) {
                stack.thread = "thread".into();
            }
            return true;
        }
        if let Some(thread) = thread(text) {
            self.begin(line, thread);
            return true;
        }
        // gdb's `bt` has no line above its first frame.
        let open = self.open.get(line.stream).and_then(|index| self.found.get(*index));
        if text.starts_with(FIRST_FRAME) && open.is_none_or(|stack| !stack.frames.is_empty()) {
            self.begin(line, "1".into());
        }
        if text.is_empty() {
            self.open.remove(line.stream);
        }
        let open = self.open.get(line.stream).filter(|_| is_frame(text)).and_then(|index| self.found.get_mut(*index));
        let Some(stack) = open else { return false };
        if stack.frames.len() < MOST_FRAMES {
            stack.frames.push(SourceLine::new(line.place, line.text));
        }
        true
    }

    /// Begins the stack of a thread, if there is room for one.
    fn begin(&mut self, line: &TextLine, thread: String) {
        if self.found.len() >= MOST_STACKS {
            self.open.remove(line.stream);
            return;
        }
        self.open.insert(line.stream.into(), self.found.len());
        let text = line.text;
        let pid = self.pid.or_else(|| text.split_once("(LWP ").and_then(|(_, rest)| leading(rest)));
        let active = text.contains(" (active").then_some(true).or(text.contains(" (idle").then_some(false));
        let rank = label::of_stream(line.stream).and_then(Whose::in_job);
        self.found.push(Stack { rank, pid, thread, active, frames: Vec::new() });
    }

    /// `4390 Tsl  do_signal_stop 00:05 python train.py` below `PID STAT WCHAN ELAPSED COMMAND`.
    fn row_of_ps(&mut self, line: &TextLine) -> bool {
        let words: Vec<&str> = line.text.split_whitespace().take(MOST_COLUMNS).collect();
        let column = |name: &[&str]| words.iter().position(|word| name.contains(word));
        if let (Some(pid), Some(state)) = (column(&["PID"]), column(&["STAT", "S"])) {
            self.ps = Some((pid, state));
            return true;
        }
        let Some((pid, state)) = self.ps else { return false };
        let (Some(pid), Some(state)) = (words.get(pid).and_then(|pid| pid.parse().ok()), words.get(state)) else {
            self.ps = None;
            return false;
        };
        if state.starts_with(['T', 't']) && self.stopped.len() < MOST_STACKS {
            let source = SourceLine::new(line.place, line.text);
            self.stopped.push(StoppedProcess { rank: None, pid: Some(pid), source });
        }
        true
    }

    /// The stacks, the stopped processes, and a launcher that was told to end its ranks. `path`: some write a file per rank.
    pub fn finish(mut self, path: &str) -> (Vec<Stack>, Vec<StoppedProcess>, Option<UnendedLauncher>) {
        for (_, index) in self.last.into_iter().filter(|(stream, _)| self.crashed.contains(stream)) {
            self.found[index].frames.clear();
        }
        self.found.retain(|stack| !stack.frames.is_empty());
        let of_path = label::of_path(path).and_then(Whose::in_job);
        self.found.iter_mut().for_each(|stack| stack.rank = stack.rank.or(of_path));
        self.stopped.iter_mut().for_each(|stopped| stopped.rank = of_path.filter(|_| self.ps.is_none()));
        let asked = self.asked.map(|source| UnendedLauncher { ranks: Vec::new(), source });
        (self.found, self.stopped, asked)
    }
}

/// What CPython prints above the stacks of a process that a signal or a fatal error ends.
const CRASHED: &str = "Fatal Python error: ";
/// How faulthandler begins a frame, behind blanks of which a label may take one.
const FILE: &str = "File \"";
/// How gdb begins a thread's innermost frame; BuildKit numbers its steps with one blank.
const FIRST_FRAME: &str = "#0  ";

/// Columns of `ps` in which the number and the state are looked for.
const MOST_COLUMNS: usize = 12;

/// Whether a line may be of `ps`: its header, or a row that begins with a number, or a name and a number.
fn is_row_of_ps(text: &[u8]) -> bool {
    let words = || text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let state = |word: &[u8]| {
        matches!(word.first(), Some(b'R' | b'S' | b'D' | b'T' | b't' | b'Z' | b'I'))
            && word.iter().skip(1).all(|letter| b"<NLsl+".contains(letter))
    };
    let header = || words().take(2).any(|word| word == b"PID") && words().any(|word| matches!(word, b"STAT" | b"S"));
    let mut numbers = words().take(3).skip_while(|word| !number(word));
    numbers.next().is_some() && words().take(MOST_COLUMNS).any(state) || header()
}

/// `Thread 0x00007f2a117fe700 (most recent call first):`, `Current thread 0x00007f2a117fe700 [python] (most recent call first):`.
fn is_of_faulthandler(text: &str) -> bool {
    let named = text.strip_prefix("Current thread 0x").or_else(|| text.strip_prefix("Thread 0x"));
    named.is_some_and(|rest| rest.ends_with("(most recent call first):"))
}

/// `Thread 4242 (idle): "MainThread"`, `Thread 0x7F12 (active+gil): "MainThread"`, `Thread 1 (Thread 0x7f12 (LWP 4242) "python"):`.
fn thread(text: &str) -> Option<String> {
    let rest = text.strip_prefix("Thread ")?;
    if let Some((head, name)) = rest.split_once(": \"") {
        return head.ends_with(')').then(|| name.trim_end_matches('"').to_string());
    }
    let (number, rest) = rest.split_once(" (Thread ")?;
    (rest.contains("(LWP ") && rest.ends_with(':')).then(|| number.to_string())
}

/// `    wait (threading.py:320)`, `#1  0x00007f in ncclGroupEnd () from /usr/lib/libnccl.so.2`, `  File "/x/train.py", line 88 in main`.
fn is_frame(text: &str) -> bool {
    if text.trim_start().starts_with(FILE) {
        return Frame::read(text).is_some();
    }
    let of_python = text.starts_with("    ") && text.ends_with(')') && text.contains(" (");
    of_python || text.starts_with('#') && text[1..].starts_with(|c: char| c.is_ascii_digit())
}

//! Tracebacks of Python, as `traceback.c` and `traceback.py` print them.

use super::EndLine;
use crate::evidence::KNOWN;
use crate::logger;
use crate::text::{leading, part_digits};
use busbw_model::{LogLevel, ProgramFrame};
use memchr::memmem;
use rustc_hash::{FxHashMap, FxHashSet};

/// A line that begins a traceback, or says that the next ends no process.
pub(crate) fn beginning(body: &str) -> Option<EndLine> {
    let text = body.trim_start();
    match () {
        _ if text.starts_with(HEADER) || is_of_notebook(text) || is_of_box(text) => {
            Some(EndLine::Header { logged: false })
        }
        _ if is_in_message(text) => Some(EndLine::Header { logged: true }),
        _ if survived(text).is_some() => Some(EndLine::Survived),
        _ => None,
    }
}

/// What another line of a traceback is. `last`: it stands where the exception stands.
pub(super) fn read(body: &str, last: bool) -> Option<EndLine> {
    let text = body.trim();
    if let Some(frame) = frame(body) {
        return Some(frame);
    }
    match text {
        "During handling of the above exception, another exception occurred:" => {
            return Some(EndLine::Chained { from: false });
        }
        "The above exception was the direct cause of the following exception:" => {
            return Some(EndLine::Chained { from: true });
        }
        _ => {}
    }
    if let Some(rank) =
        text.strip_prefix("-- Process ").filter(|rest| rest.ends_with(" terminated with the following error:"))
    {
        return leading(rank).map(|rank| EndLine::Whose(rank, None));
    }
    let (kind, message) = if last { any_exception(text)? } else { exception(body).or_else(|| unexplained(body))? };
    Some(EndLine::Exception { kind: kind.to_string(), message: message.to_string(), traceback: last })
}

/// What CPython prints in front of a traceback that ends no process, and whether that is of no part of the program's work: `Python/errors.c`,
/// `Lib/threading.py`, `Modules/atexitmodule.c`, `Lib/logging/__init__.py`, `Lib/asyncio`.
const SURVIVED: [(&str, bool); 6] = [
    ("Exception ignored in", true),
    ("Exception in thread ", false),
    ("Error in atexit._run_exitfuncs:", true),
    ("--- Logging error ---", false),
    ("Task exception was never retrieved", false),
    ("Future exception was never retrieved", false),
];

/// Whether a line stands in front of a traceback that ends no process, and whether Python ignores that exception.
fn survived(text: &str) -> Option<bool> {
    SURVIVED.iter().find(|(start, _)| text.starts_with(start)).map(|(_, ignored)| *ignored)
}

const HEADER: &str = "Traceback (most recent call last):";

/// A header behind a logger's level, or at the end of a sentence: what the program says it made of the exception, `Import of x from y failed with: Traceback
/// (most recent call last):`.
fn is_in_message(text: &str) -> bool {
    /// Labels have fewer.
    const WORDS: usize = 3;
    let Some(head) = text.trim_end().strip_suffix(HEADER) else { return false };
    let is_word = |word: &&str| word.bytes().all(|b| b.is_ascii_alphabetic());
    let is_sentence = head.ends_with(": ") && !head.starts_with(['[', '(']);
    let is_logged = |(level, said): (LogLevel, &str)| level >= LogLevel::Warning && said.trim() == HEADER;
    is_sentence && head.trim_end_matches(": ").split(' ').filter(is_word).count() >= WORDS
        || logger::read(text).is_some_and(is_logged)
}

/// The header of a traceback in rich's box: `╭───── Traceback (most recent call last) ─────╮` (`rich/traceback.py`).
fn is_of_box(text: &str) -> bool {
    text.starts_with('╭') && text.contains(HEADER.trim_end_matches(':'))
}

/// The header of a notebook's traceback, the exception's name at the left and these words at the right (IPython's `ultratb.py`): `ValueError
///                                 Traceback (most recent call last)`.
fn is_of_notebook(text: &str) -> bool {
    let name = text.trim_end().strip_suffix(HEADER.trim_end_matches(':')).and_then(|name| name.strip_suffix("  "));
    name.map(str::trim_end).is_some_and(|name| !name.is_empty() && !name.contains(' '))
}

/// Files of Python whose outermost functions print an exception and go on: threads and finalizers of `Lib/multiprocessing`.
const HELPERS: [&str; 4] = [
    "multiprocessing/queues.py",
    "multiprocessing/resource_sharer.py",
    "multiprocessing/resource_tracker.py",
    "multiprocessing/util.py",
];

/// Where the stack of a process or thread begins, besides `<module>`: what nobody catches is printed from there on, what is caught from
/// the function that catches it.
const ENTRIES: [&str; 5] = ["_run_module_as_main", "_bootstrap", "_bootstrap_inner", "spawn_main", "_wrap"];

/// `  File "/x/train.py", line 88, in main`: `train.py:88`. Without the second comma it is of a stack that faulthandler shows. Who copies a traceback may lose its indents, and loguru marks the frame that caught the
/// exception: `> File …`.
fn frame(body: &str) -> Option<EndLine> {
    if let Some(frame) = framed(body) {
        return Some(frame);
    }
    let text = body.trim_start();
    let rest = text.strip_prefix("> ").unwrap_or(text).strip_prefix("File \"")?;
    let (path, rest) = rest.split_once("\", line ")?;
    let of_stack = part_digits(rest).1.starts_with(" in ");
    if of_stack || !body.starts_with(' ') && !rest.contains(", in") {
        return None;
    }
    let function = rest.rsplit_once(", in ").map_or("", |(_, function)| function.trim_end());
    Some(frame_of(path, leading(rest)?, function))
}

/// `│ /x/train.py:88 in main                   │` of rich's box.
fn framed(body: &str) -> Option<EndLine> {
    let text = body.trim_start().strip_prefix("│ ")?.trim_end_matches([' ', '│']);
    let (place, function) = text.split_once(" in ").filter(|(place, _)| place.starts_with('/'))?;
    let (path, line) = place.rsplit_once(':')?;
    Some(frame_of(path, line.parse().ok()?, function))
}

fn frame_of(path: &str, line: u32, function: &str) -> EndLine {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let helper = HELPERS.iter().any(|file| path.ends_with(file));
    let entry = function.starts_with('<') || ENTRIES.contains(&function);
    let child = function == "_bootstrap" && path.ends_with("multiprocessing/process.py");
    let relays = KNOWN.relays.iter().any(|file| path.contains(file.as_str()));
    let of_torch = path.contains("/torch/") || path.contains("\\torch\\");
    let collective = of_torch && name == "distributed_c10d.py" && !function.starts_with('_') && function != "wrapper";
    let collective = collective.then(|| function.to_string());
    let frame = ProgramFrame { file: name.to_string(), function: function.to_string(), line };
    EndLine::Frame { frame, helper, entry, child, relays, of_torch, collective }
}

/// `ValueError: text` or `ValueError`, by a name that some class may have; Ray's `RayTaskError(ValueError): text`.
fn any_exception(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(text.len());
    let (kind, rest) = text.split_at(end);
    let inner = rest.strip_prefix('(').filter(|_| kind.ends_with("Error")).and_then(|rest| rest.split_once("):"));
    let rest = match inner {
        Some((inner, _)) if !inner.contains([' ', '(']) => &rest[inner.len() + 2..],
        _ => rest,
    };
    let is_name = kind.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !kind.ends_with('.');
    // Only a class of another module, which stands in front, may begin with a small letter: `socket.timeout`.
    let is_name =
        is_name && (kind.contains('.') || !kind.starts_with(|c: char| c.is_ascii_lowercase()) || is_result(kind));
    let message = if rest.is_empty() { Some("") } else { rest.strip_prefix(':') };
    message.filter(|_| is_name).map(|message| (kind, message.trim()))
}

/// Whether a word is one of NCCL's results, as PyTorch quotes them.
fn is_result(kind: &str) -> bool {
    KNOWN.results.iter().any(|(words, _)| words == kind)
}

/// The kind and message of a line that is an exception by itself: its name ends as the names of exceptions do.
pub(crate) fn exception(body: &str) -> Option<(&str, &str)> {
    const ENDS: [&str; 4] = ["Error", "Exception", "Timeout", "KeyboardInterrupt"];
    let (kind, message) = any_exception(body)?;
    let name = kind.rsplit('.').next().unwrap_or(kind);
    // Many tools say `Error: text`; Python has no such class.
    let is_class = name.starts_with(|c: char| c.is_ascii_uppercase()) && kind != "Error" && !OF_LUSTRE.contains(&name);
    let fits = is_class && ENDS.iter().any(|end| name.ends_with(end));
    let fits = fits || is_result(kind) && !message.is_empty();
    (fits && (!message.is_empty() || name == "KeyboardInterrupt") && !is_count(message)).then_some((kind, message))
}

/// The kind of a line that is nothing but the name of an exception, as where it has no message. [`super::EndReader`] takes it below frames only.
fn unexplained(body: &str) -> Option<(&str, &str)> {
    let name = body.trim_end();
    let is_class =
        name.starts_with(|c: char| c.is_ascii_uppercase()) && (name.ends_with("Error") || name.ends_with("Exception"));
    (is_class && name.bytes().all(|b| b.is_ascii_alphanumeric())).then_some((name, ""))
}

/// What Lustre's modules of the kernel begin their lines with.
const OF_LUSTRE: [&str; 2] = ["LustreError", "LNetError"];

/// Whether a figure stands behind a name, as where a program counts its errors: `TimeoutError: 0`.
fn is_count(message: &str) -> bool {
    let value = message.trim();
    value.parse::<f64>().is_ok() || ["none", "n/a", "null"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// What stands behind a header in its line, where a page has joined the lines of a traceback: `Traceback (most recent call last): File "a.py",
/// line 3, in f g() ValueError: text`.
pub(crate) fn joined(body: &str) -> Vec<EndLine> {
    let Some(rest) = body.trim_start().strip_prefix(HEADER) else { return Vec::new() };
    let starts: Vec<usize> = rest.match_indices(" File \"").map(|(at, _)| at).collect();
    let mut lines: Vec<EndLine> = starts.iter().filter_map(|at| frame(&rest[*at..])).collect();
    let last = starts.last().map_or("", |at| &rest[*at..]);
    let words = last.match_indices(' ').map(|(at, _)| &last[at + 1..]);
    let mut exceptions = words.filter_map(exception).map(|(kind, message)| (kind.to_string(), message.to_string()));
    if let Some((kind, message)) = exceptions.next().filter(|_| !lines.is_empty()) {
        lines.push(EndLine::Exception { kind, message, traceback: true });
    }
    lines
}

/// Knows which streams are inside a traceback, and which inside the message of an error of PyTorch's that quotes NCCL.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// The header's indent by stream: the exception has the same.
    open: FxHashMap<Box<str>, usize>,
    /// Streams whose open traceback has lost its indents.
    flat: FxHashSet<Box<str>>,
    /// Streams whose next traceback ends no process, and whether Python ignores its exception.
    survived: FxHashMap<Box<str>, bool>,
    /// The last line that was taken ends such a traceback.
    ignored: bool,
    /// Further lines that belong to the message, by stream; 0 where only an exception would.
    message: FxHashMap<Box<str>, u8>,
    /// The beginning of the last line, and its stream.
    before: (String, String),
}

/// Bytes of a line in which a logger's level stands.
const HEAD: usize = 160;

/// Lines of PyTorch's message below its first: NCCL's meaning of the result, `Last error:`, and that error.
const LINES_OF_NCCL: u8 = 3;

/// Whether a logger's level may stand in a line: it may in all lines of a wording, or in none.
pub(crate) fn may_be_logged(line: &[u8]) -> bool {
    KNOWN
        .levels
        .iter()
        .any(|(name, level)| *level >= LogLevel::Warning && memmem::find(line, name.as_bytes()).is_some())
}

/// Whether a line has the level of a logger in front of its message: `2026-11-23 10:00:00,123 - ERROR - data - text`, `ERROR:root:text`.
fn is_logged(text: &str) -> bool {
    const MOST_BEFORE: usize = 8;
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    // A piece without a letter is part of a time stamp, or empty.
    let named = words.filter(|word| !word.bytes().all(|b| b.is_ascii_digit()));
    let is_bad = |word: &str| logger::level_of(word).is_some_and(|level| level >= LogLevel::Warning);
    named.take(MOST_BEFORE).any(|word| is_bad(word) && !word.contains(|c: char| c.is_ascii_lowercase()))
}

impl Follower {
    /// What goes on behind the last line that was taken.
    pub fn left_open(&mut self) -> Follower {
        let mut left = std::mem::take(self);
        if !is_logged(&left.before.1) {
            left.before = Default::default();
        }
        left
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.survived.is_empty() && self.message.is_empty() && self.before.1.is_empty()
    }

    /// Whether no traceback or message is open.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.message.is_empty()
    }

    /// Takes a line that begins nothing and has no level, where no traceback or message is open.
    pub fn pass(&mut self) -> bool {
        let passes = self.is_idle();
        if passes {
            self.remember("", "");
        }
        passes
    }

    /// Takes the next line of a stream, and what it begins; true where it ends a traceback.
    pub fn ends(&mut self, stream: &str, (body, may_be_logged): (&str, bool), begins: Option<&mut EndLine>) -> bool {
        let begins = begins.map(|begins| {
            if let EndLine::Header { logged } = begins {
                *logged |= self.before.0 == stream && is_logged(&self.before.1);
            }
            &*begins
        });
        self.remember(stream, if may_be_logged { body } else { "" });
        self.ignored = false;
        if begins.is_none() && self.open.is_empty() {
            return false;
        }
        let indent = body.len() - body.trim_start().len();
        if begins == Some(&EndLine::Survived) {
            self.survived.insert(stream.into(), survived(body.trim_start()) == Some(true));
        } else if begins.is_some() {
            self.open.insert(stream.into(), indent);
            if is_of_notebook(body.trim_start()) || is_of_box(body.trim_start()) {
                self.flat.insert(stream.into());
            }
        }
        if begins.is_some() {
            return false;
        }
        if self.open.get(stream).is_none_or(|header| indent > *header) {
            return false;
        }
        if frame(body).is_some() {
            self.flat.insert(stream.into());
            return false;
        }
        if self.flat.contains(stream) && exception(body).is_none() {
            return false; // a line of code
        }
        self.flat.remove(stream);
        self.open.remove(stream);
        let survived = self.survived.remove(stream);
        // A GPU's context that is gone stays gone.
        let is_final = |(kind, message)| super::forms::is_final(kind, message);
        self.ignored = survived == Some(true) && !any_exception(body.trim()).is_some_and(is_final);
        survived.is_none()
    }

    /// Whether the last line is an exception that Python ignored: where an object is dropped, or at exit. It says nothing of the run.
    pub fn is_ignored(&self) -> bool {
        self.ignored
    }

    /// The traceback of a stream ended in its header's line.
    pub fn ended(&mut self, stream: &str) {
        self.open.remove(stream);
    }

    /// Whether the next line of a stream goes on with the message of an error of PyTorch's.
    pub fn is_in_message(&self, stream: &str) -> bool {
        !self.message.is_empty() && self.message.get(stream).is_some_and(|left| *left > 0)
    }

    /// Whether the next line of a stream may be the exception that the message of the last one quotes.
    pub fn may_quote(&self, stream: &str) -> bool {
        !self.message.is_empty() && self.message.get(stream) == Some(&0)
    }

    /// Whether a stream is inside a traceback.
    pub fn is_inside(&self, stream: &str) -> bool {
        !self.open.is_empty() && self.open.contains_key(stream)
    }

    fn remember(&mut self, stream: &str, body: &str) {
        let (of, text) = &mut self.before;
        of.clear();
        text.clear();
        if !body.is_empty() {
            of.push_str(stream);
            text.push_str(&body[..body.floor_char_boundary(HEAD)]);
        }
    }

    /// Whether a line is Python's: it ends a traceback, is an error of PyTorch's, or goes on with the message of one.
    pub fn is_python(&mut self, stream: &str, line: Option<&EndLine>) -> bool {
        match line {
            Some(EndLine::Exception { kind, message, traceback }) => {
                let quotes =
                    kind.ends_with("DistBackendError") || kind.starts_with("nccl") || message.starts_with("NCCL error");
                if quotes {
                    self.message.insert(stream.into(), LINES_OF_NCCL);
                }
                if *traceback && message.ends_with(':') {
                    self.message.insert(stream.into(), 0);
                }
                return *traceback || quotes || kind.starts_with("torch.");
            }
            Some(EndLine::What(message)) if message.contains("NCCL error") => {
                self.message.insert(stream.into(), LINES_OF_NCCL);
            }
            _ => {}
        }
        let Some(left) = self.message.remove(stream) else { return false };
        if left > 1 {
            self.message.insert(stream.into(), left - 1);
        }
        left > 0 || matches!(line, Some(EndLine::Quoted(_)))
    }
}

//! Reads stacks: `py-spy dump` (with `--native` too) and gdb's `thread apply all bt`.

use crate::text::{TextLine, leading};
use busbw_model::{SourceLine, Stack};

/// More threads, or deeper stacks, tell nothing new.
const MOST_STACKS: usize = 4096;
const MOST_FRAMES: usize = 256;

/// Collects stacks.
#[derive(Debug, Default)]
pub(crate) struct StackReader {
    pid: Option<u64>,
    open: bool,
    found: Vec<Stack>,
}

impl StackReader {
    /// Whether a line may be of a stack.
    pub fn may_belong(text: &[u8]) -> bool {
        text.starts_with(b"Thread ")
            || text.starts_with(b"Process ")
            || text.starts_with(b"    ") && text.trim_ascii_end().ends_with(b")")
            || text.starts_with(b"#") && text.get(1).is_some_and(u8::is_ascii_digit)
    }

    /// Takes a line; true when it is of a stack.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim_end();
        if let Some((pid, _)) = text.strip_prefix("Process ").and_then(|rest| rest.split_once(": ")) {
            self.pid = pid.parse().ok();
            self.open = false;
            return self.pid.is_some();
        }
        if let Some(thread) = thread(text) {
            let pid = self.pid.or_else(|| text.split_once("(LWP ").and_then(|(_, rest)| leading(rest)));
            self.open = self.found.len() < MOST_STACKS;
            if self.open {
                self.found.push(Stack { pid, thread, frames: Vec::new() });
            }
            return true;
        }
        if text.is_empty() {
            self.open = false;
        }
        let Some(stack) = self.found.last_mut().filter(|_| self.open && is_frame(text)) else { return false };
        if stack.frames.len() < MOST_FRAMES {
            stack.frames.push(SourceLine::new(line.place, line.text));
        }
        true
    }

    pub fn finish(mut self) -> Vec<Stack> {
        self.found.retain(|stack| !stack.frames.is_empty());
        self.found
    }
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

/// `    wait (threading.py:320)`, `#1  0x00007f in ncclGroupEnd () from /usr/lib/libnccl.so.2`.
fn is_frame(text: &str) -> bool {
    let of_python = text.starts_with("    ") && text.ends_with(')') && text.contains(" (");
    of_python || text.starts_with('#') && text[1..].starts_with(|c: char| c.is_ascii_digit())
}

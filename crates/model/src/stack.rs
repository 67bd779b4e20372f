//! Stacks of threads, as py-spy, gdb and Python's faulthandler show them, and the state of processes.

use crate::place::SourceLine;

/// Where one thread of a process was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The rank, where the name of the input or a label tells it.
    pub rank: Option<u32>,
    /// The process, if known.
    pub pid: Option<u64>,
    /// The thread's name: `MainThread`; of gdb's its number.
    pub thread: String,
    /// Whether it ran, where py-spy tells: `active`, not `idle`.
    pub active: Option<bool>,
    /// Its frames as printed, the innermost first.
    pub frames: Vec<SourceLine>,
}

/// What a line of a stack says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The function, of py-spy with its class: `Engine.step`.
    pub function: &'a str,
    /// The file or library, as far as it is told.
    pub path: &'a str,
    /// The line in the file.
    pub line: Option<u32>,
}

impl<'a> Frame<'a> {
    /// Reads `Engine.step (parts/engine.py:41)` of py-spy, `#3  0x00007f2a in PMPI_Barrier (comm=0x60) at pbarrier.c:74` of gdb, and
    /// `File "/x/engine.py", line 41 in step` of faulthandler.
    pub fn read(text: &'a str) -> Option<Self> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("File \"") {
            let (path, rest) = rest.split_once("\", line ")?;
            let (line, function) = rest.split_once(" in ")?;
            return line.parse().ok().map(|line| Frame { function, path, line: Some(line) });
        }
        let of_c = text.strip_prefix('#').and_then(|rest| rest.split_once(' '));
        let (function, place) = match of_c {
            Some((_number, rest)) => {
                let rest = rest.trim_start();
                let named =
                    rest.strip_prefix("0x").and_then(|rest| rest.split_once(" in ")).map_or(rest, |(_, rest)| rest);
                let (function, rest) = named.split_once(" (")?;
                let place = rest.rsplit_once(" at ").or_else(|| rest.rsplit_once(" from "));
                (function, place.map_or("", |(_, place)| place))
            }
            None => text.strip_suffix(')')?.rsplit_once(" (")?,
        };
        let numbered = place.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse().ok()?)));
        let (path, line) = numbered.map_or((place, None), |(path, line)| (path, Some(line)));
        Some(Frame { function, path, line })
    }
}

/// A connection over TCP, as `ss -tinp` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// The process, if known.
    pub pid: Option<u64>,
    /// The address on this host, without the port.
    pub local: String,
    /// The address at the other end, without the port.
    pub peer: String,
    /// What was sent is not acknowledged and was sent again: nothing gets through.
    pub is_stuck: bool,
    /// How long an answer takes of late, in microseconds, and how long it took at best.
    pub round_trip: Option<(u64, u64)>,
    /// How long ago the other end last answered, in milliseconds.
    pub quiet_ms: Option<u64>,
    /// The line.
    pub source: SourceLine,
}

/// A launcher that was told to end its ranks and is not seen to end itself: one of them at least does not react to signals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnendedLauncher {
    /// The ranks that it started.
    pub ranks: Vec<u32>,
    /// The line in which it is told to.
    pub source: SourceLine,
}

/// A process that is stopped: in state T by `/proc/PID/status` or `ps`, or torchrun's SIGTERM did not end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedProcess {
    /// The rank, where the name of the input tells it.
    pub rank: Option<u32>,
    /// The process, if known.
    pub pid: Option<u64>,
    /// The line.
    pub source: SourceLine,
}

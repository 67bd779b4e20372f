//! What a plugin logs by NCCL's logger.

use busbw_model::text::clean_line;
use busbw_nccl_abi::{LogLevel, Logger};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines that are kept: the last ones say why something failed.
const MOST_LINES: usize = 200;

static LOG: Mutex<Log> = Mutex::new(Log { lines: VecDeque::new(), dropped: 0, warning: None });

struct Log {
    lines: VecDeque<(LogLevel, String)>,
    dropped: usize,
    /// The last warning, until it is reported with a call that failed.
    warning: Option<String>,
}

/// The logger to hand to a plugin.
pub(super) fn logger() -> Logger {
    busbw_plugin_logger
}

/// What was logged so far.
pub(super) fn lines() -> Vec<String> {
    log().lines.iter().map(|(_, line)| line.clone()).collect()
}

/// What was logged so far, with the level of each line as NCCL writes it.
pub(super) fn with_levels() -> Vec<String> {
    let log = log();
    let dropped = (log.dropped > 0).then(|| format!("({} earlier lines are left out)", log.dropped));
    let lines = log.lines.iter().map(|(level, line)| match *level {
        LogLevel::WARN => format!("WARN {line}"),
        LogLevel::TRACE => format!("TRACE {line}"),
        _ => format!("INFO {line}"),
    });
    dropped.into_iter().chain(lines).collect()
}

/// The last warning, once.
pub(super) fn take_warning() -> Option<String> {
    log().warning.take()
}

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// NCCL drops these lines too, unless it is configured otherwise (`ncclDebugLog`, `src/debug.cc`).
fn is_too_fine(level: LogLevel) -> bool {
    level == LogLevel::TRACE && !std::env::var("NCCL_DEBUG").is_ok_and(|level| level.eq_ignore_ascii_case("trace"))
}

unsafe extern "C" {
    fn busbw_plugin_logger(
        level: LogLevel,
        flags: std::ffi::c_ulong,
        file: *const c_char,
        line: c_int,
        format: *const c_char,
        ...
    );
}

/// Called by the logger (`logger.c`) with each message.
#[unsafe(no_mangle)]
extern "C" fn busbw_plugin_log_line(level: c_int, line: *const c_char) {
    let level = LogLevel(level);
    if line.is_null() || is_too_fine(level) {
        return;
    }
    // SAFETY: logger.c gives the address of a text that ends in a zero and lives during this call.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    let line = clean_line(line.trim()).into_owned();
    let mut log = log();
    if level == LogLevel::WARN {
        log.warning = Some(line.clone());
    }
    if log.lines.len() == MOST_LINES {
        log.lines.pop_front();
        log.dropped += 1;
    }
    log.lines.push_back((level, line));
}

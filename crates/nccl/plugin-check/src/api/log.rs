//! What a plugin logs by NCCL's logger.

use busbw_nccl_abi::{LogLevel, Logger};
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// Lines that are kept: the last ones say why something failed.
const MOST_LINES: usize = 50;

static LINES: Mutex<Vec<(LogLevel, String)>> = Mutex::new(Vec::new());

/// The logger to hand to a plugin.
pub(super) fn logger() -> Logger {
    busbw_plugin_logger
}

/// What was logged since the last call of this.
pub(super) fn take() -> Vec<String> {
    let lines = std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner));
    lines.into_iter().map(|(_, line)| line).collect()
}

/// The last warning, once.
pub(super) fn take_warning() -> Option<String> {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let at = lines.iter().rposition(|(level, _)| *level == LogLevel::WARN)?;
    Some(lines.remove(at).1)
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
    if LogLevel(level) == LogLevel::TRACE || line.is_null() {
        return;
    }
    // SAFETY: logger.c gives the address of a text that ends in a zero and lives during this call.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy().trim().to_owned();
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.len() == MOST_LINES {
        lines.remove(0);
    }
    lines.push((LogLevel(level), line));
}

//! What a plugin says by NCCL's logger.

use busbw_nccl_abi::{LogLevel, Logger};
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// Lines that are kept: the last ones say why something failed.
const MOST_LINES: usize = 50;

static SAID: Mutex<Vec<(LogLevel, String)>> = Mutex::new(Vec::new());

/// The logger to hand to a plugin.
pub(super) fn logger() -> Logger {
    busbw_plugin_logger
}

/// What was said since the last call of this.
pub(super) fn take() -> Vec<String> {
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    said.into_iter().map(|(_, line)| line).collect()
}

/// The last warning, once.
pub(super) fn take_warning() -> Option<String> {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let at = said.iter().rposition(|(level, _)| *level == LogLevel::WARN)?;
    Some(said.remove(at).1)
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
extern "C" fn busbw_plugin_said(level: c_int, line: *const c_char) {
    if LogLevel(level) == LogLevel::TRACE || line.is_null() {
        return;
    }
    // SAFETY: logger.c gives the address of a text that ends in a zero and lives during this call.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy().trim().to_owned();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() == MOST_LINES {
        said.remove(0);
    }
    said.push((LogLevel(level), line));
}

//! NCCL's logger: what is reported, as `NET/busbw : …`, `TUNER/busbw : …` and `PROFILER/busbw : …`.

use busbw_nccl_abi::{LogLevel, Logger, Subsystems};
use std::ffi::{CString, c_ulong};
use std::sync::RwLock;

/// What NCCL handed to `init`. Some functions (`devices`, `accept`, `test`) know no context, so there is one for the process.
static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);

/// Takes the logger of an `init`.
pub(crate) fn set(logger: Option<Logger>) {
    if logger.is_some() {
        *LOGGER.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = logger;
    }
}

pub(crate) fn warn(text: &str) {
    tell(LogLevel::WARN, Subsystems::ALL, "NET", text);
}

/// What is being used.
pub(crate) fn info(text: &str) {
    tell(LogLevel::INFO, Subsystems::INIT | Subsystems::NET, "NET", text);
}

/// The same of the tuner: how collectives are carried out.
pub(crate) fn tuner_info(text: &str) {
    tell(LogLevel::INFO, Subsystems::INIT | Subsystems::TUNING, "TUNER", text);
}

pub(crate) fn tuner_warn(text: &str) {
    tell(LogLevel::WARN, Subsystems::ALL, "TUNER", text);
}

/// The same of the profiler.
pub(crate) fn profiler_info(text: &str) {
    tell(LogLevel::INFO, Subsystems::INIT, "PROFILER", text);
}

pub(crate) fn profiler_warn(text: &str) {
    tell(LogLevel::WARN, Subsystems::ALL, "PROFILER", text);
}

fn tell(level: LogLevel, subsystems: c_ulong, part: &str, text: &str) {
    let logger = *LOGGER.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (Some(logger), Ok(text)) = (logger, CString::new(format!("{part}/busbw : {text}"))) else { return };
    // SAFETY: NCCL's logger takes C strings; the text is an argument of the format, so that it is never read as one itself.
    unsafe { logger(level, subsystems, c"busbw".as_ptr(), 0, c"%s".as_ptr(), text.as_ptr()) };
}

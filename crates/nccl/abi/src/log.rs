//! NCCL's logger, as it is handed to plugins (`src/include/plugin/nccl_common.h`).

use std::ffi::{c_char, c_int, c_ulong};

/// `ncclDebugLogger_t`: level, subsystems, file, line, `printf` format and its arguments.
pub type Logger =
    unsafe extern "C" fn(level: LogLevel, flags: c_ulong, file: *const c_char, line: c_int, format: *const c_char, ...);

/// `ncclDebugLogLevel`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogLevel(pub c_int);

impl LogLevel {
    /// Printed whatever `NCCL_DEBUG` says, but for none.
    pub const VERSION: Self = LogLevel(1);
    /// Something failed.
    pub const WARN: Self = LogLevel(2);
    /// What is being used, printed with `NCCL_DEBUG=INFO`.
    pub const INFO: Self = LogLevel(3);
    pub const ABORT: Self = LogLevel(4);
    /// Every call.
    pub const TRACE: Self = LogLevel(5);
}

/// `ncclDebugLogSubSys`: which parts of NCCL a message is of, as `NCCL_DEBUG_SUBSYS` chooses them.
pub struct Subsystems;

impl Subsystems {
    /// Start of a communicator.
    pub const INIT: c_ulong = 0x1;
    /// The network.
    pub const NET: c_ulong = 0x10;
    /// Which algorithm a collective goes by.
    pub const TUNING: c_ulong = 0x40;
    /// All of them: what errors are reported with.
    pub const ALL: c_ulong = !0;
}

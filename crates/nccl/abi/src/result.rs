//! What NCCL's functions return.

use std::ffi::c_int;
use std::fmt;

/// `ncclResult_t`: 0 is success. A number, not an `enum`, because a foreign library may return any.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct NcclResult(pub c_int);

impl NcclResult {
    /// The call did what it should.
    pub const SUCCESS: Self = NcclResult(0);
    /// A call to CUDA failed.
    pub const UNHANDLED_CUDA_ERROR: Self = NcclResult(1);
    /// A call to the system failed.
    pub const SYSTEM_ERROR: Self = NcclResult(2);
    /// An internal check failed.
    pub const INTERNAL_ERROR: Self = NcclResult(3);
    /// An argument has a value that is not possible.
    pub const INVALID_ARGUMENT: Self = NcclResult(4);
    /// The call is not possible here or now.
    pub const INVALID_USAGE: Self = NcclResult(5);
    /// The network failed or a peer is gone.
    pub const REMOTE_ERROR: Self = NcclResult(6);
    /// Under way: ask again.
    pub const IN_PROGRESS: Self = NcclResult(7);
    /// It took too long (since 2.30).
    pub const TIMEOUT: Self = NcclResult(8);

    /// Whether the call did what it should.
    pub fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::SUCCESS => "ncclSuccess",
            Self::UNHANDLED_CUDA_ERROR => "ncclUnhandledCudaError",
            Self::SYSTEM_ERROR => "ncclSystemError",
            Self::INTERNAL_ERROR => "ncclInternalError",
            Self::INVALID_ARGUMENT => "ncclInvalidArgument",
            Self::INVALID_USAGE => "ncclInvalidUsage",
            Self::REMOTE_ERROR => "ncclRemoteError",
            Self::IN_PROGRESS => "ncclInProgress",
            Self::TIMEOUT => "ncclTimeout",
            _ => "unknown ncclResult_t",
        }
    }
}

impl fmt::Display for NcclResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

//! The border to C: errors become results and lines of NCCL's log, panics end here.

use crate::log;
use busbw_nccl_abi::NcclResult;
use busbw_transport::Error;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function of the plugin comes to.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// An error, and whether NCCL's log has it already.
#[derive(Debug)]
pub(crate) struct Failure {
    result: NcclResult,
    /// Empty where it has been told before.
    text: String,
}

impl Failure {
    /// A call that NCCL's rules do not allow.
    pub fn usage(text: impl Into<String>) -> Self {
        Failure { result: NcclResult::INVALID_ARGUMENT, text: text.into() }
    }

    /// A setting that cannot be followed.
    pub fn setting(text: impl Into<String>) -> Self {
        Failure { result: NcclResult::INVALID_USAGE, text: text.into() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same failure of a connection again.
    pub fn again(self) -> Self {
        Failure { text: String::new(), ..self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let result = match &error {
            Error::Closed { .. } | Error::Silent { .. } | Error::Corrupt { .. } | Error::Cancelled(_) => {
                NcclResult::REMOTE_ERROR
            }
            Error::System { .. } => NcclResult::SYSTEM_ERROR,
            Error::Protocol { .. } => NcclResult::INTERNAL_ERROR,
            // What NCCL's own socket transport returns for a message that is too long.
            Error::Mismatch { .. } | Error::Config(_) => NcclResult::INVALID_USAGE,
        };
        Failure { result, text: error.to_string() }
    }
}

/// Calls one of the plugin's functions for C.
pub(crate) fn guard(call: impl FnOnce() -> Result<()>) -> NcclResult {
    match caught(call) {
        Ok(Ok(())) => NcclResult::SUCCESS,
        Ok(Err(failure)) => {
            if !failure.text().is_empty() {
                log::warn(failure.text());
            }
            failure.result
        }
        Err(told) => {
            log::warn(&told);
            NcclResult::INTERNAL_ERROR
        }
    }
}

/// Calls something that C waits for: a panic ends here, as what is told of it.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| format!("a fault of busbw itself, please report it: {}", said(&*panic)))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        assert_eq!(guard(|| panic!("on purpose")), NcclResult::INTERNAL_ERROR);
        assert_eq!(guard(|| Ok(())), NcclResult::SUCCESS);
    }

    #[test]
    fn what_the_peer_did_is_a_remote_error() {
        let closed = Error::Closed { peer: "10.0.0.2:4711".into() };
        assert_eq!(guard(|| Err(closed.into())), NcclResult::REMOTE_ERROR);
    }
}

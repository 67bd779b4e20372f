//! A call of a plugin's function: under the watchdog's eyes, and what it means when it fails.

use super::log;
use crate::wire::Wrong;
use busbw_nccl_abi::NcclResult;

/// What a call gave, or how it failed.
pub(crate) type Answer<T> = Result<T, Wrong>;

/// A failed call in words, with what the plugin last warned of: `connect gave ncclSystemError (2): NET/X : refused`.
pub(super) fn failed(call: &str, code: NcclResult) -> Wrong {
    Wrong { cause: format!("{call} gave {code}"), detail: log::take_warning().unwrap_or_default() }
}

/// Makes a call of the plugin under the watchdog's eyes.
macro_rules! call {
    ($name:literal, $function:expr, $($argument:expr),* $(,)?) => {{
        let function = $function.ok_or_else(|| crate::wire::Wrong::from(format!("{} is missing", $name)))?;
        static NAME: &str = $name;
        let watched = crate::api::watchdog::entered(&NAME);
        // SAFETY: the plugin's own function, with the arguments of its version; pointers are valid during the call, and
        // memory of requests is never freed.
        let code: busbw_nccl_abi::NcclResult = unsafe { function($($argument),*) };
        drop(watched);
        if code.is_success() { Ok(()) } else { Err(crate::api::call::failed($name, code)) }
    }};
}

pub(super) use call;

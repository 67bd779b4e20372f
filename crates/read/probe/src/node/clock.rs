//! The clock, as the kernel judges it.

use crate::Root;
use busbw_model::node::{Clock, Known};

pub(super) fn collect(root: &Root) -> Known<Clock> {
    if !root.is_live() {
        return Known::Unknown("a captured tree has no clock".into());
    }
    // SAFETY: all zeros is a valid `timex` that asks for nothing to be changed.
    let mut told: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure, which lives through the call.
    if unsafe { libc::adjtimex(&mut told) } < 0 {
        return Known::Unknown(format!("adjtimex: {}", std::io::Error::last_os_error()));
    }
    Known::Known(Clock {
        synchronised: told.status & libc::STA_UNSYNC == 0,
        error_us: u64::try_from(told.maxerror).unwrap_or(0),
        together_us: None,
    })
}

//! Time of day as nccl-tests shows it.

use std::time::{SystemTime, UNIX_EPOCH};

/// The format, which nccl-tests also prints as the unit of its time stamp column.
pub const FORMAT: &str = "%Y-%m-%d %H:%M:%S";

/// A time in the host's time zone: `2025-11-20 13:45:10`.
pub fn stamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // To libc's time_t, without its name: on musl that says that it will change.
    let seconds = seconds.try_into().unwrap_or(0);
    // SAFETY: all zeros is a valid tm: its pointer may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that live through the call.
    unsafe { libc::localtime_r(&seconds, &mut parts) };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_nineteen_characters() {
        let stamp = stamp(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_763_646_310));
        assert!(stamp.starts_with("2025-11-2") && stamp.len() == 19 && stamp.ends_with(":10"), "{stamp}");
    }
}

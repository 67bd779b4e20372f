//! Times as people read them.

use time::OffsetDateTime;
use time::macros::format_description;

/// A time in UTC: `2026-03-31 16:36:04 UTC`.
pub fn utc(time_us: u64) -> String {
    formatted(time_us, format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC"))
}

/// A time in UTC as RFC 3339 writes it, to the millisecond.
pub fn rfc3339(time_us: u64) -> String {
    formatted(time_us, format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"))
}

/// The time of day in UTC: `16:36:04`.
pub fn time_of_day(time_us: u64) -> String {
    formatted(time_us, format_description!("[hour]:[minute]:[second]"))
}

fn formatted(time_us: u64, format: &[time::format_description::BorrowedFormatItem<'_>]) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(time_us) * 1000);
    // A damaged recording may contain an impossible year.
    time.ok().and_then(|time| time.format(format).ok()).unwrap_or_else(|| format!("{time_us} us"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        assert_eq!(utc(1_774_974_964_123_456), "2026-03-31 16:36:04 UTC");
        assert_eq!(rfc3339(1_774_974_964_123_456), "2026-03-31T16:36:04.123Z");
        assert_eq!(time_of_day(0), "00:00:00");
        assert_eq!(utc(u64::MAX), format!("{} us", u64::MAX));
    }
}

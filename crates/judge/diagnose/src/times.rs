//! The times that stand in front of lines.

use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// A time with its date, as a line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dated {
    pub time: PrimitiveDateTime,
    /// A zone stands behind it; else it is the host's, whichever that is.
    pub has_zone: bool,
}

/// The last date in front of a line's words: `[rank3]: [2026-11-02 03:08:07,123] [INFO] iteration 190/ 1000`, `[Thu Nov 26 09:00:01 2026] text` of
/// `dmesg -T`. None without a year.
pub(crate) fn of(line: &str) -> Option<Dated> {
    let mut rest = line;
    let mut found = None;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        let text = &rest[at..];
        if let Some((time, behind)) = leading(text) {
            let zone = behind.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
            found = Some(Dated { time, has_zone: zone.starts_with(['Z', '+', '-']) });
            rest = zone;
            continue;
        }
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(text.len());
        let (word, behind) = text.split_at(end);
        let is_label = behind.starts_with([']', ':', '|', ')'])
            || rest[..at].ends_with('[')
            || word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        if !is_label {
            break;
        }
        rest = behind;
    }
    found
}

/// The date with a time that a text begins with, and what stands behind it.
pub(crate) fn leading(text: &str) -> Option<(PrimitiveDateTime, &str)> {
    const ISO: &[BorrowedFormatItem] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    const CTIME: &[BorrowedFormatItem] = format_description!(
        "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] [year]"
    );
    let iso = || {
        let (time, behind) = text.split_at_checked("2026-11-02 03:08:07".len())?;
        let time = time.replace('/', "-").replacen('T', " ", 1);
        Some((PrimitiveDateTime::parse(&time, ISO).ok()?, behind))
    };
    let ctime = || {
        let (time, behind) = text.split_at_checked("Thu Nov 26 09:00:01 2026".len())?;
        Some((PrimitiveDateTime::parse(time, CTIME).ok()?, behind))
    };
    match text.bytes().next()? {
        b'0'..=b'9' => iso(),
        _ => ctime(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_in_front_of_lines_are_read() {
        for (line, expected) in [
            ("[Thu Nov 26 09:00:01 2026] LustreError: 167-0: x", Some(("2026-11-26 9:00:01.0", false))),
            ("n1: [Fri Nov  6 09:00:01 2026] nvme nvme3: x", Some(("2026-11-06 9:00:01.0", false))),
            ("2026-11-26T09:00:01,123456+01:00 n1 kernel: x", Some(("2026-11-26 9:00:01.0", true))),
            ("[rank3]: [2026-11-02 03:08:07,123] [INFO] step 190", Some(("2026-11-02 3:08:07.0", false))),
            ("Nov 26 09:00:01 n1 kernel: x", None),
            ("[ 1234.567890] nvme nvme3: x", None),
            ("step 7, ends at 2026-11-02 03:09:08", None),
        ] {
            let found = of(line).map(|dated| (dated.time.to_string(), dated.has_zone));
            assert_eq!(found.as_ref().map(|(time, zone)| (time.as_str(), *zone)), expected, "{line}");
        }
    }
}

//! What moved in all, for the end of a session.

use crate::time::time_of_day;
use crate::tracker::Tracker;
use std::fmt::Write as _;

/// Traffic of each port, and alerts, in lines for people.
pub fn of(tracker: &Tracker) -> String {
    let mut out = String::new();
    for (device, (sent, received)) in tracker.traffic() {
        let _ = writeln!(out, "{device}: sent {}, received {}", bytes(sent), bytes(received));
    }
    for alert in tracker.alerts() {
        let (from, to) = (time_of_day(alert.since_us), time_of_day(alert.last_us));
        let when = if from == to { from } else { format!("{from} to {to}") };
        let _ = writeln!(
            out,
            "{} {} {}: {} (+{}, {when} UTC; busbw explain --code {})",
            alert.severity.as_str(),
            alert.device,
            alert.counter,
            alert.what,
            alert.moved,
            alert.code
        );
    }
    out
}

/// Bytes with a decimal unit, as rates have them.
fn bytes(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.into_iter().find(|(size, _)| bytes as f64 >= *size);
    unit.map_or_else(|| format!("{bytes} B"), |(size, name)| format!("{:.2} {name}", bytes as f64 / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_units() {
        let shown = [0, 999, 1000, 2_345_678, 7_000_000_000_000].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.00 kB", "2.35 MB", "7.00 TB"]);
    }
}

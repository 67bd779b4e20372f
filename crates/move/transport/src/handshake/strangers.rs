//! Log lines about refused connections: one each for the first few, then counts.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// This many are reported one by one.
const FIRST: u64 = 3;
/// So many addresses are counted apart between two lines.
const ADDRESSES: usize = 4;
/// Between the first two lines that count; then twice as long each time, so that a flood of days does not fill a disk.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time between two of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The connections that a listener has dropped, as lines for a log.
#[derive(Debug, Default)]
pub struct Strangers {
    lines: Vec<String>,
    all: u64,
    /// Not told yet, by address; those of further addresses.
    untold: (Vec<(IpAddr, u64)>, u64),
    /// When the next line with counts may come, and how long after it the one after.
    next: Option<(Instant, Duration)>,
}

impl Strangers {
    /// Notes that a connection was dropped, and why.
    pub fn note(&mut self, from: SocketAddr, why: &dyn Display) {
        self.all += 1;
        if self.all <= FIRST {
            self.lines.push(format!("dropped a connection from {from}: {why}"));
            return;
        }
        let (addresses, further) = &mut self.untold;
        let room = addresses.len() < ADDRESSES;
        match addresses.iter_mut().find(|(address, _)| *address == from.ip()) {
            Some((_, count)) => *count += 1,
            None if room => addresses.push((from.ip(), 1)),
            None => *further += 1,
        }
    }

    /// How many were dropped.
    pub fn count(&self) -> u64 {
        self.all
    }

    /// The lines to tell at this time, `now`.
    pub fn lines(&mut self, now: Instant) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.lines);
        let (at, pause) = *self.next.get_or_insert((now, PAUSE));
        if now >= at && !self.untold.0.is_empty() {
            lines.push(self.counted());
            self.next = Some((now + pause, (2 * pause).min(LONGEST_PAUSE)));
        }
        lines
    }

    /// The last line, where not every one was told by itself.
    pub fn end(&self) -> Option<String> {
        (self.all > FIRST).then(|| format!("dropped {} connections in all that were not let in", self.all))
    }

    fn counted(&mut self) -> String {
        let (addresses, further) = std::mem::take(&mut self.untold);
        let count = further + addresses.iter().map(|(_, count)| count).sum::<u64>();
        let mut from: Vec<String> =
            addresses.iter().map(|(address, count)| format!("{count} from {address}")).collect();
        if further > 0 {
            from.push(format!("{further} from elsewhere"));
        }
        format!("dropped {count} more connections: {}", from.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_handful_of_lines() {
        let (mut strangers, start) = (Strangers::default(), Instant::now());
        let mut lines = Vec::new();
        // 12,000 in two minutes, from six addresses.
        for number in 0..12_000_u64 {
            let from = SocketAddr::new([10, 0, 0, (number % 6) as u8].into(), number as u16);
            strangers.note(from, &"it said nothing");
            lines.extend(strangers.lines(start + Duration::from_millis(10 * number)));
        }
        assert_eq!(lines[0], "dropped a connection from 10.0.0.0:0: it said nothing");
        assert_eq!(lines[3], "dropped 1 more connections: 1 from 10.0.0.3");
        assert!(
            lines[4].starts_with("dropped 100 more connections: ") && lines[4].ends_with("from elsewhere"),
            "{lines:?}"
        );
        assert!(lines.len() < 12, "{lines:?}");
        assert_eq!(strangers.end().unwrap(), "dropped 12000 connections in all that were not let in");
    }

    #[test]
    fn a_few_are_told_one_by_one() {
        let mut strangers = Strangers::default();
        (1..=FIRST).for_each(|port| strangers.note(([10, 0, 0, 1], port as u16).into(), &"it said nothing"));
        assert_eq!(strangers.lines(Instant::now()).len() as u64, FIRST);
        assert!(strangers.lines(Instant::now()).is_empty() && strangers.end().is_none());
    }
}

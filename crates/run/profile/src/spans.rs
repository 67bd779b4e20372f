//! The time in which at least one operation of a rank ran.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Adds up operations that come roughly in the order in which they end.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// Not added yet: an operation that began before one of these may still end.
    kept: BinaryHeap<Reverse<(u64, u64)>>,
    until: u64,
    /// The time with at least one, and all times together.
    pub busy_ns: u64,
    pub added_ns: u64,
    /// The first begin and the last end.
    pub span: Option<(u64, u64)>,
}

impl Busy {
    pub fn add(&mut self, begin: u64, end: u64) {
        self.kept.push(Reverse((begin, end)));
        self.added_ns = self.added_ns.saturating_add(end.saturating_sub(begin));
        let (first, last) = self.span.unwrap_or((begin, end));
        self.span = Some((first.min(begin), last.max(end)));
    }

    /// Adds what began before the first operation that is not over; everything where there is none.
    pub fn settle(&mut self, open_since: Option<u64>) {
        while let Some(&Reverse((begin, end))) = self.kept.peek() {
            if open_since.is_some_and(|since| begin >= since) {
                return;
            }
            self.kept.pop();
            self.busy_ns = self.busy_ns.saturating_add(end.saturating_sub(begin.max(self.until)));
            self.until = self.until.max(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_once_however_many_operations_run() {
        let mut busy = Busy::default();
        // The long one ends after those within it.
        busy.add(10, 20);
        busy.settle(Some(0));
        assert_eq!(busy.busy_ns, 0);
        for (begin, end) in [(30, 40), (0, 100), (90, 110), (200, 210)] {
            busy.add(begin, end);
        }
        busy.settle(None);
        assert_eq!((busy.busy_ns, busy.added_ns, busy.span), (120, 150, Some((0, 210))));
    }
}

//! Work on a slice in parts, a thread each.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

/// A part with fewer elements takes less time than starting a thread does.
const SMALLEST: usize = 1 << 16;

/// Splits a length into parts, one per thread at most. The same arguments give the same parts.
fn parts(length: usize, threads: NonZeroUsize) -> impl Iterator<Item = Range<usize>> {
    let step = length.div_ceil(threads.get()).max(SMALLEST);
    (0..length).step_by(step).map(move |start| start..length.min(start + step))
}

/// Does `work` on every part, given its number (from 0) and where it begins; the results in the order of parts. Where a
/// thread cannot be started, the caller's does its work.
pub(crate) fn over_parts<T: Sync, R: Send>(
    all: &[T],
    threads: NonZeroUsize,
    work: impl Fn(Part<'_, T>) -> R + Sync,
) -> Vec<R> {
    let part = |(number, range): (usize, Range<usize>)| Part { number, start: range.start, elements: &all[range] };
    let mut parts = parts(all.len(), threads).enumerate().map(part);
    let Some(first) = parts.next() else { return Vec::new() };
    let work = &work;
    thread::scope(|scope| {
        let start = |part| (part, thread::Builder::new().spawn_scoped(scope, move || work(part)).ok());
        let others: Vec<_> = parts.map(start).collect();
        let mut results = vec![work(first)];
        results.extend(others.into_iter().map(|(part, thread)| match thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => work(part),
        }));
        results
    })
}

/// A part of a slice.
#[derive(Debug)]
pub(crate) struct Part<'a, T> {
    /// Its number among the parts, from 0.
    pub number: usize,
    /// Where it begins in the slice.
    pub start: usize,
    pub elements: &'a [T],
}

// Derived ones would ask for `T: Copy`, which a reference does not need.
impl<T> Clone for Part<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Part<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once_in_order() {
        for (length, threads, expected) in
            [(0, 4, 0), (1, 4, 1), (SMALLEST, 4, 1), (SMALLEST + 1, 4, 2), (1 << 20, 3, 3)]
        {
            let all: Vec<usize> = (0..length).collect();
            let threads = NonZeroUsize::new(threads).unwrap();
            let seen = over_parts(&all, threads, |part| (part.number, part.start, part.elements.to_vec()));
            assert_eq!(seen.len(), expected);
            assert!(
                seen.iter()
                    .enumerate()
                    .all(|(number, (part, start, elements))| { *part == number && elements.first() == Some(start) })
            );
            assert_eq!(seen.into_iter().flat_map(|(_, _, elements)| elements).collect::<Vec<_>>(), all);
        }
    }
}

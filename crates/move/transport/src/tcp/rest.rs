//! Sleeping until a socket brings something, where others compute on the caller's core.
//!
//! Whoever asks again and again gives its core away in between (NCCL's proxy yields after each pass without progress). On a
//! crowded core it gets it back a slice of the scheduler's later, milliseconds after the answer has come, and two ends that both
//! do so hardly ever run at once. Whoever sleeps in the kernel is woken by the answer, and is let in at once.

use super::socket::Epoll;
use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The sockets that a thread's connections wait for, and what it knows of its core.
struct Rest {
    number: u64,
    sockets: Option<Epoll>,
    core: Core,
}

/// In which thread's [`Rest`] a connection's sockets are: one that is moved to another thread is entered there too.
#[derive(Default)]
pub(super) struct Entered(Option<u64>);

thread_local! {
    static REST: RefCell<Rest> = RefCell::new(Rest::new());
}

/// Notes that this thread asks again.
pub(super) fn asks() {
    REST.with_borrow_mut(|rest| rest.core.asks(Instant::now()));
}

/// Notes that this thread moved something: it has work, and may take its time until it asks again.
pub(super) fn moved() {
    REST.with_borrow_mut(|rest| rest.core.in_vain = None);
}

/// What was asked for is not there. Where this thread's core is crowded: sleeps until something happens to the sockets of any of
/// its connections, but not for long, for NCCL's proxy has GPUs to look after too. Whether something happened.
pub(super) fn until_ready<'a>(entered: &mut Entered, sockets: impl Iterator<Item = &'a dyn AsFd>) -> bool {
    REST.with_borrow_mut(|rest| {
        let happened = rest.core.is_crowded(Instant::now()) && rest.sleep(entered, sockets);
        rest.core.in_vain = (!happened).then(Instant::now);
        happened
    })
}

impl Rest {
    /// Longest sleep: a small part of a slice.
    const MOST: Duration = Duration::from_micros(500);

    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Rest { number: NEXT.fetch_add(1, Ordering::Relaxed), sockets: None, core: Core::default() }
    }

    fn sleep<'a>(&mut self, entered: &mut Entered, sockets: impl Iterator<Item = &'a dyn AsFd>) -> bool {
        if self.sockets.is_none() {
            self.sockets = Epoll::new().ok();
        }
        // Without a descriptor left, the thread asks again and again as ever.
        let Some(epoll) = &self.sockets else { return false };
        if entered.0 != Some(self.number) {
            // One that is entered already, by a connection that came back to this thread, is an error without effect.
            for socket in sockets {
                let _ = epoll.add(socket, 0, libc::EPOLLIN | libc::EPOLLRDHUP);
            }
            entered.0 = Some(self.number);
        }
        epoll.sleep(Self::MOST)
    }
}

/// Whether others compute on this thread's core: it was away between asking in vain and asking again.
#[derive(Default)]
struct Core {
    /// When it asked in vain, if it did nothing since.
    in_vain: Option<Instant>,
    /// When it was away last.
    away: Option<Instant>,
    crowded_until: Option<Instant>,
}

impl Core {
    /// Whoever is away for so long gave the core to somebody who computes.
    const AWAY: Duration = Duration::from_micros(200);
    /// Once is a daemon's doing. Whoever shares a core is away again within some slices.
    const AGAIN: Duration = Duration::from_millis(50);
    /// A thread that sleeps does not notice that the core is its own again: it looks this often.
    const UNTIL_ANOTHER_LOOK: Duration = Duration::from_millis(100);

    /// It asks at `now`.
    fn asks(&mut self, now: Instant) {
        let was_away = self.in_vain.take().is_some_and(|before| now.duration_since(before) > Self::AWAY);
        if was_away && self.away.replace(now).is_some_and(|away| now.duration_since(away) < Self::AGAIN) {
            self.crowded_until = Some(now + Self::UNTIL_ANOTHER_LOOK);
        }
    }

    fn is_crowded(&self, now: Instant) -> bool {
        self.crowded_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn one(socket: &UnixStream) -> std::iter::Once<&dyn AsFd> {
        std::iter::once(socket)
    }

    /// Whether a core is crowded after a thread asked in vain, and again, at these pairs of microseconds.
    fn crowded(asked: impl IntoIterator<Item = (u64, u64)>) -> bool {
        let (mut core, start) = (Core::default(), Instant::now());
        let at = |micros| start + Duration::from_micros(micros);
        let mut last = 0;
        for (in_vain, again) in asked {
            core.in_vain = Some(at(in_vain));
            core.asks(at(again));
            last = again;
        }
        assert!(!core.is_crowded(at(last) + Core::UNTIL_ANOTHER_LOOK), "it looks again");
        core.is_crowded(at(last))
    }

    #[test]
    fn a_core_is_crowded_when_its_thread_is_away_again_and_again() {
        assert!(crowded([(0, 3_000), (3_010, 6_000)]));
        assert!(!crowded([(0, 3_000)]));
        assert!(!crowded((0..5).map(|second| (second * 1_000_000, second * 1_000_000 + 3_000))));
        assert!(!crowded((0..500).map(|step| (step * 100, step * 100 + 90))));
    }

    #[test]
    fn whoever_is_away_with_work_is_not_away() {
        let (mut core, start) = (Core::default(), Instant::now());
        for step in 0..5 {
            // Nothing was asked for in vain.
            core.asks(start + Duration::from_millis(3 * step));
        }
        assert!(core.away.is_none());
    }

    #[test]
    fn sleep_ends_when_something_comes_to_any_socket() {
        let mut rest = Rest::new();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (other, _kept) = UnixStream::pair().unwrap();
        assert!(!rest.sleep(&mut Entered::default(), one(&other)));
        let mut entered = Entered::default();
        assert!(!rest.sleep(&mut entered, one(&ours)));
        theirs.write_all(b"x").unwrap();
        assert!(rest.sleep(&mut entered, one(&ours)));
        // The same byte is no news.
        assert!(!rest.sleep(&mut entered, one(&ours)));
    }
}

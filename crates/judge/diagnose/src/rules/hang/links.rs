//! What connections show of hosts: through whose cable nothing gets, or only slowly.

use super::Job;
use crate::ranks::{RankSet, RankView};
use busbw_model::{Socket, TorchEvent};
use std::collections::{BTreeMap, BTreeSet};

/// An answer that takes so long waits in a queue, in microseconds …
const SLOW_US: u64 = 5_000;
/// … if it took this many times less when nothing was in its way.
const SLOW_TIMES: u64 = 20;
/// What was measured longer ago is of before the trouble, in milliseconds.
const RECENT_MS: u64 = 3_000;

impl Job<'_> {
    /// Ranks of hosts that no other host reaches: an end of every connection through which nothing gets.
    pub(super) fn cut_off(&self) -> RankSet {
        let stuck = self.case.run.sockets.iter().filter(|socket| socket.is_stuck);
        self.of_host(shared_end(stuck.map(ends)))
    }

    /// Ranks of the host that is an end of every pair of hosts between which answers take long, and of no other pair.
    pub(super) fn slowed(&self) -> RankSet {
        let mut pairs: BTreeMap<[&str; 2], bool> = BTreeMap::new();
        for socket in &self.case.run.sockets {
            if let Some(slow) = is_slow(socket).filter(|_| socket.local != socket.peer) {
                // Each end measures: the one that waits for its own program measures that as well.
                *pairs.entry(ends(socket)).or_insert(true) &= slow;
            }
        }
        let of = |wanted: bool| pairs.iter().filter(move |(_, slow)| **slow == wanted).map(|(ends, _)| *ends);
        // Of one pair alone nothing tells whose cable it is.
        let shared = shared_end(of(true)).filter(|_| of(true).count() > 1);
        self.of_host(shared.filter(|end| of(false).all(|ends| !ends.contains(end))))
    }

    /// Ranks of the host that several others do not reach, else of the one host of several whose ranks do not reach another.
    pub(super) fn unreachable(&self) -> RankSet {
        let of_host = |host: &str| self.ranks.which(|view| view.host == Some(host));
        let told = self.case.run.torch_statements.iter().filter_map(|statement| match &statement.event {
            TorchEvent::Unreachable(host) => Some((self.ranks.get(statement.rank?)?.host?, host.as_str())),
            _ => None,
        });
        let pairs: BTreeSet<(&str, &str)> = told.filter(|(own, host)| own != host).collect();
        let Some((own, host)) = pairs.first().copied() else { return RankSet::new() };
        let others = self.ranks.which(|view| view.host.is_some_and(|of| of != own && of != host));
        match pairs.len() {
            // Of two hosts nothing tells whose cable it is.
            1 if others.is_empty() => &of_host(own) | &of_host(host),
            1 => of_host(own),
            _ if pairs.iter().all(|(_, other)| *other == host) => of_host(host),
            _ => RankSet::new(),
        }
    }

    fn of_host(&self, address: Option<&str>) -> RankSet {
        let has = |view: &RankView| address.is_some_and(|address| view.addresses.contains(address));
        self.ranks.which(has)
    }
}

/// Both ends of a connection, in one order whichever end shows it.
fn ends(socket: &Socket) -> [&str; 2] {
    let mut ends = [socket.local.as_str(), socket.peer.as_str()];
    ends.sort_unstable();
    ends
}

/// The one address that all pairs share.
fn shared_end<'a>(mut pairs: impl Iterator<Item = [&'a str; 2]>) -> Option<&'a str> {
    let first: BTreeSet<&str> = pairs.next()?.into();
    let shared = pairs.fold(first, |shared, pair| &shared & &pair.into());
    (shared.len() == 1).then(|| shared.first().copied())?
}

/// Whether answers take long of late; nothing is known of a connection that nobody uses, nor of one that began in the trouble.
fn is_slow(socket: &Socket) -> Option<bool> {
    let (now, best) = socket.round_trip.filter(|_| socket.quiet_ms.is_some_and(|quiet| quiet <= RECENT_MS))?;
    (best < SLOW_US).then_some(now >= SLOW_US && now >= SLOW_TIMES.saturating_mul(best))
}

#[cfg(test)]
mod tests {
    use super::is_slow;
    use busbw_model::{Place, Socket, SourceLine};

    #[test]
    fn a_connection_that_was_never_quick_tells_nothing() {
        let slow = |round_trip, quiet_ms| {
            let source = SourceLine::new(Place::default(), "");
            let (local, peer) = ("10.0.0.1".to_string(), "10.0.0.2".to_string());
            is_slow(&Socket { pid: None, local, peer, is_stuck: false, round_trip, quiet_ms, source })
        };
        assert_eq!(slow(Some((400_000, 7)), Some(20)), Some(true));
        assert_eq!(slow(Some((900, 7)), Some(20)), Some(false));
        assert_eq!(slow(Some((1_135_000, 1_135_000)), Some(8)), None);
        assert_eq!(slow(Some((400_000, 7)), Some(60_000)), None);
    }
}

//! Who is at the other end of a rank's connections, and what is under way.

use busbw_model::WatchedPeer;
use busbw_probe::processes::{Connection, RankSample, Timer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A segment was sent again this often without an answer: TCP waits 0.2 s, then twice as long each time.
const UNANSWERED: u32 = 2;

/// Whether bytes were sent again and again, and nothing acknowledges them.
pub fn is_unanswered(connection: &Connection) -> bool {
    connection.timer == Timer::Retransmit && connection.retransmits >= UNANSWERED && connection.unacknowledged > 0
}

/// Whether a connection may be one between ranks: not with PyTorch's store, which all ranks ask now and then.
pub fn is_between_ranks(connection: &Connection, rank: &RankSample) -> bool {
    const ESTABLISHED: u8 = 1;
    let store = rank.identity.store;
    let with_store = [connection.local.port(), connection.remote.port()].into_iter().any(|port| Some(port) == store);
    connection.state == ESTABLISHED && !with_store
}

/// The ends of a rank's connections, one for each rank or address. `since` tells since when an address acknowledges nothing.
pub fn of(
    rank: &RankSample,
    all: &[&RankSample],
    own: &BTreeSet<IpAddr>,
    since: impl Fn(&IpAddr) -> Option<u64>,
) -> Vec<WatchedPeer> {
    let mut found: BTreeMap<(IpAddr, Option<u32>), WatchedPeer> = BTreeMap::new();
    for connection in rank.connections.iter().filter(|one| is_between_ranks(one, rank)) {
        let address = connection.remote.ip();
        let other = all.iter().find(|other| is_other_end(other, connection)).map(|other| other.identity.rank);
        let peer = found.entry((address, other)).or_insert_with(|| WatchedPeer {
            rank: other,
            address: address.to_string(),
            remote: !own.contains(&address) && !address.is_loopback(),
            unanswered_since_us: since(&address),
            ..WatchedPeer::default()
        });
        peer.connections += 1;
        peer.unacknowledged_bytes += connection.unacknowledged;
        peer.unread_bytes += connection.unread;
        peer.full |= connection.timer == Timer::WindowProbe;
        if connection.timer == Timer::Retransmit {
            peer.retransmits = peer.retransmits.max(connection.retransmits);
        }
    }
    found.into_values().collect()
}

fn is_other_end(rank: &RankSample, connection: &Connection) -> bool {
    rank.connections.iter().any(|one| (one.local, one.remote) == (connection.remote, connection.local))
}

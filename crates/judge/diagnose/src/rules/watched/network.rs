//! Hosts that do not acknowledge what is sent to them, and processes that do not read it.

use super::{Class, Fault, MOST, One, Seen};
use crate::words::listed;
use busbw_model::{Evidence, SourceLine, WatchedPeer};
use std::collections::{BTreeMap, BTreeSet};

/// The host that most others get no acknowledgement from: each pair that is silent speaks against both of its ends.
pub(super) fn unreachable<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    let named = |peer: &WatchedPeer| peer.host.clone().unwrap_or_else(|| peer.address.clone());
    let of = |one: &One<'a>| {
        let peers = one.rank.peers.iter().filter(|peer| peer.remote).map(|peer| (named(peer), peer));
        peers.collect::<Vec<_>>()
    };
    let mut silent: BTreeSet<(String, String)> = BTreeSet::new();
    let mut answering: BTreeSet<String> = BTreeSet::new();
    let mut since = u64::MAX;
    for one in seen.there() {
        for (host, peer) in of(&one) {
            match peer.unanswered_since_us {
                Some(at) => {
                    since = since.min(at);
                    silent.insert((one.rank.host.clone(), host));
                }
                None => {
                    answering.insert(host);
                }
            }
        }
    }
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    for (from, to) in &silent {
        *votes.entry(from).or_default() += 1;
        *votes.entry(to).or_default() += 1;
    }
    let most = votes.values().copied().max()?;
    let carrier = |host: &str| seen.documents.iter().any(|(_, of)| of.host == host && !of.without_carrier.is_empty());
    let watched = |host: &str| seen.documents.iter().any(|(_, of)| of.host == host);
    let first = votes.iter().filter(|(_, count)| **count == most).map(|(host, _)| *host);
    // Between two hosts, the one without a carrier; else the other one, as seen from here.
    let host = first.min_by_key(|host| (!carrier(host), watched(host), *host))?;
    let (there, from): (Vec<One>, Vec<One>) = seen.there().partition(|one| one.rank.host == host);
    let pairs: Vec<&(String, String)> = silent.iter().filter(|(a, b)| a == host || b == host).collect();
    let doing = if carrier(host) {
        let nics = seen.documents.iter().filter(|(_, of)| of.host == host).flat_map(|(_, of)| &of.without_carrier);
        format!("{} has no carrier", listed(nics.collect::<Vec<_>>().into_iter(), MOST))
    } else {
        "it acknowledges nothing that is sent to it".into()
    };
    let told = |one: &One<'a>| {
        let (_, peer) = of(one)
            .into_iter()
            .find(|(to, peer)| peer.unanswered_since_us.is_some() && (to == host || one.rank.host == host))?;
        let WatchedPeer { address, unacknowledged_bytes, retransmits, .. } = peer;
        let text = format!(
            "rank {} on {}: {unacknowledged_bytes} bytes to {} ({address}) are not acknowledged, retransmitted {retransmits} times",
            one.rank.rank,
            one.rank.host,
            named(peer)
        );
        Some(Evidence::new(SourceLine::new(one.place, &text)))
    };
    let evidence = from.iter().chain(&there).filter_map(told).take(4).collect();
    let fault = seen.fault(Class::Unreachable, &there, doing);
    debug_assert!(!pairs.is_empty());
    Some(Fault { since_us: since, host: Some(host.to_owned()), evidence, ..fault })
}

/// A rank that is not seen here acknowledges and reads nothing.
pub(super) fn deaf<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    let (one, peer) = seen.there().find_map(|one| Some((one, one.rank.peers.iter().find(|peer| peer.full)?)))?;
    let host = peer.host.clone().unwrap_or_else(|| peer.address.clone());
    let text = format!(
        "rank {}: {} bytes wait for {host} ({}), which has no room for them",
        one.rank.rank, peer.unacknowledged_bytes, peer.address
    );
    let evidence = vec![Evidence::new(SourceLine::new(one.place, &text))];
    let doing = "it acknowledges what it is sent, and its process does not read".to_owned();
    Some(Fault {
        host: Some(host),
        ranks: peer.rank.into_iter().collect(),
        evidence,
        ..seen.fault(Class::Deaf, &[], doing)
    })
}

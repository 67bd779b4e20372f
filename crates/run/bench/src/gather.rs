//! What rank 0 collects from all ranks: who they are, their times, their NICs.

use crate::backend::{Backend, Combine, Device, NicBytes};
use crate::row::NicTraffic;
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;

/// Brings a value of every rank to rank 0; `None` on other ranks.
fn gather<T: Serialize + DeserializeOwned>(backend: &mut dyn Backend, mine: &T) -> Result<Option<Vec<T>>> {
    let strange = |error: serde_json::Error| {
        Error::Job(format!(
            "rank 0 does not understand a rank's message; check that every rank runs the same busbw: {error}"
        ))
    };
    let mine = serde_json::to_vec(mine).map_err(strange)?;
    let Some(all) = backend.gather(&mine)? else { return Ok(None) };
    all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(strange)).collect::<Result<_>>().map(Some)
}

pub fn gather_devices(backend: &mut dyn Backend) -> Result<Option<Vec<Device>>> {
    let mine = backend.describe();
    gather(backend, &mine)
}

/// Times of each process, those of its slowest rank; ranks of a process follow one another.
pub fn gather_times(
    backend: &mut dyn Backend,
    mine: &[f64],
    ranks_per_process: usize,
) -> Result<Option<Vec<Vec<f64>>>> {
    let bytes: Vec<u8> = mine.iter().flat_map(|time| time.to_le_bytes()).collect();
    let Some(all) = backend.gather(&bytes)? else { return Ok(None) };
    let times = |bytes: &Vec<u8>| -> Vec<f64> {
        bytes.as_chunks().0.iter().map(|number: &[u8; 8]| f64::from_le_bytes(*number)).collect()
    };
    let ranks: Vec<Vec<f64>> = all.iter().map(times).collect();
    if ranks.iter().any(|times| times.len() != mine.len()) {
        return Err(Error::Job(
            "ranks timed different numbers of iterations; start every rank with the same -n".into(),
        ));
    }
    let slowest = |process: &[Vec<f64>]| {
        (0..mine.len()).map(|i| process.iter().map(|times| times[i]).fold(0.0, f64::max)).collect()
    };
    Ok(Some(ranks.chunks(ranks_per_process.max(1)).map(slowest).collect()))
}

/// What NICs carried between two looks at their counters; each once, however many ranks look at it. Empty but on rank
/// 0.
pub fn gather_nics(backend: &mut dyn Backend, before: &[NicBytes], after: &[NicBytes]) -> Result<Vec<NicTraffic>> {
    let mine = carried(before, after, is_card);
    let mut nics: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for nic in gather(backend, &mine)?.unwrap_or_default().into_iter().flatten() {
        // Ranks of a host look at different moments: the widest view holds the others.
        let (tx, rx) = nics.entry((nic.host, nic.name)).or_default();
        (*tx, *rx) = ((*tx).max(nic.tx), (*rx).max(nic.rx));
    }
    let traffic = |((host, name), (sent_bytes, received_bytes))| NicTraffic { host, name, sent_bytes, received_bytes };
    Ok(nics.into_iter().map(traffic).collect())
}

/// What each NIC carried between two looks. Every kernel has virtual interfaces that carry nothing; a card that carries nothing
/// is worth a line.
fn carried(before: &[NicBytes], after: &[NicBytes], is_card: impl Fn(&str) -> bool) -> Vec<NicBytes> {
    let carried = after.iter().filter_map(|now| {
        let then = before.iter().find(|then| then.name == now.name && then.host == now.host)?;
        let (tx, rx) = (now.tx.saturating_sub(then.tx), now.rx.saturating_sub(then.rx));
        Some(NicBytes { tx, rx, ..now.clone() })
    });
    carried.filter(|nic| nic.tx + nic.rx > 0 || is_card(&nic.name)).collect()
}

/// Whether an interface of this host has a device behind it.
fn is_card(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("device").exists()
}

/// Goes on only if every rank can: one that cannot returns its own error, the others one that names it.
///
/// # Errors
/// This rank's, or that the first rank which cannot go on has said why.
pub fn agree<T>(backend: &mut dyn Backend, mine: Result<T>) -> Result<T> {
    let rank = backend.describe().rank;
    let mut failed = [if mine.is_err() { rank as f64 } else { f64::MAX }];
    backend.all_reduce_f64(&mut failed, Combine::Min)?;
    match (mine, failed) {
        (Err(error), _) => Err(error),
        (Ok(value), [f64::MAX]) => Ok(value),
        (Ok(_), [first]) => Err(Error::Job(format!("rank {first} cannot run this; its message says why"))),
    }
}

/// Checks that every rank was started with the same flags.
pub fn check_alike(backend: &mut dyn Backend, mine: &str) -> Result<()> {
    let mine = (mine.to_string(), backend.describe());
    let all = gather(backend, &mine)?;
    let different = all.and_then(|all| all.into_iter().find(|(theirs, _)| *theirs != mine.0));
    let mut rank = [different.as_ref().map_or(f64::MAX, |(_, device)| device.rank as f64)];
    backend.all_reduce_f64(&mut rank, Combine::Min)?;
    match (different, rank) {
        (Some((theirs, device)), _) => Err(Error::Job(format!(
            "rank {} on {} runs '{theirs}', rank 0 '{}'; start every rank with the same flags",
            device.rank, device.host, mine.0
        ))),
        (None, [f64::MAX]) => Ok(()),
        (None, [rank]) => Err(Error::Job(format!(
            "rank {rank} and rank 0 run different things; start every rank with the same flags"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_interfaces_without_a_card_are_left_out() {
        let nic = |name: &str, tx| NicBytes { host: "h".into(), name: name.into(), tx, rx: 7 };
        let before = [nic("eth0", 10), nic("eth1", 10), nic("ifb0", 10), nic("veth0", 10)];
        let after = [nic("eth0", 15), nic("eth1", 10), nic("ifb0", 10), nic("veth0", 12), nic("new0", 9)];
        let shown = carried(&before, &after, |name| name.starts_with("eth"));
        let shown: Vec<(&str, u64, u64)> = shown.iter().map(|nic| (nic.name.as_str(), nic.tx, nic.rx)).collect();
        assert_eq!(shown, [("eth0", 5, 0), ("eth1", 0, 0), ("veth0", 2, 0)]);
    }
}

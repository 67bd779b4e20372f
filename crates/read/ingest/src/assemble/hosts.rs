//! Which rank of the job a rank of a host is: torchrun numbers its children by host in labels and folders, and by job in its report.

use crate::label::host_key;
use busbw_model::{Ended, RankEnd, Run};
use std::collections::{BTreeMap, BTreeSet};

/// A host as inputs show it.
#[derive(Default)]
struct Host {
    name: Option<String>,
    /// Its first rank: torchrun numbers the ranks of a host one after the other.
    first: Option<u32>,
    locals: BTreeSet<u32>,
}

/// Gives ends and outputs that have the number on their host the number in the job.
pub(super) fn number(run: &mut Run) {
    let hosts = hosts(run);
    let inputs = std::mem::take(&mut run.inputs);
    let host = |input: u32| hosts.get(inputs.get(input as usize).map_or("", |input| host_key(&input.path)));
    let known = |input: u32, local: u32| Some((host(input)?.first?.checked_add(local)?, host(input)?.name.clone()));
    for end in &mut run.ends {
        if let Some((rank, name)) =
            end.local.filter(|_| end.ranks.is_empty()).and_then(|local| known(end.source.place.input, local))
        {
            end.ranks.push(rank);
            end.host = end.host.take().or(name);
        }
    }
    for output in &mut run.outputs {
        if let Some((rank, name)) = output.local.and_then(|local| known(output.last.place.input, local)) {
            output.rank = output.rank.or(Some(rank));
            output.host = name;
        }
    }
    let ended = ends_of_launchers(&run.ends);
    run.unended.retain(|launcher| {
        let place = launcher.source.place;
        ended.get(&place.input).is_none_or(|last| *last < place.line)
    });
    for launcher in &mut run.unended {
        let of_host = host(launcher.source.place.input);
        let ranks = of_host.into_iter().flat_map(|host| host.locals.iter().map(move |local| (host.first, *local)));
        launcher.ranks = ranks.filter_map(|(first, local)| first?.checked_add(local)).collect();
    }
    run.inputs = inputs;
}

/// Where in each input torchrun's own end stands: it is told that a signal ended it, or that its ranks failed.
fn ends_of_launchers(ends: &[RankEnd]) -> BTreeMap<u32, u64> {
    const OF_TORCHRUN: [&str; 2] = ["SignalException", "ChildFailedError"];
    let own = ends.iter().filter(|end| match &end.how {
        Ended::Exception { kind, .. } => OF_TORCHRUN.iter().any(|name| kind.ends_with(name)),
        _ => false,
    });
    own.map(|end| (end.source.place.input, end.source.place.line)).collect()
}

/// The hosts by what their inputs have in common.
fn hosts(run: &Run) -> BTreeMap<String, Host> {
    let key = |input: u32| run.inputs.get(input as usize).map_or("", |input| host_key(&input.path)).to_string();
    let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
    for end in &run.ends {
        let Some(local) = end.local else { continue };
        let host = hosts.entry(key(end.source.place.input)).or_default();
        host.locals.insert(local);
        if let ([rank], Some(name)) = (end.ranks.as_slice(), &end.host) {
            host.name.get_or_insert_with(|| name.clone());
            host.first = host.first.or(rank.checked_sub(local));
        }
    }
    for output in &run.outputs {
        if let Some(local) = output.local {
            hosts.entry(key(output.last.place.input)).or_default().locals.insert(local);
        }
    }
    // Files of ranks may stand elsewhere than torchrun's own output: the host's name in their path tells.
    let named: Vec<(String, Option<u32>)> =
        hosts.values().filter_map(|host| Some((host.name.clone()?, host.first))).collect();
    for (key, host) in &mut hosts {
        let found = named.iter().find(|(name, _)| host.first.is_none() && name == file_of(key));
        if let Some((name, first)) = found {
            (host.name, host.first) = (Some(name.clone()), *first);
        }
    }
    in_order(&mut hosts);
    // torchrun names its host where ranks failed, not where a signal ended it: of several hosts, each is then called as its file is.
    let agrees = hosts.iter().all(|(key, host)| host.name.as_deref().is_none_or(|name| name == file_of(key)));
    if hosts.len() > 1 && agrees {
        hosts.iter_mut().for_each(|(key, host)| _ = host.name.get_or_insert_with(|| file_of(key).to_string()));
    }
    hosts
}

/// The last part of what the inputs of a host have in common.
fn file_of(key: &str) -> &str {
    key.rsplit(['/', '\\']).next().unwrap_or(key)
}

/// Hosts of which nothing tells the first rank: the only one begins with 0; of several, those in order of name if this agrees with all that
/// is known.
fn in_order(hosts: &mut BTreeMap<String, Host>) {
    let per_host = hosts.values().filter_map(|host| host.locals.last()).max().map_or(0, |last| last.saturating_add(1));
    let place = |index: usize| u32::try_from(index).ok().and_then(|index| index.checked_mul(per_host));
    let agrees = hosts.values().enumerate().all(|(index, host)| host.first.is_none() || host.first == place(index));
    if agrees {
        for (index, host) in hosts.values_mut().enumerate() {
            host.first = host.first.or(place(index));
        }
    }
}

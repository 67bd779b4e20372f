//! Ranks and hosts that differ from the rest: missing from the start, or with settings of their own.

use super::found;
use crate::case::Case;
use crate::words::{KNOWN, listed};
use busbw_model::{
    Code, Communicator, EnvOrigin, EnvSetting, Evidence, Finding, NetworkLine, NetworkStatement, Rank, Severity,
    SourceLine,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;

/// Variables that decide which network a host chooses.
const OF_NETWORKS: [&str; 4] = ["NCCL_NET_PLUGIN", "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_IB_HCA"];

/// Hosts that a title names at most.
const MOST_NAMED: usize = 4;

/// Hosts of a communicator on different networks. Where no line is of a communicator, those of an input.
pub fn networks(case: &Case) -> Vec<Finding> {
    let comms = case.run.communicators.iter();
    let of_comms = comms.map(|comm| (comm.hosts(&case.run.nodes), comm.came_up()));
    let of_inputs = || {
        let inputs = (0..case.run.inputs.len()).filter(|_| case.run.communicators.is_empty());
        inputs.map(|input| (speaking(case, input), false))
    };
    let parts: Vec<(Vec<&str>, bool)> = of_comms.chain(of_inputs()).collect();
    let networks = parts.iter().find_map(|(hosts, up)| different(case, hosts, *up));
    let plugins = || parts.iter().find_map(|(hosts, up)| plugins(case, hosts, *up));
    networks.or_else(plugins).into_iter().collect()
}

/// The hosts whose network lines an input has.
fn speaking<'a>(case: &'a Case, input: usize) -> Vec<&'a str> {
    let lines = case.run.nccl.networks.iter().filter(|line| line.source.place.input as usize == input);
    let hosts: BTreeSet<&str> = lines.filter_map(|line| line.host.as_deref()).collect();
    hosts.into_iter().collect()
}

/// The hosts of a communicator by the network that they chose, each with the line that says it.
type Chosen<'a> = BTreeMap<&'a str, Vec<(&'a str, &'a SourceLine)>>;

/// Hosts of a communicator that chose different networks: what one sends, the other does not understand.
fn different(case: &Case, hosts: &[&str], up: bool) -> Option<Finding> {
    let (chosen, inferred) = chosen(case, hosts);
    if chosen.len() < 2 {
        return None;
    }
    let named = |hosts: &[(&str, &SourceLine)]| listed(hosts.iter().map(|(host, _)| host), MOST_NAMED);
    let said: Vec<String> =
        chosen.iter().map(|(network, hosts)| format!("NET/{network} on {}", named(hosts))).collect();
    let setting = deciding(case, &chosen);
    let plugin = chosen.keys().any(|network| !matches!(*network, "IB" | "Socket"));
    let code = match setting {
        Some(setting) if setting.name != "NCCL_NET_PLUGIN" => Code::EnvOverride,
        _ if plugin => Code::NetPlugin,
        _ => Code::NetSocketFallback,
    };
    let (name, value, hosts) =
        setting.map_or(("", "", String::new()), |set| (&set.name, &set.value, set.hosts.join(", ")));
    let words: [(&str, &dyn Display); 5] = [
        ("said", &said.join(" and ")),
        ("name", &name),
        ("value", &value),
        ("hosts", &hosts),
        ("best", &best(&chosen)),
    ];
    let lines = chosen.iter().filter_map(|(network, hosts)| Some((network, hosts.first()?)));
    let evidence = setting.map(|set| Evidence::noted(set.source.clone(), format!("on {hosts} only")));
    let evidence =
        evidence.into_iter().chain(lines.map(|(network, (_, line))| Evidence::noted((*line).clone(), *network)));
    let id = if setting.is_some() { "odd.networks-set" } else { "odd.networks" };
    let severity = if up { Severity::Warning } else { Severity::Error };
    let finding = found(id, &words, evidence.collect());
    let confidence = if inferred { INFERRED } else { finding.confidence };
    Some(Finding { code, severity, confidence, ..finding })
}

/// How sure it is that hosts differ, where one of them does not say itself which network it chose.
const INFERRED: f64 = 0.75;

/// What each host says of networks.
type Said<'a> = HashMap<&'a str, Vec<&'a NetworkLine>>;

fn said<'a>(case: &'a Case) -> Said<'a> {
    let mut said = Said::new();
    for line in &case.run.nccl.networks {
        if let Some(host) = &line.host {
            said.entry(host).or_default().push(line);
        }
    }
    said
}

fn of_host<'a>(said: &Said<'a>, host: &str) -> impl Iterator<Item = &'a NetworkLine> + Clone {
    said.get(host).into_iter().flatten().copied()
}

/// The only network of each of the hosts that says one, and whether some of them only show it.
fn chosen<'a>(case: &'a Case, hosts: &[&'a str]) -> (Chosen<'a>, bool) {
    let mut chosen: Chosen = BTreeMap::new();
    let mut silent = Vec::new();
    let said = said(case);
    for host in hosts.iter().copied() {
        let mut lines = of_host(&said, host).filter(|line| line.statement == NetworkStatement::Chosen);
        let Some(first) = lines.next() else {
            silent.push(host);
            continue;
        };
        if lines.all(|line| line.network == first.network) {
            chosen.entry(&first.network).or_default().push((host, &first.source));
        }
    }
    let mut inferred = false;
    for host in silent {
        let Some((network, line)) = shown(&said, host) else { continue };
        let known = chosen.keys().copied().find(|known| kind_of(known) == network);
        inferred |= known.is_none() && !chosen.is_empty();
        chosen.entry(known.unwrap_or(network)).or_default().push((host, line));
    }
    (chosen, inferred)
}

/// The kind of a network: libfabric's plugin has had several names.
fn kind_of(network: &str) -> &str {
    if network.contains("ibfabric") || network == "OFI" { "OFI" } else { network }
}

/// The network that a host's lines show where none says which it chose: a plugin that has chosen its provider, devices of RDMA, or sockets where there
/// are none.
fn shown<'a>(said: &Said<'a>, host: &str) -> Option<(&'static str, &'a SourceLine)> {
    let lines = || of_host(said, host);
    let note = |line: &&NetworkLine, text: &str| matches!(&line.statement, NetworkStatement::Note(said) if said.to_ascii_lowercase().starts_with(text));
    let listed = |network: &str| lines().find(|line| line.network == network && !line.listed().is_empty());
    let without = lines().any(|line| line.network == "IB" && line.statement == NetworkStatement::NoDevice);
    let plugin = lines().find(|line| line.network == "OFI" && note(line, "selected provider is"));
    let sockets = || listed("Socket").filter(|_| without).map(|line| ("Socket", &line.source));
    let devices = || listed("IB").map(|line| ("IB", &line.source));
    plugin.map(|line| ("OFI", &line.source)).or_else(devices).or_else(sockets)
}

/// The versions of plugins that a host says it loads: `NET/OFI Initializing aws-ofi-nccl 1.9.1-aws`, `NET/Plugin: Loaded net plugin busbw (v12)`.
fn versions<'a>(of_hosts: &Said<'a>, host: &str) -> BTreeMap<&'static str, &'a NetworkLine> {
    const HEADS: [(&str, &str); 3] =
        [("OFI", "Initializing aws-ofi-nccl "), ("OFI", "Using Libfabric version "), ("Plugin", "Loaded net plugin ")];
    let lines = || of_host(of_hosts, host);
    let said = |line: &&NetworkLine, (network, head): (&str, &str)| {
        line.network == network && matches!(&line.statement, NetworkStatement::Note(note) if note.starts_with(head))
    };
    HEADS.iter().filter_map(|head| Some((head.1, lines().find(|line| said(line, *head))?))).collect()
}

/// Hosts that load different versions of a plugin.
fn plugins(case: &Case, hosts: &[&str], up: bool) -> Option<Finding> {
    let of_hosts = said(case);
    let told: Vec<(&str, BTreeMap<&str, &NetworkLine>)> =
        hosts.iter().map(|host| (*host, versions(&of_hosts, host))).collect();
    let note = |line: &NetworkLine| match &line.statement {
        NetworkStatement::Note(note) => note.trim_end_matches('.').to_string(),
        _ => String::new(),
    };
    let (first, rest) = told.split_first()?;
    let differs = |(host, versions): &(&str, BTreeMap<&str, &NetworkLine>)| {
        let (head, one) =
            first.1.iter().find(|(head, one)| versions.get(*head).is_some_and(|other| note(one) != note(other)))?;
        let other = *versions.get(head)?;
        let said = |line: &NetworkLine| note(line).trim_start_matches(head).to_string();
        let what = head
            .trim_start_matches("Initializing ")
            .trim_start_matches("Using ")
            .trim_start_matches("Loaded ")
            .trim_end();
        let title = format!("{what} {} on {} and {} on {host}", said(one), first.0, said(other));
        Some((title, [one.source.clone(), other.source.clone()]))
    };
    let (title, lines) = rest.iter().find_map(differs)?;
    let finding = found("odd.plugins", &[("said", &title)], lines.map(Evidence::new).to_vec());
    let severity = if up && case.refuters.ended_well() { Severity::Info } else { finding.severity };
    Some(Finding { severity, ..finding })
}

/// The variable that only hosts of one network have.
fn deciding<'a>(case: &'a Case, chosen: &Chosen) -> Option<&'a EnvSetting> {
    let within = |set: &&EnvSetting| {
        let has = |(host, _): &(&str, &SourceLine)| set.hosts.iter().any(|named| named == host);
        chosen.values().filter(|hosts| hosts.iter().any(has)).count() == 1
    };
    let settings = || case.run.nccl.env.iter().filter(|set| set.origin == EnvOrigin::NcclLog).filter(within);
    OF_NETWORKS.iter().find_map(|name| settings().find(|set| set.name == *name))
}

/// A host that has more than sockets.
fn best<'a>(chosen: &Chosen<'a>) -> &'a str {
    let better = chosen.iter().find(|(network, _)| **network != "Socket");
    better.and_then(|(_, hosts)| hosts.first()).map_or("", |(host, _)| host)
}

/// Hosts of one network that differ in what the search for paths cannot even out: variables and devices. That ranks came up
/// says nothing against it.
pub fn apart(case: &Case) -> Vec<Finding> {
    let settings = || case.run.communicators.iter().find_map(|comm| differing(case, comm));
    let devices = || case.run.communicators.iter().find_map(|comm| devices(case, comm));
    devices().into_iter().chain(settings()).collect()
}

/// A variable with different values on hosts of a communicator, or set on some of them only.
fn differing(case: &Case, comm: &Communicator) -> Option<Finding> {
    let hosts = comm.hosts(&case.run.nodes);
    KNOWN.must_agree.iter().find_map(|name| {
        let of_comm = |set: &&EnvSetting| set.name == *name && set.origin == EnvOrigin::NcclLog && of(set, &hosts);
        let settings: Vec<&EnvSetting> = case.run.nccl.env.iter().filter(of_comm).collect();
        let one = *settings.first()?;
        let elsewhere = |other: &&&EnvSetting| other.value != one.value && lacks(one, other) && lacks(other, one);
        let other = settings.iter().find(elsewhere).copied();
        let silent = |host: &&&str| is_whole(case, comm, host) && !settings.iter().any(|set| of(set, &[host]));
        let without: Vec<&&str> = hosts.iter().filter(silent).collect();
        let said = match other {
            Some(other) => format!("{name} is {} on {} and {} on {}", one.value, named(one), other.value, named(other)),
            None if without.is_empty() => return None,
            None => {
                format!(
                    "{name}={} is set on {}, and not on {}",
                    one.value,
                    named(one),
                    listed(without.iter(), MOST_NAMED)
                )
            }
        };
        Some(disagreement(case, said, one, other))
    })
}

fn named(set: &EnvSetting) -> String {
    listed(set.hosts.iter(), MOST_NAMED)
}

/// Whether a setting is of one of the hosts.
fn of(set: &EnvSetting, hosts: &[&str]) -> bool {
    set.hosts.iter().any(|host| hosts.contains(&host.as_str()))
}

/// Whether one has a host that the other has not: runs one after the other are on the same.
fn lacks(one: &EnvSetting, other: &EnvSetting) -> bool {
    other.hosts.iter().any(|host| !one.hosts.contains(host))
}

/// Whether the log of a host reaches from its choice of a network to the end of its start: variables are read in between.
fn is_whole(case: &Case, comm: &Communicator, host: &str) -> bool {
    let began = case.run.nccl.networks.iter().any(|line| line.host.as_deref() == Some(host));
    let up = |rank: &Rank| rank.is_up() && host_of(case, rank) == Some(host);
    began && comm.ranks.values().any(up)
}

fn host_of<'a>(case: &'a Case, rank: &Rank) -> Option<&'a str> {
    case.run.nodes.get(rank.node? as usize).map(|node| node.host.as_str())
}

fn disagreement(case: &Case, title: String, one: &EnvSetting, other: Option<&EnvSetting>) -> Finding {
    let severity = if case.refuters.ended_well() { Severity::Info } else { Severity::Warning };
    let evidence = std::iter::once(one).chain(other).map(|e| Evidence::noted(e.source.clone(), e.value.clone()));
    Finding { severity, ..found("odd.variable", &[("said", &title)], evidence.collect()) }
}

/// What a host of a communicator offers.
struct Offer<'a> {
    host: &'a str,
    ranks: usize,
    line: &'a SourceLine,
    devices: BTreeSet<(&'a str, Option<u32>)>,
}

/// What each host of a communicator offers, as far as its lines show.
fn offers<'a>(case: &'a Case, comm: &Communicator) -> Vec<Offer<'a>> {
    let mut ranks: HashMap<&str, usize> = HashMap::new();
    for host in comm.ranks.values().filter_map(|rank| host_of(case, rank)) {
        *ranks.entry(host).or_default() += 1;
    }
    let mut lists: HashMap<&str, Vec<&NetworkLine>> = HashMap::new();
    for line in case.run.nccl.networks.iter().filter(|line| line.network == "IB" && !line.listed().is_empty()) {
        lists.entry(line.host.as_deref().unwrap_or_default()).or_default().push(line);
    }
    let offer = |host: &'a str| {
        let lists = lists.get(host)?;
        // A NIC that NCCL fuses of several is named after them: `mlx5_0+mlx5_1`.
        let nics = lists.iter().flat_map(|line| line.listed());
        let devices = nics.flat_map(|nic| nic.name.split('+').map(|name| (name, nic.port))).collect();
        Some(Offer { host, ranks: ranks.get(host).copied().unwrap_or(0), line: &lists.first()?.source, devices })
    };
    comm.hosts(&case.run.nodes).into_iter().filter_map(offer).collect()
}

/// A host that offers fewer RDMA devices than another with as many ranks, where these are in use.
fn devices(case: &Case, comm: &Communicator) -> Option<Finding> {
    let offers = offers(case, comm);
    let count = |size: usize| offers.iter().filter(|offer| offer.devices.len() == size).count();
    let usual = offers.iter().map(|offer| offer.devices.len()).max_by_key(|size| (count(*size), *size))?;
    let whole = offers.iter().find(|offer| offer.devices.len() == usual)?;
    let in_use: BTreeSet<u32> = comm.transports.iter().filter(|t| t.kind.is_network()).filter_map(|t| t.nic).collect();
    let needed = |offer: &&Offer| {
        let (has, ranks) = (offer.devices.len(), offer.ranks);
        has < usual && ranks == whole.ranks && (ranks > has || in_use.len() > has)
    };
    let poor = offers.iter().find(needed)?;
    let missing: Vec<&str> = whole.devices.difference(&poor.devices).map(|(name, _)| *name).collect();
    let same_names = poor.devices.is_subset(&whole.devices);
    let which =
        if same_names { format!(": {} is missing there", listed(missing.iter(), MOST_NAMED)) } else { String::new() };
    let of_poor = |set: &&EnvSetting| set.name == "NCCL_IB_HCA" && of(set, &[poor.host]) && !of(set, &[whole.host]);
    let setting = case.run.nccl.env.iter().find(of_poor);
    let said =
        format!("{} offers {} RDMA devices, {} offers {usual}{which}", poor.host, poor.devices.len(), whole.host);
    let evidence = [(poor.line, "fewer devices"), (whole.line, "the usual ones")];
    let evidence = setting
        .map(|set| Evidence::noted(set.source.clone(), "leaves devices out"))
        .into_iter()
        .chain(evidence.map(|(line, note)| Evidence::noted(line.clone(), note)));
    let id = if setting.is_some() { "odd.devices-set" } else { "odd.devices" };
    let (value, hosts) = setting.map_or(("", String::new()), |set| (&set.value, named(set)));
    let words: [(&str, &dyn Display); 4] =
        [("said", &said), ("poor", &poor.host), ("value", &value), ("hosts", &hosts)];
    Some(found(id, &words, evidence.collect()))
}

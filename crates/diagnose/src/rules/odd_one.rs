//! Ranks and hosts that differ from the rest: missing from the start, or with settings of their own.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{
    Code, Communicator, EnvOrigin, EnvSetting, Evidence, Finding, NetworkLine, NetworkStatement, Severity, SourceLine,
};
use std::collections::BTreeMap;

/// Variables that must be alike on all ranks of a communicator, or they disagree about what to send.
const MUST_AGREE: [&str; 12] = [
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_BUFFSIZE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NTHREADS",
    "NCCL_CROSS_NIC",
    "NCCL_NET",
    "NCCL_LL_BUFFSIZE",
    "NCCL_NCHANNELS_PER_NET_PEER",
];

/// Variables that decide which network a host chooses.
const OF_NETWORKS: [&str; 4] = ["NCCL_NET_PLUGIN", "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_IB_HCA"];

/// Hosts that a title names at most.
const MOST_NAMED: usize = 4;

/// The odd ones of every communicator.
pub fn rule(case: &Case) -> Vec<Finding> {
    let networks = case.run.communicators.iter().find_map(|comm| networks(case, comm));
    networks.into_iter().chain(differing(case)).collect()
}

/// The hosts of a communicator by the network that they chose, each with the line that says it.
type Chosen<'a> = BTreeMap<&'a str, Vec<(&'a str, &'a SourceLine)>>;

/// Hosts of a communicator that chose different networks: what one sends, the other does not understand.
fn networks(case: &Case, comm: &Communicator) -> Option<Finding> {
    let chosen = chosen(case, comm);
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
    let why = setting
        .map_or(String::new(), |set| format!(": {}={} is set on {} only", set.name, set.value, set.hosts.join(", ")));
    let draft = Draft {
        code,
        severity: if comm.came_up() { Severity::Warning } else { Severity::Error },
        confidence: 0.95,
        title: format!("Hosts of one job use different networks, {}{why}", said.join(" and ")),
        explanation: "Both ends of a connection must use the same network: what a rank tells of its own, a rank with another cannot read. Ranks \
                      then close connections, connect to addresses that are none, or wait for ever. What stands behind it in the log follows from it."
            .into(),
    };
    let lines = chosen.iter().filter_map(|(network, hosts)| Some((network, hosts.first()?)));
    let evidence = setting.map(|set| Evidence::noted(set.source.clone(), format!("on {} only", set.hosts.join(", "))));
    let evidence =
        evidence.into_iter().chain(lines.map(|(network, (_, line))| Evidence::noted((*line).clone(), *network)));
    let remedy = match setting {
        Some(set) => format!(
            "Set {} on all hosts alike, or on none: `mpirun -x {}={} …` or `unset {}`",
            set.name, set.name, set.value, set.name
        ),
        None => format!(
            "Give all hosts what {} has: devices, drivers and libraries. Compare: `ls /sys/class/infiniband; ldconfig -p | grep -E 'nccl-net|ibverbs'`",
            best(&chosen)
        ),
    };
    Some(draft.finding(evidence.collect(), &[&remedy, "Compare the hosts: `busbw check --hosts HOST,HOST`"]))
}

/// The only network of each host of a communicator that says one.
fn chosen<'a>(case: &'a Case, comm: &Communicator) -> Chosen<'a> {
    let mut chosen: Chosen = BTreeMap::new();
    for host in comm.hosts(case.run) {
        let of_host =
            |line: &&NetworkLine| line.host.as_deref() == Some(host) && line.statement == NetworkStatement::Chosen;
        let mut lines = case.run.nccl.networks.iter().filter(of_host);
        let Some(first) = lines.next() else { continue };
        if lines.all(|line| line.network == first.network) {
            chosen.entry(&first.network).or_default().push((host, &first.source));
        }
    }
    chosen
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

/// A variable with different values on hosts of one communicator.
fn differing(case: &Case) -> Option<Finding> {
    let logged =
        || case.run.nccl.env.iter().filter(|e| e.origin == EnvOrigin::NcclLog && MUST_AGREE.contains(&e.name.as_str()));
    let together = |a: &str, b: &str| {
        case.run.communicators.iter().any(|comm| {
            let hosts = comm.hosts(case.run);
            hosts.contains(&a) && hosts.contains(&b)
        })
    };
    logged().find_map(|one| {
        let other = logged().find(|other| {
            other.name == one.name
                && other.value != one.value
                && one.hosts.iter().any(|a| other.hosts.iter().any(|b| a != b && together(a, b)))
        })?;
        let draft = Draft {
            code: Code::EnvOverride,
            severity: Severity::Warning,
            confidence: 0.85,
            title: format!("{} is {} on {} and {} on {}", one.name, one.value, one.hosts.join(", "), other.value, other.hosts.join(", ")),
            explanation: "Ranks of one communicator decide for themselves which algorithm, protocol and channels to use, from their own \
                          variables. Where these differ they send what the other end does not expect: hangs, mismatches, wrong sizes."
                .into(),
        };
        let evidence = [one, other].map(|e| Evidence::noted(e.source.clone(), e.value.clone())).into();
        Some(draft.finding(evidence, &["Give all ranks the same variables: `mpirun -x NAME=VALUE …`, and compare: `mpirun --map-by ppr:1:node bash -c 'echo $(hostname) $(env | grep ^NCCL_ | sort | md5sum)'`"]))
    })
}

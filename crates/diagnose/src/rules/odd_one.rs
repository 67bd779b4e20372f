//! Ranks and hosts that differ from the rest: missing from the start, or with settings of their own.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Code, Communicator, EnvOrigin, Evidence, Finding, Severity};

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

/// Ranks and hosts that a title names at most.
const MOST_NAMED: usize = 8;

/// The odd ones of every communicator.
pub fn rule(case: &Case) -> Vec<Finding> {
    let missing = case.run.communicators.iter().filter(|_| case.ends.failed()).find_map(|comm| missing(case, comm));
    missing.into_iter().chain(differing(case)).collect()
}

/// Ranks that did not come up with the others.
fn missing(case: &Case, comm: &Communicator) -> Option<Finding> {
    let nranks = comm.nranks?;
    let complete = comm.ranks.values().filter(|r| r.complete).count() as u32;
    if complete == 0 || complete == nranks || complete * 2 < nranks {
        return None;
    }
    let absent: Vec<u32> = (0..nranks).filter(|rank| comm.ranks.get(rank).is_none_or(|r| !r.complete)).collect();
    let host = |rank: &u32| Some(case.run.nodes.get(comm.ranks.get(rank)?.node? as usize)?.host.clone());
    let mut hosts: Vec<String> = absent.iter().filter_map(host).collect();
    hosts.dedup();
    let ranks = if absent.len() == 1 { "Rank" } else { "Ranks" };
    let place = if hosts.is_empty() { String::new() } else { format!(" (on {})", listed(hosts.iter(), MOST_NAMED)) };
    let draft = Draft {
        code: Code::PeerDied,
        severity: Severity::Warning,
        confidence: 0.55,
        title: format!(
            "{ranks} {}{place} never finished initialising, {complete} of {nranks} did",
            listed(absent.iter(), MOST_NAMED)
        ),
        explanation: "Most ranks printed `Init COMPLETE` for this communicator, these did not. They died, hang, or cannot be reached: what \
                      their own output says first is the cause, what the others say follows from it."
            .into(),
    };
    Some(draft.finding(
        Vec::new(),
        &[
            "Look at the output of these ranks first, from the first WARN on",
            "See where they are: `py-spy dump --pid PID` or `gdb -p PID -batch -ex bt`",
        ],
    ))
}

/// A variable with different values on hosts of one communicator.
fn differing(case: &Case) -> Option<Finding> {
    let logged =
        || case.run.nccl.env.iter().filter(|e| e.origin == EnvOrigin::NcclLog && MUST_AGREE.contains(&e.name.as_str()));
    let together = |a: &str, b: &str| {
        case.run.communicators.iter().any(|comm| {
            let has = |host: &str| {
                comm.ranks.values().filter_map(|r| case.run.nodes.get(r.node? as usize)).any(|node| node.host == host)
            };
            has(a) && has(b)
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

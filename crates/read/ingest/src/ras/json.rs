//! Reads the JSON of `ncclras -f json` (NCCL 2.28.7 and later): `rasDumpCommsToJSON` in `src/ras/client_support.cc`.

use super::text::loss;
use super::{error_name, launched, report_error, share};
use crate::json_objects::{JsonObject, Lines};
use busbw_model::{RasCommunicator, RasProcess, RasRank, RasReport, RasStatus, SourceLine};
use serde_json::Value;

/// Whether an object is the answer to a query.
pub(crate) fn looks_like_report(value: &Value) -> bool {
    value["communicators"].is_array() && (value.get("communicators_count").is_some() || value.get("ras").is_some())
}

/// Whether an object is an event of the monitoring mode (`ncclras -m -f json`).
pub(crate) fn looks_like_event(value: &Value) -> bool {
    value["event"].as_str().is_some_and(|event| event.starts_with("PEER_")) && value.get("group").is_some()
}

pub(crate) fn report(object: &JsonObject) -> RasReport {
    let value = &object.value;
    let mut lines = Lines::of(object);
    let number = |key: &str| value[key].as_u64().and_then(|number| u32::try_from(number).ok());
    RasReport {
        source: object.source(),
        nccl_version: value["nccl_version"].as_str().map(str::to_string),
        cuda: number("cuda_runtime_version").zip(number("cuda_driver_version")),
        time: value["timestamp"].as_str().map(str::to_string),
        communicators: array(&value["communicators"]).iter().map(|comm| communicator(comm, &mut lines)).collect(),
        timeouts: value["ras"]["timeouts_count"].as_u64().unwrap_or_default() as u32,
        ..RasReport::default()
    }
}

/// The report that an event of the monitoring mode amounts to: a process was lost.
pub(crate) fn event(object: &JsonObject) -> RasReport {
    let peer = &object.value["peer"];
    let process = || {
        Some(RasProcess {
            pid: peer["pid"].as_u64()?,
            host: peer["host"].as_str()?.to_string(),
            dead: loss(object.value["event"].as_str()?)?,
            source: Lines::of(object).next("\"event\""),
        })
    };
    RasReport {
        source: object.source(),
        time: object.value["timestamp"].as_str().map(str::to_string),
        lost_processes: process().into_iter().collect(),
        ..RasReport::default()
    }
}

fn communicator(value: &Value, lines: &mut Lines) -> RasCommunicator {
    let hash = value["hash"].as_str().unwrap_or_default();
    let mut comm = RasCommunicator {
        hash: hash.trim_start_matches("0x").to_string(),
        size: value["size"].as_u64().and_then(|size| size.try_into().ok()),
        missing_ranks: value["missing_ranks_count"].as_u64().unwrap_or_default() as u32,
        source: lines.next("\"hash\""),
        ..RasCommunicator::default()
    };
    for value in array(&value["ranks"]) {
        let source = lines.next("\"rank\"");
        let rank = rank(value, source.clone());
        states(&mut comm, (value, rank.rank), &source);
        comm.ranks.push(rank);
    }
    comm.missing = array(&value["missing_ranks"]).iter().map(|value| rank(value, lines.next("\"rank\""))).collect();
    comm.status.sort_by_key(|share| std::cmp::Reverse(share.count));
    comm.launched.retain(|launched| launched.most() > 0);
    for launched in &mut comm.launched {
        launched.shares.sort_by_key(|share| (std::cmp::Reverse(share.count), share.value));
    }
    comm
}

fn rank(value: &Value, source: SourceLine) -> RasRank {
    let host = value["host"].as_str().filter(|host| *host != "unknown");
    let flag = |key: &str| value["status"][key].as_bool().unwrap_or(false);
    RasRank {
        rank: value["rank"].as_u64().unwrap_or_default() as u32,
        host: host.map(str::to_string),
        pid: value["pid"].as_u64(),
        device: value["cuda_dev"].as_u64().and_then(|device| device.try_into().ok()),
        unresponsive: flag("unresponsive"),
        dead: flag("considered_dead"),
        source,
    }
}

/// The status, errors and counts of a rank that answered.
fn states(comm: &mut RasCommunicator, (value, rank): (&Value, u32), source: &SourceLine) {
    const SUCCESS: i64 = 0;
    const IN_PROGRESS: i64 = 7;
    let status = &value["status"];
    let flag = |key: &str| status[key].as_bool().unwrap_or(false);
    let result = |key: &str| status[key].as_i64().unwrap_or(SUCCESS);
    // The order in which RAS itself judges (`rasClientRunComms`).
    let now = match () {
        () if flag("abort_flag") => RasStatus::Abort,
        () if flag("finalize_called") || flag("destroy_flag") => RasStatus::Finalize,
        () if result("init_state") == SUCCESS => RasStatus::Running,
        () => RasStatus::Init,
    };
    share(&mut comm.status, now, (1, Some(rank)), source);
    for (key, asynchronous) in [("init_state", false), ("async_error", true)] {
        let result = result(key);
        if result != SUCCESS && result != IN_PROGRESS {
            report_error(&mut comm.errors, asynchronous, error_name(result), (1, Some(rank)), source);
        }
    }
    for (operation, count) in value["collective_counts"].as_object().into_iter().flatten() {
        if let Some(shares) = launched(&mut comm.launched, operation) {
            share(shares, count.as_u64().unwrap_or_default(), (1, Some(rank)), source);
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

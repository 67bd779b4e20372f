//! Objects of JSON in which Kubernetes, Docker and AWS Batch tell how pods, jobs and containers ended: one alone or a list, in one line or laid out.

use super::codes::by_failure;
use busbw_model::{EndTeller, Ended, RankEnd};
use serde_json::Value;

/// Lists hold no more than this.
const MOST: usize = 10_000;

/// The ends that an object tells, each with the name of its pod, job or container, and what its state is in words.
pub(crate) fn ends_in(object: &Value) -> Vec<(RankEnd, String)> {
    let items = ["items", "jobs"].iter().find_map(|list| object[list].as_array());
    let each = items.map_or(std::slice::from_ref(object), Vec::as_slice).iter().take(MOST);
    each.filter_map(|item| {
        let (name, how, state) = pod(item).or_else(|| job(item)).or_else(|| batch(item)).or_else(|| container(item))?;
        let end = RankEnd { told_by: EndTeller::List, command: Some(name.to_string()), ..RankEnd::of(how) };
        Some((end, format!("{name}: {state}")))
    })
    .collect()
}

/// A pod of which a container ended with an error, or waits to be started again after one, or that failed as a whole.
fn pod(item: &Value) -> Option<(&str, Ended, String)> {
    let status = &item["status"];
    let name = item["metadata"]["name"].as_str().filter(|_| item["kind"] == "Pod")?;
    let containers = ["containerStatuses", "initContainerStatuses"].iter().filter_map(|list| status[list].as_array());
    let ended = containers.flatten().find_map(|container| {
        let waits = container["state"]["waiting"]["reason"].as_str() == Some("CrashLoopBackOff");
        let last = if waits { "lastState" } else { "state" };
        let end = &container[last]["terminated"];
        let how = ended(&end["exitCode"], end["reason"].as_str().unwrap_or_default())?;
        Some((how, format!("terminated with exitCode {}", end["exitCode"])))
    });
    let as_a_whole = || {
        let reason = status["reason"].as_str().unwrap_or("no reason told");
        (status["phase"] == "Failed").then(|| (Ended::Exit(None), format!("phase Failed ({reason})")))
    };
    let (how, state) = ended.or_else(as_a_whole)?;
    Some((name, how, state))
}

/// A Job, PyTorchJob, MPIJob or the like that is given up.
fn job(item: &Value) -> Option<(&str, Ended, String)> {
    let kind = item["kind"].as_str().filter(|kind| kind.ends_with("Job"))?;
    let fails = |one: &&Value| one["type"] == "Failed" && one["status"] == "True";
    let failed = item["status"]["conditions"].as_array()?.iter().find(fails)?;
    let reason = failed["reason"].as_str().unwrap_or("no reason told");
    Some((item["metadata"]["name"].as_str()?, Ended::Exit(None), format!("{kind} Failed ({reason})")))
}

/// `aws batch describe-jobs`.
fn batch(item: &Value) -> Option<(&str, Ended, String)> {
    let name = item["jobName"].as_str().filter(|_| item["status"] == "FAILED")?;
    let container = &item["container"];
    let reason = container["reason"].as_str().or(item["statusReason"].as_str()).unwrap_or("no reason told");
    let how = ended(&container["exitCode"], reason).unwrap_or(Ended::Exit(None));
    Some((name, how, format!("FAILED ({reason})")))
}

/// `docker inspect`, `podman inspect`.
fn container(item: &Value) -> Option<(&str, Ended, String)> {
    let state = &item["State"];
    let name = item["Name"].as_str().map_or("a container", |name| name.trim_start_matches('/'));
    let reason = if state["OOMKilled"] == true { "OOMKilled" } else { "" };
    let how = ended(&state["ExitCode"], reason).filter(|_| state["Running"] != true)?;
    Some((name, how, format!("exited with ExitCode {}", state["ExitCode"])))
}

/// By an exit code, where it shows a failure, and the reason beside it.
fn ended(code: &Value, reason: &str) -> Option<Ended> {
    let how = by_failure(&code.as_i64()?.to_string())?;
    let is_memory = ["OOMKilled", "OutOfMemory"].iter().any(|words| reason.starts_with(words));
    Some(if is_memory { Ended::Killed("Out Of Memory".into()) } else { how })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_tell_how_things_ended() {
        let pod = |name: &str, phase: &str, code: i32| json!({"kind": "Pod", "metadata": {"name": name}, "status": {"phase": phase, "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}]}});
        let failed = |state: &str| json!({"kind": "Job", "metadata": {"name": "fit"}, "status": {"conditions": [{"type": "Failed", "status": state}]}});
        let batch =
            |status: &str| json!({"jobs": [{"jobName": "fit", "status": status, "container": {"exitCode": 1}}]});
        let docker = |running: bool| json!({"Name": "/fit", "State": {"Running": running, "ExitCode": 3}});
        for (object, told) in [
            (pod("a", "Succeeded", 0), vec![]),
            (pod("a", "Failed", 3), vec!["a: terminated with exitCode 3"]),
            (
                json!({"kind": "List", "items": [pod("a", "Succeeded", 0), pod("b", "Failed", 137)]}),
                vec!["b: terminated with exitCode 137"],
            ),
            (
                json!({"kind": "Pod", "metadata": {"name": "a"}, "status": {"phase": "Failed", "reason": "Evicted"}}),
                vec!["a: phase Failed (Evicted)"],
            ),
            (failed("True"), vec!["fit: Job Failed (no reason told)"]),
            (failed("False"), vec![]),
            (batch("FAILED"), vec!["fit: FAILED (no reason told)"]),
            (batch("SUCCEEDED"), vec![]),
            (docker(false), vec!["fit: exited with ExitCode 3"]),
            (docker(true), vec![]),
            (json!({"kind": "Service", "status": {}}), vec![]),
        ] {
            let found: Vec<String> = ends_in(&object).into_iter().map(|(_, state)| state).collect();
            assert_eq!(found, told, "{object}");
        }
    }
}

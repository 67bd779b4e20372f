//! Rows and fields in which Kubernetes and Slurm show that a pod or a job failed. They list what else ran as well: each names whose row it is.

use super::codes::{by_failure, by_signal};
use crate::cursor::finder;
use crate::text::{is_number, leading, parted};
use busbw_model::{EndTeller, Ended, RankEnd};

pub(super) fn read(line: &str) -> Option<RankEnd> {
    let (name, how) = pod(line).or_else(|| job(line)).or_else(|| record(line))?;
    Some(RankEnd { told_by: EndTeller::List, command: Some(name.to_string()), ..RankEnd::of(how) })
}

/// A row of `kubectl get pods`, with the namespace in front or without: NAME READY STATUS RESTARTS AGE. The statuses are kubelet's and the API's
/// (`pkg/printers/internalversion/printers.go`).
fn pod(line: &str) -> Option<(&str, Ended)> {
    const FAILED: [&str; 5] =
        ["Error", "CrashLoopBackOff", "ContainerCannotRun", "DeadlineExceeded", "ContainerStatusUnknown"];
    let words: Vec<&str> = line.split_whitespace().take(6).collect();
    let is_ready = |word: &&str| word.split_once('/').is_some_and(|(up, all)| is_number(up) && is_number(all));
    let at = words.iter().position(is_ready).filter(|at| (1..=2).contains(at))?;
    let [status, restarts, ..] = words[at + 1..] else { return None };
    let how = match status.trim_start_matches("Init:") {
        "OOMKilled" => Ended::Killed("Out Of Memory".into()),
        status if FAILED.contains(&status) => Ended::Exit(None),
        _ => return None,
    };
    is_number(restarts).then_some((words[at - 1], how))
}

/// A row of `sacct`: the job, others, State and ExitCode, `CODE:SIGNAL`. Slurm cuts a state with `+`.
fn job(line: &str) -> Option<(&str, Ended)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [job, .., state, status] = words[..] else { return None };
    let (code, signal) = status.split_once(':').filter(|(code, signal)| is_number(code) && is_number(signal))?;
    job.starts_with(|c: char| c.is_ascii_digit()).then_some(())?;
    Some((job, by_state(state, code, signal)?))
}

/// `scontrol show job`: `JobState=FAILED Reason=NonZeroExitCode Dependency=(null)`, alone or in one line with the rest.
fn record(line: &str) -> Option<(&str, Ended)> {
    let (before, state) = parted(line, finder!(b"JobState="))?;
    let job = before.split_once("JobId=").map_or("a job", |(_, job)| job.split(' ').next().unwrap_or(job));
    let (code, signal) =
        line.split_once(" ExitCode=").and_then(|(_, code)| code.split(' ').next()?.split_once(':')).unwrap_or(("", ""));
    Some((job, by_state(state.split(' ').next()?, code, signal)?))
}

/// States of Slurm's jobs (`src/common/slurm_protocol_defs.c`, `job_state_string`).
fn by_state(state: &str, code: &str, signal: &str) -> Option<Ended> {
    let state = state.trim_end_matches('+');
    let is = |whole: &str| state.len() >= 6 && whole.starts_with(state);
    if is("OUT_OF_MEMORY") {
        return Some(Ended::Killed("Out Of Memory".into()));
    }
    if is("TIMEOUT") {
        return Some(Ended::Interrupted("Slurm: time limit".into()));
    }
    if is("NODE_FAIL") {
        return Some(Ended::Exit(None));
    }
    is("FAILED").then(|| match leading::<u32>(signal) {
        Some(number @ 1..) => by_signal(number, &format!("signal {number}")),
        _ => by_failure(code).unwrap_or(Ended::Exit(None)),
    })
}

//! Rows and fields in which Kubernetes, containers and batch systems show how a pod or a job ended. They list what else ran as well: each names
//! whose row it is.

use super::codes::{by_failure, by_signal, by_status};
use crate::cursor::finder;
use crate::text::{is_age, is_number, leading, part_digits, parted};
use busbw_model::{EndTeller, Ended, RankEnd, pod_row};

/// What a list says of the thing whose end may follow in its next lines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Listed {
    /// `× train.service - Training` of `systemctl status`.
    Unit(String),
    /// `State:          Running` of `kubectl describe pod`; whether the container waits for its next run, or runs.
    State { waits: bool, runs: bool },
    /// `Last State:     Terminated`: how the run before ended.
    LastState,
}

pub(super) fn listed(line: &str) -> Option<Listed> {
    if let Some(state) = line.strip_prefix("State:  ") {
        let is = |word: &str| state.trim_start().starts_with(word);
        return Some(Listed::State { waits: is("Waiting"), runs: is("Running") });
    }
    if line.starts_with("Last State:  ") {
        return Some(Listed::LastState);
    }
    let (unit, _) = line.strip_prefix(['●', '○', '×', '*'])?.trim_start().split_once(".service")?;
    (!unit.contains(' ')).then(|| Listed::Unit(unit.to_string()))
}

/// Whether `kubectl describe pod` tells of an end, as the state of a container.
pub(super) fn is_of_container(end: &RankEnd) -> bool {
    end.source.text.contains("  Exit Code:  ")
}

pub(super) fn read(line: &str) -> Option<RankEnd> {
    // `kubectl get pod -o yaml` and `-o json`, of the state of a container or its last: of which pod stands far above.
    let code = line.strip_prefix("exitCode: ").or_else(|| line.strip_prefix("\"exitCode\": "));
    if let Some(how) = code.and_then(by_failure) {
        return Some(RankEnd { told_by: EndTeller::List, ..RankEnd::of(how) });
    }
    // A condition of a Job that is given up, as YAML (`pkg/controller/job/job_controller.go`; `MPIJobFailed` of Kubeflow's `pkg/controller/mpi_job_controller.go`,
    // also as `kubectl describe` has it): of which Job stands far above.
    let reason = line.strip_prefix("reason: ").or_else(|| line.strip_prefix("Reason:  ")).map(str::trim);
    let is_of_operator = |reason: &str| {
        ["PyTorch", "MPI", "TF", "JAX", "XGBoost", "Paddle"]
            .iter()
            .any(|kind| reason.strip_prefix(kind) == Some("JobFailed"))
    };
    if reason.is_some_and(|reason| reason == "BackoffLimitExceeded" && line.starts_with('r') || is_of_operator(reason))
    {
        return Some(RankEnd { told_by: EndTeller::List, ..RankEnd::of(Ended::Exit(None)) });
    }
    type Row = fn(&str) -> Option<(&str, Ended)>;
    const ROWS: [Row; 7] = [pod, kubernetes_job, container, job, queued, record, status];
    let unit = || line.starts_with("Active: ").then(|| Some(("a unit", unit_result(line)?)))?;
    let (name, how) = ROWS.iter().find_map(|row| row(line)).or_else(unit)?;
    Some(RankEnd { told_by: EndTeller::List, command: Some(name.to_string()), ..RankEnd::of(how) })
}

/// A pod that ended, in a row of `kubectl get pods`. The statuses are kubelet's and the API's (`pkg/printers/internalversion/printers.go`, `pkg/kubelet/events`,
/// `pkg/kubelet/kuberuntime`).
fn pod(line: &str) -> Option<(&str, Ended)> {
    const FAILED: [&str; 13] = [
        "Error",
        "CrashLoopBackOff",
        "ContainerCannotRun",
        "DeadlineExceeded",
        "ContainerStatusUnknown",
        "Evicted",
        "Failed",
        "NodeLost",
        "NodeShutdown",
        "RunContainerError",
        "StartError",
        "UnexpectedAdmissionError",
        "Unknown",
    ];
    let (name, status, _) = pod_row(line)?;
    let how = match status.trim_start_matches("Init:") {
        "OOMKilled" => Ended::Killed("Out Of Memory".into()),
        "Completed" => Ended::Success,
        status if FAILED.contains(&status) => Ended::Exit(None),
        _ => return None,
    };
    Some((name, how))
}

/// A row of `kubectl get jobs` of a job that is given up (Kubernetes 1.31 and later: NAME STATUS COMPLETIONS DURATION AGE), of PyTorchJobs, MPIJobs and the
/// like (NAME STATE AGE), of JobSets (NAME TERMINALSTATE RESTARTS COMPLETED SUSPENDED AGE, `api/jobset/v1alpha2/jobset_types.go`), and of RayJobs (NAME, job
/// status, deployment status, cluster, start, end, AGE; KubeRay `apis/ray/v1/rayjob_types.go`).
fn kubernetes_job(line: &str) -> Option<(&str, Ended)> {
    let words: Vec<&str> = line.split_whitespace().take(9).collect();
    let at = words.iter().position(|word| *word == "Failed")?;
    let of_ray = at > 1 && words[at - 1] == "FAILED";
    let at_name = at.checked_sub(1 + usize::from(of_ray)).filter(|at| *at <= 1)?;
    let (name, rest) = (words[at_name], &words[at + 1..]);
    let is_name = |word: &str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
    let is_count = |word: &str| word.split_once('/').is_some_and(|(done, all)| is_number(done) && is_number(all));
    let is_row = match rest {
        [_, start, .., age] if of_ray => start.contains('T') && is_age(age),
        [age] => is_age(age),
        [completions, duration, age] if is_count(completions) => is_age(duration) && is_age(age),
        [restarts, .., suspended, age] => is_number(restarts) && ["true", "false"].contains(suspended) && is_age(age),
        _ => false,
    };
    (is_row && is_name(name)).then_some((name, Ended::Exit(None)))
}

/// Docker and podman of a container that left, in the column STATUS: `Exited (137) 3 minutes ago`. Its name stands last in their rows, and first in those of
/// Compose, which end with the status where no port is open.
fn container(line: &str) -> Option<(&str, Ended)> {
    let (before, status) = parted(line, finder!(b"Exited ("))?;
    let (code, since) = status.split_once(") ")?;
    let (since, behind) = since.split_once("  ").unwrap_or((since, ""));
    since.contains(" ago").then_some(())?;
    let name = behind.split_whitespace().next_back().or_else(|| before.split_whitespace().next())?;
    Some((name, by_status(code)?))
}

/// What systemd says of a unit that failed, `systemctl status`: `Active: failed (Result: exit-code) since Tue …`, `Failed with result 'oom-kill'.` in its
/// journal (`src/core/service.c`, `service_result_table`).
pub(super) fn unit_result(line: &str) -> Option<Ended> {
    const HEADS: [&str; 2] = ["Active: failed (Result: ", "Failed with result '"];
    let result = HEADS.iter().find_map(|head| Some(line.split_once(head)?.1))?;
    Some(match result.split([')', '\'']).next()? {
        "oom-kill" => Ended::Killed("Out Of Memory".into()),
        "timeout" => Ended::Interrupted("systemd: time limit".into()),
        _ => Ended::Exit(None),
    })
}

/// A row of `sacct`: the job first, and State, ExitCode (`CODE:SIGNAL`) or Elapsed (`HH:MM:SS`) wherever they were asked for; with `-p` parted by `|`.
/// Slurm cuts a state with `+`.
fn job(line: &str) -> Option<(&str, Ended)> {
    let words = || line.split(|c: char| c == '|' || c.is_whitespace()).filter(|word| !word.is_empty());
    let job = words().next().filter(|job| is_job(job))?;
    let numbers = |word: &str| word.split([':', '-']).all(is_number).then(|| word.split(':').count());
    let exit_code = words().skip(1).find(|word| numbers(word) == Some(2));
    let is_timed = || words().skip(1).any(|word| numbers(word) == Some(3));
    let (code, signal) = exit_code.and_then(|code| code.split_once(':')).or_else(|| is_timed().then_some(("", "")))?;
    Some((job, words().skip(1).find_map(|state| by_state(state, code, signal))?))
}

/// Whether a line is a row of Slurm's lists of jobs that tells how one ended.
pub(crate) fn is_row_of_slurm(line: &str) -> bool {
    job(line).or_else(|| queued(line)).is_some()
}

/// Whether a line is slurmstepd's of a step, as it stands in slurmd's log: `[8812.batch] error: …`.
pub(crate) fn is_of_step(line: &str) -> bool {
    let step = line.strip_prefix('[').and_then(|line| line.split_once("] error: "));
    step.is_some_and(|(step, _)| step.contains('.') && is_job(step))
}

/// `8812`, a step `8812.batch`, one of an array `8812_3`, a part of a heterogeneous job `8812+1`.
fn is_job(word: &str) -> bool {
    let (number, rest) = part_digits(word);
    !number.is_empty() && (rest.is_empty() || rest.starts_with(['.', '_', '+']))
}

/// A row of `squeue -t all`: JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON), with the short form of a state that is a failure's
/// (reasons: `src/common/slurm_protocol_defs.c`, `job_state_reason_string`).
fn queued(line: &str) -> Option<(&str, Ended)> {
    const STATES: [(&str, &str); 6] = [
        ("F", "FAILED"),
        ("NF", "NODE_FAIL"),
        ("BF", "BOOT_FAIL"),
        ("OOM", "OUT_OF_MEMORY"),
        ("TO", "TIMEOUT"),
        ("DL", "DEADLINE"),
    ];
    // Few lines begin with the number of a job, and many are long.
    line.split_whitespace().next().filter(|job| is_job(job))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [job, .., short, time, nodes, reason] = words[..] else { return None };
    let is_row = time.contains(':') && is_number(nodes);
    let (_, state) = STATES.iter().find(|(name, _)| *name == short).filter(|_| is_row && reason.starts_with('('))?;
    Some((job, by_state(state, "", "")?))
}

/// HTCondor's log of a job, `(1) Normal termination (return value 1)`, `(0) Abnormal termination (signal 9)`.
fn status(line: &str) -> Option<(&str, Ended)> {
    let code = line.strip_prefix("(1) Normal termination (return value ");
    // An event of number 12: over its memory, or by hand.
    if line.starts_with("012 (") && line.trim_end().ends_with("Job was held.") {
        return Some(("a job", Ended::Interrupted("HTCondor: held".into())));
    }
    let signal = || line.strip_prefix("(0) Abnormal termination (signal ").and_then(leading);
    let how =
        code.and_then(by_status).or_else(|| signal().map(|number| by_signal(number, &format!("signal {number}"))))?;
    Some(("a job", how))
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
pub(super) fn by_state(state: &str, code: &str, signal: &str) -> Option<Ended> {
    let state = state.trim_end_matches('+');
    let is = |whole: &str| state.len() >= 6 && whole.starts_with(state);
    if is("OUT_OF_MEMORY") {
        return Some(Ended::Killed("Out Of Memory".into()));
    }
    if is("TIMEOUT") {
        return Some(Ended::Interrupted("Slurm: time limit".into()));
    }
    if state == "COMPLETED" {
        return matches!(code, "" | "0").then_some(Ended::Success);
    }
    if is("NODE_FAIL") || is("BOOT_FAIL") || is("DEADLINE") {
        return Some(Ended::Exit(None));
    }
    is("FAILED").then(|| match leading::<u32>(signal) {
        Some(number @ 1..) => by_signal(number, &format!("signal {number}")),
        _ => by_failure(code).unwrap_or(Ended::Exit(None)),
    })
}

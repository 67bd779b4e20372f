//! How what runs commands reports how one ended: shells at a prompt, `make`, `time`, IDEs, build servers, services. It may go on with the next, and a
//! script that went well may have gone on behind a command that failed.

use super::codes::{by_failure, by_signal, by_status, shell_signal, signal_named};
use super::jobs;
use crate::cursor::finder;
use crate::evidence::KNOWN;
use crate::text::{leading, part_digits, parted};
use busbw_model::{EndTeller, Ended, RankEnd};

/// A form of them.
type Form = fn(&str) -> Option<Ended>;

/// What a line of one of them shows, without indent.
pub(super) fn read(line: &str) -> Option<RankEnd> {
    // Those that go on with the next command, and those that tell of a process by its name.
    const RUNNERS: [Form; 7] = [alone, coded, signalled, make, recipe, unit, succeeded];
    const KEEPERS: [Form; 3] = [named, service, platform];
    let line = line.trim_end();
    let first = |forms: &[Form]| forms.iter().find_map(|form| form(line));
    let told = |told_by, how, command: &str| {
        let command = Some(command.trim()).filter(|command| !command.is_empty()).map(str::to_string);
        RankEnd { told_by, command, ..RankEnd::of(how) }
    };
    job(line)
        .map(|(how, command)| told(EndTeller::Runner, how, command))
        .or_else(|| first(&RUNNERS).map(|how| told(EndTeller::Runner, how, "")))
        .or_else(|| first(&KEEPERS).map(|how| told(keeper(&how), how, "")))
}

/// What looks after a process tells of its failure; that it went well says no more than a runner's word.
fn keeper(how: &Ended) -> EndTeller {
    if *how == Ended::Success { EndTeller::Runner } else { EndTeller::Job }
}

/// Ray of a job, behind its level and place where it writes to no terminal: `SUCC cli.py:64 -- Job 'train-7' succeeded` (`dashboard/modules/job/cli.py`,
/// `_log_job_status`); the controller of Ray Train: `[State Transition] RUNNING -> FINISHED.` (`train/v2/_internal/execution/controller/controller.py`);
/// SkyPilot: `✓ Job finished (status: SUCCEEDED).` (`skylet/log_lib.py`, `jobs/utils.py`); what runs the script on one host of SageMaker's:
/// `sagemaker-training-toolkit INFO     Reporting training SUCCESS` (`sagemaker_training/trainer.py`).
fn succeeded(line: &str) -> Option<Ended> {
    let line = line.strip_prefix("✓ ").unwrap_or(line);
    let of_ray = line.strip_prefix("SUCC ").and_then(|rest| Some(rest.split_once(" -- ")?.1)).unwrap_or(line);
    let is_ray_job = of_ray
        .strip_prefix("Job '")
        .and_then(|rest| rest.split_once('\''))
        .is_some_and(|(_, said)| said == " succeeded");
    let is_sagemaker = || line.starts_with("sagemaker-") && line.ends_with(" Reporting training SUCCESS");
    let is_ray_train = || line.starts_with("[State Transition] ") && line.ends_with(" -> FINISHED.");
    (is_ray_job || line == "Job finished (status: SUCCEEDED)." || is_ray_train() || is_sagemaker())
        .then_some(Ended::Success)
}

/// A shell of a command that a signal ended, in a line of its own: `Killed`, `Bus error (core dumped)`; Go of what it called: `signal: killed`; Flux of a job's
/// tasks: `flux-job: task(s) Segmentation fault`.
fn alone(line: &str) -> Option<Ended> {
    let text = line.strip_prefix("signal: ").or_else(|| line.strip_prefix("flux-job: task(s) ")).unwrap_or(line);
    let (name, number, behind) = shell_signal(text)?;
    // A shell writes the first letter large.
    let of_go = text.len() < line.len();
    let is_alone = matches!(behind.trim_start(), "" | "(core dumped)") && (of_go || text.starts_with(name));
    is_alone.then(|| by_signal(number, name))
}

/// A shell's report of a job: bash's `[1]+  Killed                  python train.py`, `[1]+  Exit 1   python train.py`, zsh's `[1]  + 4242 killed     python
/// train.py`, `zsh: segmentation fault (core dumped)  python train.py`; the end and the command.
fn job(line: &str) -> Option<(Ended, &str)> {
    let text = match line.strip_prefix("zsh: ") {
        Some(text) => text,
        None => {
            let (number, rest) = line.strip_prefix('[')?.split_once(']')?;
            let marked = rest.trim_start_matches(['+', '-']);
            let is_job = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            // One blank alone stands behind the label of a rank.
            (is_job && (marked.starts_with("  ") || marked.len() < rest.len())).then_some(())?;
            let (_, text) = part_digits(marked.trim_start().trim_start_matches(['+', '-']).trim_start());
            text.trim_start()
        }
    };
    if let Some(code) = text.strip_prefix("Exit ").or_else(|| text.strip_prefix("exit ")) {
        return by_failure(code).map(|how| (how, part_digits(code).1));
    }
    let (name, number, behind) = shell_signal(text)?;
    Some((by_signal(number, name), behind.trim_start().trim_start_matches("(core dumped)")))
}

/// What stands in front of an exit status: PyCharm, GNU time, Go's os/exec and what is written in Go, runners of GitHub and GitLab, TeamCity, VS Code,
/// Flux, Ray of a job, a shell's trace.
const HEADS: [&str; 14] = [
    "Process finished with exit code ",
    "Command exited with non-zero status ",
    "exit status ",
    "Error: exit status ",
    "flux-job: task(s) exited with exit code ",
    "Status message: Job entrypoint command failed with exit code ",
    "##[error]Process completed with exit code ",
    "Error: Process completed with exit code ",
    "ERROR: Job failed: exit code ",
    "ERROR: Job failed: exit status ",
    "ERROR: Job failed: command terminated with exit code ",
    "[Done] exited with code=",
    "Process exited with code ",
    "+ exit ",
];

fn coded(line: &str) -> Option<Ended> {
    // Jenkins of a build (`hudson/model/BuildListener.java`).
    match line {
        "Finished: SUCCESS" => return Some(Ended::Success),
        "Finished: FAILURE" => return Some(Ended::Exit(None)),
        "Finished: ABORTED" => return Some(Ended::Interrupted("Jenkins: aborted".into())),
        _ => {}
    }
    // Runners of Azure Pipelines: `##[error]Bash exited with code '1'.`; util-linux' script(1), of the shell or command whose terminal it wrote down:
    // `Script done on 2026-02-03 10:24:31+00:00 [COMMAND_EXIT_CODE="1"]`.
    let quoted = || line.strip_prefix("##[error]")?.split_once(" exited with code '");
    let written = || line.strip_prefix("Script done on ")?.split_once("[COMMAND_EXIT_CODE=\"");
    if let Some((_, code)) = quoted().or_else(written) {
        return by_status(code);
    }
    let code = HEADS.iter().find_map(|head| line.strip_prefix(head))?;
    let (_, behind) = part_digits(code.trim_start_matches('-'));
    let is_whole = matches!(behind, "" | ".") || [" (", " in ", ", "].iter().any(|more| behind.starts_with(more));
    by_status(code).filter(|_| is_whole)
}

/// GNU time's `Command terminated by signal 9`, xargs' `xargs: python: terminated by signal 9`, fish's `fish: Job 1, 'python train.py' terminated by signal
/// SIGKILL (Forced quit)`.
fn signalled(line: &str) -> Option<Ended> {
    let (who, signal) = parted(line, finder!(b" terminated by signal "))?;
    let is_runner = who == "Command" || who.starts_with("xargs: ") || who.starts_with("fish: ");
    let number = leading(signal).or_else(|| signal_named(signal)).filter(|_| is_runner)?;
    Some(by_signal(number, &format!("signal {number}")))
}

/// `make: *** [Makefile:12: train] Error 137`, `make[1]: *** [train] Segmentation fault (core dumped)`. What it ignores it says without the stars, or with
/// that word behind.
fn make(line: &str) -> Option<Ended> {
    let (who, target) = parted(line, finder!(b": *** ["))?;
    let (_, said) = target.split_once("] ").filter(|_| who.starts_with("make") || who.starts_with("gmake"))?;
    if let Some(code) = said.strip_prefix("Error ") {
        return by_failure(code).filter(|_| part_digits(code).1.is_empty());
    }
    let (name, number, _) = shell_signal(said)?;
    Some(by_signal(number, name))
}

/// just of a recipe, xargs of a command: ``error: Recipe `train` failed on line 3 with exit code 1``, `xargs: python: exited with status 255; aborting`.
fn recipe(line: &str) -> Option<Ended> {
    let recipe = || line.strip_prefix("error: Recipe `")?.split_once(" with exit code ");
    let command = || line.strip_prefix("xargs: ")?.split_once(": exited with status ");
    by_failure(recipe().or_else(command)?.1)
}

/// Docker's compose of a container, Vertex AI of a replica: `train-1 exited with code 137`, `The replica workerpool1-0 exited with a non-zero status of
/// 137(SIGKILL).`
fn named(line: &str) -> Option<Ended> {
    if let Some(replica) = line.strip_prefix("The replica ") {
        return by_failure(replica.split_once(" exited with a non-zero status of ")?.1);
    }
    let (name, code) = parted(line, finder!(b" exited with code "))?;
    let behind = part_digits(code).1;
    let is_whole = behind.is_empty() || behind.starts_with(" (");
    let name = name.trim_end_matches([' ', '|']);
    by_status(code).filter(|_| is_whole && !name.contains(' ') && !KNOWN.is_beside(name))
}

/// Platforms of the one command that they ran: Argo's emissary in a pod, `time="…" level=info msg="sub-process exited" argo=true error="exit status 1"`
/// (`cmd/argoexec/commands/emissary.go`) and `argo get` of a node, `└─✖ train  main  train-7c  5m  Error (exit code 137)`, Azure ML's `Execution failed. User process 'python' exited with status code 2.`, TorchX's `torchx 2026-02-03 10:24:31
/// INFO     Job finished: FAILED` or `SUCCEEDED` (`torchx/cli/cmd_run.py`).
fn platform(line: &str) -> Option<Ended> {
    if let Some((_, error)) =
        parted(line, finder!(b" msg=\"sub-process exited\"")).and_then(|(_, rest)| rest.split_once(" error=\""))
    {
        let error = error.strip_suffix('"')?;
        return match error.strip_prefix("exit status ") {
            Some(code) => by_failure(code),
            None => alone(error),
        };
    }
    if let Some(node) = line.trim_start_matches(['├', '└', '─', '│', ' ']).strip_prefix("✖ ") {
        let (said, code) = node.rsplit_once(" (exit code ")?;
        let memory = said.ends_with("OOMKilled").then(|| Ended::Killed("Out Of Memory".into()));
        return memory.or_else(|| by_failure(code));
    }
    if let Some(process) = line.strip_prefix("Execution failed. User process '") {
        return by_failure(process.split_once("' exited with status code ")?.1);
    }
    let (_, state) = Some(line).filter(|line| line.starts_with("torchx "))?.split_once(" Job finished: ")?;
    match state {
        "FAILED" => Some(Ended::Exit(None)),
        "SUCCEEDED" => Some(Ended::Success),
        _ => None,
    }
}

/// systemd of a unit, which may be any of the machine's: `train.service: Main process exited, code=killed, status=9/KILL`, `train.service: Failed with result
/// 'exit-code'.`, `train.service: Deactivated successfully.` (`src/core/unit.c`, `unit_log_success`; before version 246 `Succeeded.`). What ends of
/// SIGTERM was stopped.
fn unit(line: &str) -> Option<Ended> {
    let (before, said) = parted(line, finder!(b".service: "))?;
    if before.rsplit(' ').next().is_some_and(|unit| KNOWN.is_beside(unit)) {
        return None;
    }
    if matches!(said, "Deactivated successfully." | "Succeeded.") {
        return Some(Ended::Success);
    }
    let Some(end) = said.strip_prefix("Main process exited, code=") else { return jobs::unit_result(said) };
    let (how, status) = end.split_once(", status=")?;
    let end = if how == "exited" {
        by_failure(status)?
    } else {
        let number = leading(status)?;
        by_signal(number, &format!("signal {number}"))
    };
    let is_stopped = matches!(&end, Ended::Killed(signal) if signal == "signal 15");
    Some(if is_stopped { Ended::Interrupted("systemd: stopped".into()) } else { end })
}

/// supervisord's `exited: train (exit status 1; not expected)`, kubectl's of a pod that it attached to: `pod default/train-0 terminated (Error)`.
fn service(line: &str) -> Option<Ended> {
    if line.ends_with("; not expected)")
        && let Some((_, reason)) = line.split_once("exited: ")
    {
        let (_, how) = reason.split_once(" (").filter(|(program, _)| !KNOWN.is_beside(program))?;
        return match how.strip_prefix("terminated by ") {
            Some(signal) => signal_named(signal).map(|number| by_signal(number, &format!("signal {number}"))),
            None => by_failure(how.strip_prefix("exit status ")?),
        };
    }
    let (_, reason) = line.strip_prefix("pod ")?.split_once(" terminated (")?;
    match reason {
        "Error)" => Some(Ended::Exit(None)),
        "OOMKilled)" => Some(Ended::Killed("Out Of Memory".into())),
        _ => None,
    }
}

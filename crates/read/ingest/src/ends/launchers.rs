//! How shells, launchers, batch systems and MPIs report the end of a rank, of several, or of the whole job.

use super::codes::{by_code, by_failure, by_signal, shell_signal};
use crate::cursor::finder;
use crate::evidence::KNOWN;
use crate::text::{leading, part_digits, parted};
use busbw_model::{EndTeller, Ended, RankEnd};

/// What started ranks of the end of some. What ends the job itself, and why, is no report of them.
pub(super) fn read(line: &str) -> Option<RankEnd> {
    const READERS: [fn(&str) -> Option<RankEnd>; 8] =
        [slurm, mpirun, hydra, torchrun, torchrun_event, horovod, flux, joined_block];
    let end = READERS.iter().find_map(|reader| reader(line))?;
    let told_by = if matches!(end.how, Ended::Interrupted(_)) { end.told_by } else { EndTeller::Launcher };
    Some(RankEnd { told_by, ..end })
}

/// `train.sh: line 12:  4242 Segmentation fault      (core dumped) ./train`.
pub(super) fn shell(line: &str) -> Option<RankEnd> {
    let (_, rest) = parted(line, finder!(b": line "))?;
    let (pid, rest) = part_digits(rest.split_once(": ")?.1.trim_start());
    let (name, number, behind) = shell_signal(rest.trim_start())?;
    let behind = behind.trim_start();
    let command = behind.strip_prefix("(core dumped)").unwrap_or(behind).trim();
    let command = Some(command).filter(|command| !command.is_empty()).map(str::to_string);
    Some(RankEnd { pid: Some(pid.parse().ok()?), command, ..RankEnd::of(by_signal(number, name)) })
}

/// What slurmstepd says of the job or step that it ends: `JOB 7 ON n1 CANCELLED AT … DUE TO TIME LIMIT ***` (`src/slurmd/slurmstepd/req.c`).
fn slurm_step(said: &str) -> Ended {
    const REASONS: [(&str, &str); 4] = [
        ("DUE TO TIME LIMIT", "Slurm: time limit"),
        ("DUE TO PREEMPTION", "Slurm: preempted"),
        ("DUE TO JOB REQUEUE", "Slurm: requeued"),
        ("DUE TO NODE FAILURE", "Slurm: node failure"),
    ];
    let by = REASONS.iter().find(|(reason, _)| said.contains(reason)).map(|(_, by)| *by);
    let failed = [" FAILED ", "DUE TO TASK FAILURE"].iter().any(|text| said.contains(text));
    match by {
        None if failed => Ended::Exit(None),
        by => Ended::Interrupted(by.unwrap_or("Slurm: cancelled").into()),
    }
}

/// Batch systems besides Slurm: `=>> PBS: job killed: walltime 3622 exceeded limit 3600`, ALPS' `Apid 168352: OOM killer terminated this process.`
pub(super) fn batch(line: &str) -> Option<RankEnd> {
    let killed = |memory: bool, by: &str| match memory {
        true => Ended::Killed("Out Of Memory".into()),
        false => Ended::Interrupted(by.into()),
    };
    if let Some(reason) = line.strip_prefix("=>> PBS: job killed: ") {
        let by = if reason.starts_with("walltime") { "PBS: time limit" } else { "PBS" };
        return Some(RankEnd::of(killed(reason.contains("mem "), by)));
    }
    let of_alps =
        finder!(b"Apid ").find(line.as_bytes()).is_some() && line.contains("OOM killer terminated this process");
    of_alps.then(|| RankEnd::of(killed(true, "")))
}

/// `srun: error: node1: tasks 1-7: Exited with exit code 134`, `slurmstepd: error: Detected 1 oom_kill event in …`, `slurmstepd: error: *** JOB 7 …`.
fn slurm(line: &str) -> Option<RankEnd> {
    if let Some(said) = line.strip_prefix("slurmstepd: error: *** ").filter(|said| said.contains(" ON ")) {
        return Some(RankEnd::of(slurm_step(said)));
    }
    if line.starts_with("slurmstepd: error: ") && line.contains("xceeded ") && line.contains("memory limit") {
        return Some(RankEnd::of(Ended::Killed("oom_kill".into())));
    }
    if let Some(rest) = line.strip_prefix("slurmstepd: error: Detected ") {
        // Tasks run in numbered steps, or in that of the script; `.extern` holds what came in beside them (Slurm's prolog_flags=contain).
        let beside = rest.contains(".extern");
        let oom = !beside && (rest.contains(" oom_kill event") || rest.contains(" oom-kill event"));
        return oom.then(|| RankEnd::of(Ended::Killed("oom_kill".into())));
    }
    let (host, rest) = line.strip_prefix("srun: error: ")?.split_once(": task")?;
    let (ranks, said) = rest.trim_start_matches('s').split_once(": ")?;
    let how = match said.strip_prefix("Exited with exit code ") {
        Some(code) => by_code(code)?,
        None if said.starts_with("Killed") || said.starts_with("Terminated") || said.starts_with("Out Of Memory") => {
            Ended::Killed(said.to_string())
        }
        None => shell_signal(said).map(|(name, number, _)| by_signal(number, name))?,
    };
    Some(RankEnd { host: Some(host.to_string()), ranks: listed(ranks.trim()), ..RankEnd::of(how) })
}

/// `0,2-4`.
fn listed(text: &str) -> Vec<u32> {
    const MOST: usize = 1 << 16;
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(first..=last)
    };
    text.split(',').filter_map(part).flatten().take(MOST).collect()
}

/// PALS: `n1: rank 1 died from signal 6 and dumped core`; `mpirun noticed that process rank 3 with PID 77 on node n1 exited on signal 11 (Segmentation fault).`, `prterun detected that one or more
/// processes exited with non-zero status,`.
fn mpirun(line: &str) -> Option<RankEnd> {
    if let Some((host, rest)) = parted(line, finder!(b": rank "))
        && let Some((rank, signal)) = rest.split_once(" died from signal ")
    {
        let how = by_signal(leading(signal)?, &format!("signal {}", part_digits(signal).0));
        return Some(RankEnd { ranks: vec![rank.parse().ok()?], host: Some(host.to_string()), ..RankEnd::of(how) });
    }
    const PROGRAMS: [&str; 4] = ["mpirun ", "mpiexec ", "prterun ", "prun "];
    let text = PROGRAMS.iter().find_map(|program| line.strip_prefix(program))?;
    if text.starts_with("detected that one or more processes exited with non-zero status") {
        return Some(RankEnd::of(Ended::Exit(None)));
    }
    let rest = text.strip_prefix("noticed that process rank ")?;
    let host = rest.split_once(" on node ").and_then(|(_, rest)| rest.split(' ').next()).map(str::to_string);
    let pid = rest.split_once(" with PID ").and_then(|(_, rest)| leading(rest)).filter(|pid| *pid > 0);
    let of_rank = RankEnd { ranks: leading(rest).into_iter().collect(), host, pid, ..RankEnd::of(Ended::Exit(None)) };
    let Some((_, signal)) = rest.split_once(" exited on signal ") else {
        // PRRTE breaks its texts into lines: the signal stands in the next.
        return rest.trim_end().ends_with(" exited on").then_some(of_rank);
    };
    let name = signal.split_once('(').map_or(signal, |(_, name)| name.trim_end_matches(['.', ')']));
    Some(RankEnd { how: by_signal(leading(signal)?, name), ..of_rank })
}

/// What MPI says of a rank that gives up: MPICH's `Abort(15) on node 7 (rank 7 in comm 0): Fatal error in PMPI_Wait: Other MPI error`, up to 3.2
/// `Fatal error in PMPI_Wait: Other MPI error, error stack:`, of a program's own abort alone `application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3`, Cray's `MPICH ERROR
/// [Rank 7] [job id 1.0] [date] [n1] - Abort(15) (rank 7 in comm 0): Fatal error in …`, Open MPI's `MPI_ABORT was invoked on rank 3 in communicator …`;
/// text-generation-inference of its shards: `Shard process was signaled to shutdown with signal 7 rank=1`.
pub(super) fn mpi(line: &str) -> Option<RankEnd> {
    let of_rank = |text: &str| leading(text).into_iter().collect::<Vec<u32>>();
    if let Some(rest) = line.strip_prefix("MPI_ABORT was invoked on rank ") {
        return Some(RankEnd { ranks: of_rank(rest), ..RankEnd::of(Ended::Exit(None)) });
    }
    if let Some(rest) = line.strip_prefix("application called MPI_Abort(") {
        // A program may leave by it with 0.
        let (code, rank) = rest.rsplit_once(") - process ")?;
        let code: i32 = code.rsplit(", ").next()?.parse().ok()?;
        return (code != 0).then(|| RankEnd { ranks: of_rank(rank), ..RankEnd::of(Ended::Exit(Some(code))) });
    }
    if let Some((_, rest)) = parted(line, finder!(b" process was signaled to shutdown with signal ")) {
        let (signal, rest) = part_digits(rest);
        let rank = rest.trim_start().strip_prefix("rank=").map_or(Vec::new(), of_rank);
        return Some(RankEnd {
            ranks: rank,
            ..RankEnd::of(by_signal(signal.parse().ok()?, &format!("signal {signal}")))
        });
    }
    if let Some((before, call)) = parted(line, finder!(b"*** An error occurred in MPI_")) {
        let (host, pid) =
            before.trim_end().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')?.split_once(':')).unzip();
        let said = format!("An error occurred in MPI_{}", call.trim_end());
        let pid = pid.and_then(leading);
        return Some(RankEnd { host: host.map(str::to_string), pid, ..RankEnd::of(Ended::Failure(said)) });
    }
    if let Some((rank, said)) = line.strip_prefix("MPICH ERROR [Rank ").and_then(|rest| rest.split_once("] - Abort("))
        && !said.contains(" in comm ")
    {
        let host = rank.rsplit('[').next().map(str::to_string);
        let how = Ended::Failure(said.split_once("): ").map_or(said, |(_, said)| said).to_string());
        return Some(RankEnd { ranks: of_rank(rank), host, ..RankEnd::of(how) });
    }
    if let Some(call) = line.strip_prefix("Fatal error in ") {
        let of_mpi = call.strip_prefix('P').unwrap_or(call).starts_with("MPI_") && call.contains(": ");
        let said = line.strip_suffix(", error stack:").or(of_mpi.then_some(line))?;
        return Some(RankEnd::of(Ended::Failure(said.to_string())));
    }
    let (head, text) = parted(line, finder!(b" in comm "))?;
    let (head, rank) = head.rsplit_once("(rank ")?;
    let (_, said) = text.split_once("): ")?;
    let aborts = head.starts_with("Abort(") || head.starts_with("MPICH ERROR [") && head.contains(" - Abort(");
    let host =
        head.starts_with("MPICH").then(|| head.rsplit('[').next()?.split(']').next().map(str::to_string)).flatten();
    let said = said.trim_end_matches(", error stack:");
    aborts.then(|| RankEnd { ranks: of_rank(rank), host, ..RankEnd::of(Ended::Failure(said.to_string())) })
}

/// MPICH's launcher of a rank that ended: `=   EXIT CODE: 1`, `=   KILLED BY SIGNAL: 9 (Killed)`, `… EXIT STRING: Killed (signal 9)`. Its exit codes are
/// those of `wait`: 9 is signal 9, 139 is signal 11 with a core.
fn hydra(line: &str) -> Option<RankEnd> {
    const STRING: &str = "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: ";
    if let Some(signal) = line.strip_prefix("=   KILLED BY SIGNAL: ") {
        let (number, rest) = part_digits(signal);
        let name = rest.trim_start().strip_prefix('(')?.split(')').next()?;
        return Some(RankEnd::of(by_signal(number.parse().ok()?, name)));
    }
    if let Some(said) = line.strip_prefix(STRING) {
        let (name, number) = said.split_once(" (signal ")?;
        return Some(RankEnd::of(by_signal(leading(number)?, name)));
    }
    let code: u32 = line.strip_prefix("=   EXIT CODE: ")?.trim().parse().ok()?;
    let how = match code {
        9 | 15 => by_signal(code, &format!("signal {code}")),
        129..=192 => by_signal(code - 128, &format!("signal {}", code - 128)),
        _ => Ended::Exit(i32::try_from(code).ok()),
    };
    Some(RankEnd::of(how))
}

/// A block of torchrun's ChildFailedError whose lines a collector has joined: `time : … host : n1 rank : 2 (local_rank: 2) exitcode : -6 (pid: 189)
/// error_file: <N/A> traceback : …`.
fn joined_block(line: &str) -> Option<RankEnd> {
    let (before, rest) =
        parted(line, finder!(b" exitcode : ")).filter(|(before, _)| before.contains("(local_rank: "))?;
    let (before, rank) = before.rsplit_once("rank : ")?;
    let host = before.rsplit_once("host : ").map(|(_, host)| host.trim().to_string());
    let pid = rest.split_once("(pid: ").and_then(|(_, rest)| leading(rest));
    Some(RankEnd { ranks: vec![leading(rank)?], host, pid, ..RankEnd::of(by_code(rest)?) })
}

/// torchrun's `failed (exitcode: 1) local_rank: 3 (pid: 4246) of binary: …` and, in the block of its ChildFailedError, `exitcode  : 1 (pid: 4246)`;
/// DeepSpeed's `exits with return code = 1`.
fn torchrun(line: &str) -> Option<RankEnd> {
    let elastic = parted(line, finder!(b"failed (exitcode: ")).filter(|(before, _)| before.contains("torch"));
    let block = || line.strip_prefix("exitcode").and_then(|rest| rest.trim_start().strip_prefix(": "));
    if let Some(rest) = elastic.map(|(_, rest)| rest).or_else(block) {
        let pid = rest.split_once("(pid: ").and_then(|(_, rest)| leading(rest));
        return Some(RankEnd { pid, ..RankEnd::of(by_code(rest)?) });
    }
    // Its agent, of itself (`torch/distributed/elastic/agent/server/api.py`): `Received 15 death signal, …`, `Received Signals.SIGTERM death signal, …`.
    if let Some((before, _)) = parted(line, finder!(b" death signal, shutting down workers")) {
        const SIGNALS: [(&str, &str); 3] = [("1", "SIGHUP"), ("2", "SIGINT"), ("15", "SIGTERM")];
        let told = before.rsplit_once("Received ")?.1;
        let is_told = |(number, name): &&(&str, &str)| told == *number || told.strip_prefix("Signals.") == Some(name);
        let (number, _) = SIGNALS.iter().find(is_told)?;
        let how = Ended::Interrupted(format!("torchrun got signal {number}"));
        return Some(RankEnd { told_by: EndTeller::Launcher, ..RankEnd::of(how) });
    }
    let (before, code) = parted(line, finder!(b" exits with return code = "))?;
    before.contains("[launch.py:").then(|| by_code(code).map(RankEnd::of))?
}

/// What torchrun's agent notes of a worker that failed: `{"name": "torchelastic.worker.status.FAILED", …, "global_rank": 3, "worker_id": "4242",
/// "hostname": "n1", …}`. A worker that it ended itself is `TERMINATED` there.
fn torchrun_event(line: &str) -> Option<RankEnd> {
    let (_, event) = parted(line, finder!(b"\"torchelastic.worker.status.FAILED\""))?;
    let after = |key: &str| event.split_once(key).map(|(_, value)| value.trim_start_matches([' ', ':', '"']));
    let host = after("\"hostname\"").and_then(|value| value.split('"').next()).map(str::to_string);
    let ranks = vec![leading(after("\"global_rank\"")?)?];
    Some(RankEnd { ranks, host, pid: after("\"worker_id\"").and_then(leading), ..RankEnd::of(Ended::Exit(None)) })
}

/// Boxes of Open MPI and Horovod, and Kubernetes: `Exit code:    1`, `command terminated with exit code 137` of `kubectl exec`, `Exit Code:    139` of `kubectl describe pod`; `PyTorchJob job has failed because
/// 1 Worker replica(s) failed.` of the training operator.
pub(super) fn kubernetes(line: &str) -> Option<RankEnd> {
    if let Some(code) = line.strip_prefix("command terminated with exit code ") {
        return by_code(code).map(RankEnd::of);
    }
    if let Some(code) = line.strip_prefix("Exit Code:").or_else(|| line.strip_prefix("Exit code:")) {
        return by_failure(code.trim()).map(RankEnd::of);
    }
    let (_, replicas) = parted(line, finder!(b"Job "))?.1.split_once(" failed because ")?;
    replicas.contains(" replica(s) failed").then(|| RankEnd::of(Ended::Exit(None)))
}

/// Horovod's launcher of a worker that it started without MPI: `Process 1 exit with status code 1.` (`runner/gloo_run.py`); SGLang of a scheduler:
/// `Rank 0 scheduler died (exit code: -9).`, since 0.5.10 `… died during initialization (exit code: …` (`srt/entrypoints/engine.py`), and of any process: `Subprocess scheduler_0 (pid=42) crashed with exit code -9.
/// Triggering SIGQUIT for cleanup...` (`srt/utils/watchdog.py`); Composer's: `Rank 5 crashed with exit code -9.`, `Global rank 12 (PID 40299) exited with code -6`
/// (`composer/cli/launcher.py`).
fn horovod(line: &str) -> Option<RankEnd> {
    const ENDED: [&str; 3] = [
        " scheduler died (exit code: ",
        " scheduler died during initialization (exit code: ",
        " crashed with exit code ",
    ];
    let of_rank = line.strip_prefix("ERROR:composer.cli.launcher:").unwrap_or(line).strip_prefix("Rank ");
    if let Some((rank, code)) = of_rank.and_then(|rest| ENDED.iter().find_map(|words| rest.split_once(words))) {
        return Some(RankEnd { ranks: vec![rank.parse().ok()?], ..RankEnd::of(by_failure(code)?) });
    }
    if let Some((rank, rest)) = line.strip_prefix("Global rank ").and_then(|rest| rest.split_once(" (PID ")) {
        let (pid, code) = rest.split_once(") exited with code ")?;
        let (ranks, pid) = (vec![rank.parse().ok()?], pid.parse().ok());
        return Some(RankEnd { ranks, pid, ..RankEnd::of(by_failure(code)?) });
    }
    if let Some((name, code)) =
        line.strip_prefix("Subprocess ").and_then(|rest| rest.split_once(") crashed with exit code "))
    {
        // Whoever ended it in order tells of that.
        let code = code.split_once(". ").map(|(code, _)| code).filter(|code| *code != "-15")?;
        let how = by_failure(code)?;
        return Some(RankEnd { pid: name.split_once(" (pid=").and_then(|(_, pid)| leading(pid)), ..RankEnd::of(how) });
    }
    let (rank, rest) = part_digits(line.strip_prefix("Process ")?);
    let code = rest.strip_prefix(" exit with status code ")?.strip_suffix('.')?;
    Some(RankEnd { ranks: vec![rank.parse().ok()?], ..RankEnd::of(by_failure(code)?) })
}

/// Flux of a task that left before the others, behind the time since the job's start: `261.098s: flux-shell[0]: FATAL: doom: rank 102 on host n1 exited and
/// exit-timeout=30s has expired` (`src/shell/doom.c`), of the kernel's limit of memory: `… ERROR: oom: Memory cgroup out of memory: killed 1 task on n1.`
/// (`src/shell/oom.c`), and why it ended a job: `3602.1s: job.exception type=timeout severity=0 resource allocation expired`.
fn flux(line: &str) -> Option<RankEnd> {
    let (time, rest) = parted(line, finder!(b"s: "))?;
    time.parse::<f64>().ok()?;
    if let Some(exception) = rest.strip_prefix("job.exception type=") {
        let (kind, said) = exception.split_once(" severity=0 ")?;
        return match kind {
            "cancel" => Some(RankEnd::of(Ended::Interrupted("Flux: cancelled".into()))),
            "timeout" => Some(RankEnd::of(Ended::Interrupted("Flux: time limit".into()))),
            _ => first_task(said),
        };
    }
    let (shell, said) = rest.strip_prefix("flux-shell[")?.split_once("]: ")?;
    shell.parse::<u32>().ok()?;
    if let Some((_, host)) = said.strip_prefix("ERROR: oom: ").and_then(|oom| oom.split_once("out of memory: killed "))
    {
        let host = host.split_once(" on ").map(|(_, host)| host.trim_end_matches('.').to_string());
        return Some(RankEnd { host, ..RankEnd::of(Ended::Killed("Out Of Memory".into())) });
    }
    first_task(said.strip_prefix("FATAL: doom: ")?)
}

/// `rank 102 on host n1 exited and exit-timeout=30s has expired`; later behind the command, and of a shell, whose rank is a host's, too: `train: task rank
/// 102 on host …`, `train: shell rank 1 on host …`.
fn first_task(said: &str) -> Option<RankEnd> {
    let (before, rest) = said.split_once("rank ")?;
    let (rank, rest) = part_digits(rest);
    // Older versions leave out the host.
    let (host, ended) = rest.strip_prefix(" on host ").map_or(Some((None, rest.trim_start())), |named| {
        named.split_once(' ').map(|(host, ended)| (Some(host.to_string()), ended))
    })?;
    let is_first = ["exited and exit-timeout", "failed and exit-on-error"].iter().any(|form| ended.starts_with(form));
    let ranks = if before.ends_with("shell ") { Vec::new() } else { vec![rank.parse().ok()?] };
    is_first.then(|| RankEnd { ranks, host, ..RankEnd::of(Ended::Exit(None)) })
}

/// A terminal's echo of who stops the program in front of it, and DeepSpeed's launcher that somebody stops: where a process fails, it tells its status.
pub(super) fn interrupt(line: &str) -> Option<RankEnd> {
    let signal = || of_deepspeed(line)?.strip_prefix("Main process received ")?.strip_suffix(", exiting");
    let by = if line.trim_end() == "^C" { Some("SIGINT") } else { signal() };
    let by = by.map(|signal| if signal == "SIGINT" { Ended::CTRL_C } else { signal });
    by.map(|by| RankEnd::of(Ended::Interrupted(by.into())))
}

/// DeepSpeed's launcher of a process of its host that left with status 0: `[INFO] [launch.py:347:main] Process 4242 exits successfully.`
/// (`deepspeed/launcher/launch.py`).
pub(super) fn left_well(line: &str) -> bool {
    of_deepspeed(line).is_some_and(|said| said.starts_with("Process ") && said.ends_with(" exits successfully."))
}

/// How many processes it starts on all hosts, as it says before: `[INFO] [launch.py:138:main] nnodes=2, num_local_procs=8, node_rank=0`.
pub(super) fn started(line: &str) -> Option<u64> {
    let (hosts, rest) = of_deepspeed(line)?.strip_prefix("nnodes=")?.split_once(", num_local_procs=")?;
    hosts.parse::<u64>().ok()?.checked_mul(leading(rest)?)
}

fn of_deepspeed(line: &str) -> Option<&str> {
    Some(parted(line, finder!(b"[INFO] [launch.py:"))?.1.split_once("] ")?.1.trim_end())
}

/// A program of several in a script that has done what it was to do.
pub(super) fn done(line: &str) -> Option<RankEnd> {
    let is_done = KNOWN.done.iter().any(|said| line.starts_with(said.as_str()));
    is_done.then(|| RankEnd { told_by: EndTeller::Runner, ..RankEnd::of(Ended::Success) })
}

/// MLPerf's log and its scripts' `RESULT,NAME,,SECONDS,USER,…`.
pub(super) fn success(line: &str) -> Option<RankEnd> {
    let has = |text: &str| line.contains(text);
    let mlperf = line.starts_with(":::MLLOG {")
        && (has("\"key\": \"run_stop\"") && has("\"status\": \"success\"")
            || has("\"key\": \"status\"") && has("\"value\": \"success\""));
    let script = line.starts_with("RESULT,") && line.matches(',').count() > 3;
    (mlperf || script).then(|| RankEnd::of(Ended::Success))
}

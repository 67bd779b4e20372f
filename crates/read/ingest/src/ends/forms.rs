//! The forms in which crash handlers, runtimes, shells and launchers tell of an end. Each is a beginning and what stands behind.

use super::EndLine;
use crate::text::{leading, part_digits};
use busbw_model::{Ended, RankEnd};

/// What a line is, without indent.
pub(super) fn read(line: &str) -> Option<EndLine> {
    if let Some(library) = library(line) {
        return Some(EndLine::Library(library));
    }
    if let Some(text) = line.strip_prefix("what():  ") {
        return Some(EndLine::What(text.to_string()));
    }
    if let Some(rank) = line.strip_prefix("rank ").and_then(|rest| rest.trim_start().strip_prefix(": ")) {
        return rank.contains("(local_rank: ").then(|| leading(rank).map(EndLine::Whose))?;
    }
    let readers = [crash, runtime, shell, nccl_program, slurm, mpirun, torchrun, success];
    readers.iter().find_map(|reader| reader(line)).map(EndLine::Ended)
}

/// Whether a line is a crash handler's, a runtime's that gives up, or a shell's that reports a signal.
pub(crate) fn is_of_crash(line: &str) -> bool {
    [crash, runtime, shell].iter().any(|reader| reader(line).is_some())
}

/// Whether nccl-tests, or an example of NCCL's, reports its failure.
pub(crate) fn is_of_nccl_program(line: &str) -> bool {
    nccl_program(line).is_some()
}

/// By its number: signals that a process brings on itself are crashes, the others come from outside.
fn by_signal(number: u32, name: &str) -> Ended {
    match number {
        2 => Ended::Interrupted("Ctrl-C".into()),
        9 | 15 => Ended::Killed(name.to_string()),
        _ => crashed(name),
    }
}

fn crashed(what: &str) -> Ended {
    Ended::Crash { what: what.to_string(), library: None, message: String::new() }
}

/// Open MPI's `[host:pid] *** Process received signal ***` and `[host:pid] Signal: Segmentation fault (11)`, UCX's
/// `[host:pid:0:tid] Caught signal 11 (Segmentation fault: …)`.
fn crash(line: &str) -> Option<RankEnd> {
    let (process, text) = line.strip_prefix('[')?.split_once("] ")?;
    let (host, pid) = process.split_once(':')?;
    let text = text.trim_start();
    let how = if text.starts_with("*** Process received signal ***") {
        crashed("")
    } else if let Some(signal) = text.strip_prefix("Signal: ") {
        let (name, number) = signal.rsplit_once(" (")?;
        by_signal(leading(number)?, name)
    } else {
        let rest = text.strip_prefix("Caught signal ")?;
        let (number, rest) = part_digits(rest);
        by_signal(number.parse().ok()?, rest.trim_start().strip_prefix('(')?.split([':', ')']).next()?)
    };
    Some(RankEnd { host: Some(host.to_string()), pid: leading(pid), ..RankEnd::of(how) })
}

/// `[host:pid] [ 1] /lib/libnccl.so.2(+0x14e63f)[0x7bdb0174e63f]`: `libnccl.so.2`, unless the C library's.
fn library(line: &str) -> Option<String> {
    const OF_THE_SYSTEM: [&str; 4] = ["libc.so", "libpthread", "ld-linux", "libc-"];
    let (_, frame) = line.strip_prefix('[')?.split_once("] [")?;
    let (number, path) = frame.trim_start().split_once("] ")?;
    number.parse::<u32>().ok()?;
    let name = path.split('(').next()?.rsplit('/').next()?;
    (!name.is_empty() && !OF_THE_SYSTEM.iter().any(|start| name.starts_with(start))).then(|| name.to_string())
}

/// The C++ and Rust runtimes, and Python's own.
fn runtime(line: &str) -> Option<RankEnd> {
    let what = if let Some(kind) = line.strip_prefix("terminate called after throwing an instance of '") {
        kind.trim_end_matches('\'').to_string()
    } else if let Some(reason) = line.strip_prefix("Fatal Python error: ") {
        reason.to_string()
    } else {
        let (_, place) = line.strip_prefix("thread '")?.split_once("' panicked at ")?;
        format!("panic at {}", place.trim_end_matches(':'))
    };
    Some(RankEnd::of(crashed(&what)))
}

/// `train.sh: line 12:  4242 Segmentation fault      (core dumped) ./train`, `Aborted (core dumped)`.
fn shell(line: &str) -> Option<RankEnd> {
    const NAMES: [(&str, u32); 6] = [
        ("Segmentation fault", 11),
        ("Aborted", 6),
        ("Killed", 9),
        ("Bus error", 7),
        ("Floating point exception", 8),
        ("Illegal instruction", 4),
    ];
    let named = |text: &str| NAMES.iter().find(|(name, _)| text.starts_with(name)).copied();
    let command = |name: &str, text: &str| {
        let rest = text[name.len()..].trim_start();
        let command = rest.strip_prefix("(core dumped)").unwrap_or(rest).trim();
        (!command.is_empty()).then(|| command.to_string())
    };
    let (pid, text) = match line.split_once(": line ") {
        Some((_, rest)) => {
            let (_, rest) = rest.split_once(": ")?;
            let (pid, rest) = part_digits(rest.trim_start());
            (Some(pid.parse().ok()?), rest.trim_start())
        }
        None => (None, line.ends_with("(core dumped)").then_some(line)?),
    };
    let (name, number) = named(text)?;
    Some(RankEnd {
        pid,
        command: command(name, text).filter(|_| pid.is_some()),
        ..RankEnd::of(by_signal(number, name))
    })
}

/// nccl-tests' `host: Test NCCL failure common.cu:958 'text'` and `NCCL failure common.cu:874 'text'`, and the examples of NCCL's documentation:
/// `Failed, NCCL error example.cpp:62 'text'`.
fn nccl_program(line: &str) -> Option<RankEnd> {
    const HEADS: [&str; 7] = [
        "Test NCCL failure ",
        "Test CUDA failure ",
        "NCCL failure ",
        "Cuda failure ",
        "Failed, NCCL error ",
        "Failed: Cuda error ",
        "Failed: NCCL error ",
    ];
    let head = |text: &str| HEADS.iter().find_map(|head| text.strip_prefix(head)).map(str::to_string);
    let (host, text) = match head(line) {
        Some(text) => (None, text),
        None => line.split_once(": ").and_then(|(host, rest)| Some((Some(host.to_string()), head(rest)?)))?,
    };
    let said = text.split_once('\'').filter(|(place, _)| place.contains(':'))?.1;
    Some(RankEnd { host, ..RankEnd::of(Ended::Failure(said.trim_end_matches([' ', '/', '\'']).to_string())) })
}

/// `srun: error: node1: tasks 1-7: Exited with exit code 134`, `slurmstepd: error: Detected 1 oom_kill event in …`, `slurmstepd: error: *** JOB 7 ON
/// n1 CANCELLED AT … DUE TO TIME LIMIT ***`.
fn slurm(line: &str) -> Option<RankEnd> {
    if line.starts_with("slurmstepd: error: *** ") && line.contains(" CANCELLED AT ") {
        let by = if line.contains("DUE TO TIME LIMIT") { "Slurm: time limit" } else { "Slurm: cancelled" };
        return Some(RankEnd::of(Ended::Interrupted(by.into())));
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
        Some(code) => Ended::Exit(leading(code)),
        None if said.starts_with("Killed") || said.starts_with("Terminated") || said.starts_with("Out Of Memory") => {
            Ended::Killed(said.to_string())
        }
        None => shell(&format!("{said} (core dumped)"))?.how,
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
    if let Some((host, rest)) = line.split_once(": rank ")
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
    let (_, signal) = rest.split_once(" exited on signal ")?;
    let name = signal.split_once('(').map_or(signal, |(_, name)| name.trim_end_matches(['.', ')']));
    let host = rest.split_once(" on node ").and_then(|(_, rest)| rest.split(' ').next()).map(str::to_string);
    let pid = rest.split_once(" with PID ").and_then(|(_, rest)| leading(rest)).filter(|pid| *pid > 0);
    let how = by_signal(leading(signal)?, name);
    Some(RankEnd { ranks: leading(rest).into_iter().collect(), host, pid, ..RankEnd::of(how) })
}

/// torchrun's `failed (exitcode: 1) local_rank: 3 (pid: 4246) of binary: …` and, in the block of its ChildFailedError, `exitcode  : 1 (pid: 4246)`;
/// DeepSpeed's `exits with return code = 1`.
fn torchrun(line: &str) -> Option<RankEnd> {
    let elastic = line.split_once("failed (exitcode: ").filter(|(before, _)| before.contains("torch"));
    let block = || line.strip_prefix("exitcode").and_then(|rest| rest.trim_start().strip_prefix(": "));
    if let Some(rest) = elastic.map(|(_, rest)| rest).or_else(block) {
        let pid = rest.split_once("(pid: ").and_then(|(_, rest)| leading(rest));
        return Some(RankEnd { pid, ..RankEnd::of(by_code(rest)?) });
    }
    let (before, code) = line.split_once(" exits with return code = ")?;
    before.contains("[launch.py:").then(|| by_code(code).map(RankEnd::of))?
}

/// What a launcher in Python raises of a child that a signal ended: `… died with <Signals.SIGSEGV: 11>.` (`subprocess`, which
/// torch.distributed.launch and accelerate start ranks with), `process 1 terminated with signal SIGKILL` (`torch/multiprocessing/spawn.py`).
pub(super) fn of_child(at: Option<&str>, message: &str) -> Option<Ended> {
    const SIGNALS: [(&str, u32); 6] =
        [("SIGSEGV", 11), ("SIGABRT", 6), ("SIGKILL", 9), ("SIGBUS", 7), ("SIGTERM", 15), ("SIGFPE", 8)];
    at.filter(|at| at.starts_with("launch.py:") || at.starts_with("spawn.py:"))?;
    let heads = [" died with <Signals.", " terminated with signal "];
    let name = heads.iter().find_map(|head| Some(message.split_once(head)?.1))?;
    let (name, number) = SIGNALS.iter().find(|(signal, _)| name.starts_with(signal))?;
    Some(by_signal(*number, name))
}

/// Whether no process goes on after an exception: those of communicators, which are gone then, and of a GPU's context.
pub(super) fn is_final(kind: &str, message: &str) -> bool {
    const MESSAGES: [&str; 4] = ["NCCL error", "NCCL Error", "CUDA error", "HIP error"];
    kind.starts_with("torch.distributed") || MESSAGES.iter().any(|start| message.starts_with(start))
}

/// By Python's return code of a process: a signal is a negative number.
fn by_code(text: &str) -> Option<Ended> {
    match text.strip_prefix('-') {
        Some(signal) => by_signal(leading(signal)?, &format!("signal {}", part_digits(signal).0)).into(),
        None => Some(Ended::Exit(Some(leading(text)?))),
    }
}

/// MLPerf's log and its scripts' `RESULT,NAME,,SECONDS,USER,…`.
fn success(line: &str) -> Option<RankEnd> {
    let has = |text: &str| line.contains(text);
    let mlperf = line.starts_with(":::MLLOG {")
        && (has("\"key\": \"run_stop\"") && has("\"status\": \"success\"")
            || has("\"key\": \"status\"") && has("\"value\": \"success\""));
    let script = line.starts_with("RESULT,") && line.matches(',').count() > 3;
    (mlperf || script).then(|| RankEnd::of(Ended::Success))
}

//! The forms in which crash handlers, runtimes, shells and launchers show an end. Each is a beginning and what stands behind.

use super::EndLine;
use crate::text::{leading, part_digits};
use busbw_model::{Ended, RankEnd};

/// What a line is, without indent.
pub(super) fn read(line: &str) -> Option<EndLine> {
    if let Some(library) = library(line) {
        return Some(EndLine::Library(library));
    }
    if let Some(text) = line.strip_prefix("what(): ") {
        return Some(EndLine::What(text.trim_start().to_string()));
    }
    if line.starts_with("Root Cause (first observed failure)") {
        return Some(EndLine::First);
    }
    if let Some(host) = line.strip_prefix("host ").and_then(|rest| rest.trim_start().strip_prefix(": ")) {
        return Some(EndLine::Host(host.trim().to_string())).filter(|_| !host.trim().contains(' '));
    }
    if let Some(rank) = line.strip_prefix("rank ").and_then(|rest| rest.trim_start().strip_prefix(": ")) {
        let local = rank.split_once("(local_rank: ").map(|(_, local)| leading(local))?;
        return leading(rank).map(|rank| EndLine::Whose(rank, local));
    }
    let readers = [
        crash,
        runtime,
        amd,
        shell,
        nccl_program,
        of_busbw,
        slurm,
        mpirun,
        mpi,
        hydra,
        torchrun,
        horovod,
        joined_block,
        success,
    ];
    readers.iter().find_map(|reader| reader(line)).map(|end| EndLine::Ended(Box::new(end)))
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
    if let Some(signal) = line.strip_prefix("Signal: ").or_else(|| line.strip_prefix("*** SIG")) {
        return bare_signal(line, signal);
    }
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

/// Open MPI's `Signal: Segmentation fault (11)` where somebody left out the process, glog's `*** SIGSEGV (@0x0) received by PID 4242 (TID …) …`.
fn bare_signal(line: &str, signal: &str) -> Option<RankEnd> {
    if let Some((_, pid)) = line.split_once(" received by PID ") {
        let name = line.trim_start_matches(['*', ' ']).split(' ').next()?;
        return Some(RankEnd { pid: leading(pid), ..RankEnd::of(crashed(name)) });
    }
    let (name, number) = signal.rsplit_once(" (")?;
    Some(RankEnd::of(by_signal(number.strip_suffix(')')?.parse().ok()?, name)))
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

/// The C++ and Rust runtimes, and Python's own; what Ray's processes print in the place of C++'s (`src/ray/util/logging.cc`):
/// `E 42067 42067] logging.cc:97: Unhandled exception: St13runtime_error. what(): text`.
fn runtime(line: &str) -> Option<RankEnd> {
    if let Some((_, thrown)) =
        line.split_once("] logging.cc:").and_then(|(_, rest)| rest.split_once(": Unhandled exception: "))
    {
        let (what, message) = thrown.split_once(". what(): ")?;
        let how = Ended::Crash { what: what.into(), library: None, message: message.into() };
        return Some(RankEnd::of(how));
    }
    if let Some(message) = fatal_check(line) {
        let how = Ended::Crash { what: "Check failed".into(), library: None, message: message.into() };
        return Some(RankEnd::of(how));
    }
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

/// AMD's runtime, which aborts the process then: `Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7. Reason: Unknown.`, `HW Exception by
/// GPU node-4 (Agent handle: 0x1) reason :GPU Hang` (ROCR's `runtime.cpp`), `… Queue 0x7 aborting with error : HSA_STATUS_ERROR_EXCEPTION: …` (ROCclr).
fn amd(line: &str) -> Option<RankEnd> {
    const STARTS: [&str; 2] = ["Memory access fault by GPU node-", "HW Exception by GPU node-"];
    let of_queue = line.starts_with(":0:rocdevice.cpp") && line.contains("borting with error : HSA_STATUS_ERROR");
    let says = of_queue || STARTS.iter().any(|start| line.starts_with(start));
    says.then(|| RankEnd::of(crashed("fault of a GPU")))
}

/// What glog's FATAL says before it ends the process: `F0204 18:10:17.783272 15144 math.hpp:176] Check failed: error == cudaSuccess (30 vs. 0) text`,
/// `F tensorflow/core/x.cc:12] Check failed: …`.
fn fatal_check(line: &str) -> Option<&str> {
    let (head, text) = line.split_once("] Check failed: ")?;
    let fatal = head.strip_prefix('F')?.starts_with(|c: char| c == ' ' || c.is_ascii_digit());
    let (file, number) = head.rsplit_once(':')?;
    (fatal && file.contains('.') && number.bytes().all(|b| b.is_ascii_digit())).then_some(text)
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

/// What ranks of `busbw bench` say of one that they lost (`describe` of busbw-launch): `busbw: rank 2 on host h3 (pid 8847, 10.77.0.3) has not
/// answered for 60 s: stopped, or its host or cable is cut off`. Of several, the first is named, and the others in what is said.
fn of_busbw(line: &str) -> Option<RankEnd> {
    const LOST: [&str; 3] = [" not answered for ", "closed its connection: ", " made no progress for "];
    let (rank, rest) = part_digits(line.strip_prefix("busbw: rank ")?);
    let (host, rest) = rest.strip_prefix(" on host ")?.split_once(" (pid ")?;
    let (process, said) = rest.split_once(") ")?;
    let how = Ended::Lost(LOST.iter().any(|lost| said.contains(lost)).then(|| said.to_string())?);
    Some(RankEnd {
        ranks: vec![rank.parse().ok()?],
        host: Some(host.into()),
        pid: leading(process),
        ..RankEnd::of(how)
    })
}

/// nccl-tests' `host: Test NCCL failure common.cu:958 'text'` and `NCCL failure common.cu:874 'text'`, and the examples of NCCL's documentation:
/// `Failed, NCCL error example.cpp:62 'text'`; RCCL's own tests: `[ ERROR    ] Child process 0 fails NCCL call ncclGroupEnd with code 1`.
fn nccl_program(line: &str) -> Option<RankEnd> {
    if let Some((_, call)) = line.strip_prefix("[ ERROR ").and_then(|rest| rest.split_once(" fails NCCL call ")) {
        let (call, result) = call.split_once(" with code ")?;
        return Some(RankEnd::of(Ended::Failure(format!("{call}: NCCL error {}", leading::<u32>(result)?))));
    }
    const HEADS: [&str; 9] = [
        "Test NCCL failure ",
        "Test CUDA failure ",
        "Test HIP failure ",
        "NCCL failure ",
        "Cuda failure ",
        "HIP failure ",
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
        Some(code) => by_code(code)?,
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

/// What MPI says of a rank that gives up: MPICH's `Abort(15) on node 7 (rank 7 in comm 0): Fatal error in PMPI_Wait: Other MPI error`, Cray's `MPICH ERROR
/// [Rank 7] [job id 1.0] [date] [n1] - Abort(15) (rank 7 in comm 0): Fatal error in …`, Open MPI's `MPI_ABORT was invoked on rank 3 in communicator …`;
/// text-generation-inference of its shards: `Shard process was signaled to shutdown with signal 7 rank=1`.
fn mpi(line: &str) -> Option<RankEnd> {
    let of_rank = |text: &str| leading(text).into_iter().collect::<Vec<u32>>();
    if let Some(rest) = line.strip_prefix("MPI_ABORT was invoked on rank ") {
        return Some(RankEnd { ranks: of_rank(rest), ..RankEnd::of(Ended::Exit(None)) });
    }
    if let Some((_, rest)) = line.split_once(" process was signaled to shutdown with signal ") {
        let (signal, rest) = part_digits(rest);
        let rank = rest.trim_start().strip_prefix("rank=").map_or(Vec::new(), of_rank);
        return Some(RankEnd {
            ranks: rank,
            ..RankEnd::of(by_signal(signal.parse().ok()?, &format!("signal {signal}")))
        });
    }
    if let Some((before, call)) = line.split_once("*** An error occurred in MPI_") {
        let (host, pid) =
            before.trim_end().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')?.split_once(':')).unzip();
        let said = format!("An error occurred in MPI_{}", call.trim_end());
        let pid = pid.and_then(leading);
        return Some(RankEnd { host: host.map(str::to_string), pid, ..RankEnd::of(Ended::Failure(said)) });
    }
    let (head, text) = line.split_once(" in comm ")?;
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
    let (before, rest) = line.split_once(" exitcode : ").filter(|(before, _)| before.contains("(local_rank: "))?;
    let (before, rank) = before.rsplit_once("rank : ")?;
    let host = before.rsplit_once("host : ").map(|(_, host)| host.trim().to_string());
    let pid = rest.split_once("(pid: ").and_then(|(_, rest)| leading(rest));
    Some(RankEnd { ranks: vec![leading(rank)?], host, pid, ..RankEnd::of(by_code(rest)?) })
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

/// Horovod's launcher of a worker that it started without MPI: `Process 1 exit with status code 1.` (`runner/gloo_run.py`).
fn horovod(line: &str) -> Option<RankEnd> {
    let (rank, rest) = part_digits(line.strip_prefix("Process ")?);
    let code = rest.strip_prefix(" exit with status code ")?.strip_suffix('.')?;
    let failed = by_code(code).filter(|how| *how != Ended::Exit(Some(0)))?;
    Some(RankEnd { ranks: vec![rank.parse().ok()?], ..RankEnd::of(failed) })
}

/// Servers of models whose worker processes end: vLLM's (`v1/engine/core.py`, `v1/engine/exceptions.py`), SGLang's (`srt/entrypoints/engine.py`).
pub(super) fn server(line: &str) -> Option<RankEnd> {
    const SAID: [&str; 4] = [
        "EngineCore encountered a fatal error.",
        "EngineCore failed to start.",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "Received sigquit from a child process.",
    ];
    let text = line.rsplit_once("] ").map_or(line, |(_, text)| text);
    SAID.iter().any(|said| text.starts_with(said)).then(|| RankEnd::of(Ended::Exit(None)))
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

/// By the code that a process left with: a signal is a negative number to Python, and 128 more to a shell.
fn by_code(text: &str) -> Option<Ended> {
    let of_signal = |number: u32| by_signal(number, &format!("signal {number}"));
    if let Some(signal) = text.strip_prefix('-') {
        return leading(signal).map(of_signal);
    }
    Some(match leading::<i32>(text)? {
        code @ 129..=159 => of_signal(code.unsigned_abs() - 128),
        code => Ended::Exit(Some(code)),
    })
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

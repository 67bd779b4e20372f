//! The forms in which crash handlers, runtimes, shells and launchers show an end. Each is a beginning and what stands behind.

use super::EndLine;
use super::codes::{by_signal, crashed, signal_named};
use super::{hpc, jobs, launchers, reports, runners};
use crate::cursor::finder;
use crate::text::{leading, part_digits, parted};
use busbw_model::{EndTeller, Ended, RankEnd};
use memchr::memrchr_iter;

/// What a line is, without indent.
pub(super) fn read(line: &str) -> Option<EndLine> {
    if let Some(library) = library(line).or_else(|| function(line)) {
        return Some(EndLine::Library(library));
    }
    if let Some(text) = line.strip_prefix("what(): ").or_else(|| forbidden(line)) {
        return Some(EndLine::What(text.trim_start().to_string()));
    }
    if let Some(reason) = hpc::reason(line) {
        return Some(EndLine::Reason(reason.trim_end().to_string()));
    }
    if let Some(listed) = jobs::listed(line) {
        return Some(EndLine::Listed(listed));
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
    if let Some(rank) = rank_of_snippet(line) {
        return Some(EndLine::Whose(rank, None));
    }
    if let Some(all) = launchers::started(line) {
        return Some(EndLine::Started(all));
    }
    if launchers::left_well(line) {
        return Some(EndLine::LeftWell);
    }
    let readers = [
        crash,
        julia,
        runtime,
        hpc::read,
        amd,
        launchers::shell,
        reports::read,
        runners::read,
        jobs::read,
        nccl_program,
        of_busbw,
        launchers::read,
        launchers::batch,
        launchers::mpi,
        launchers::kubernetes,
        one_ccl,
        launchers::interrupt,
        launchers::success,
        launchers::done,
    ];
    readers.iter().find_map(|reader| reader(line)).map(|end| EndLine::Ended(Box::new(end)))
}

/// The first rank of those whose traceback Ray Train shows next: `[Rank 0,3 Error Snippet]:` (`train/v2/_internal/execution/worker_group/poll.py`).
fn rank_of_snippet(line: &str) -> Option<u32> {
    leading(line.strip_prefix("[Rank ")?.strip_suffix(" Error Snippet]:")?)
}

/// Whether a line is a crash handler's, a runtime's that gives up, or a shell's that reports a signal.
pub(crate) fn is_of_crash(line: &str) -> bool {
    [crash, runtime, launchers::shell, core_dumped].iter().any(|reader| reader(line).is_some())
}

/// A shell's report of a core file.
fn core_dumped(line: &str) -> Option<RankEnd> {
    line.trim_end().ends_with("(core dumped)").then(|| runners::read(line))?
}

/// Whether nccl-tests, or an example of NCCL's, reports its failure.
pub(crate) fn is_of_nccl_program(line: &str) -> bool {
    nccl_program(line).is_some()
}

/// Open MPI's `[host:pid] *** Process received signal ***` and `[host:pid] Signal: Segmentation fault (11)`, UCX's
/// `[host:pid:0:tid] Caught signal 11 (Segmentation fault: …)`, also without the process.
fn crash(line: &str) -> Option<RankEnd> {
    if let Some(signal) = line.strip_prefix("Signal: ").or_else(|| line.strip_prefix("*** SIG")) {
        return bare_signal(line, signal);
    }
    if let Some(signal) = line.strip_prefix("Caught signal ").filter(|signal| is_of_fault(leading(signal))) {
        return caught_signal(signal).map(RankEnd::of);
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
        caught_signal(text.strip_prefix("Caught signal ")?)?
    };
    Some(RankEnd { host: Some(host.to_string()), pid: leading(pid), ..RankEnd::of(how) })
}

/// `11 (Segmentation fault: address not mapped …)`.
fn caught_signal(text: &str) -> Option<Ended> {
    let (number, rest) = part_digits(text);
    let told = rest.trim_start().strip_prefix('(')?;
    let mut how = by_signal(number.parse().ok()?, told.split([':', ')']).next()?);
    if let (Ended::Crash { message, .. }, Some((_, why))) = (&mut how, told.split_once(": ")) {
        *message = why.trim_end_matches(')').to_string();
    }
    Some(how)
}

/// Open MPI's `[host:pid] Signal code: Invalid permissions (2)` (`opal/util/stacktrace.c`, SEGV_ACCERR), which UCX calls by the same words.
fn forbidden(line: &str) -> Option<&str> {
    let (process, code) = line.strip_prefix('[')?.split_once("] Signal code: ")?;
    (process.contains(':') && code.starts_with("Invalid permissions")).then_some(code)
}

/// Whether a signal shows a fault of a program: others it may ask for, and go on.
fn is_of_fault(signal: Option<u32>) -> bool {
    signal.is_some_and(|signal| matches!(signal, 4 | 6 | 7 | 8 | 11))
}

/// Julia's `[4242] signal 11 (1): Segmentation fault`, up to 1.10 `[4242] signal (11.1): Segmentation fault`, up to 1.7 `signal (11): Segmentation fault`
/// (`jl_critical_error` of `src/signal-handling.c`).
fn julia(line: &str) -> Option<RankEnd> {
    let early = line.strip_prefix("signal (").map(|signal| ("", signal));
    let (pid, text) = early.or_else(|| line.strip_prefix('[')?.split_once("] signal "))?;
    let (signal, name) = text.split_once("): ")?;
    let number = leading(signal.trim_start_matches('(')).filter(|number| is_of_fault(Some(*number)))?;
    let pid = if early.is_some() { None } else { Some(leading(pid)?) };
    Some(RankEnd { pid, ..RankEnd::of(by_signal(number, name.trim_end())) })
}

/// Open MPI's `Signal: Segmentation fault (11)` where somebody left out the process, glog's `*** SIGSEGV (@0x0) received by PID 4242 (TID …) …`, Abseil's
/// `*** SIGSEGV received at time=1741083080 on cpu 12 ***` (`debugging/failure_signal_handler.cc`).
fn bare_signal(line: &str, signal: &str) -> Option<RankEnd> {
    let name = line.trim_start_matches(['*', ' ']).split(' ').next()?;
    // Handlers catch the signals by which somebody ends a process as well.
    let is_asked = matches!(name, "SIGTERM" | "SIGINT" | "SIGHUP");
    let how = || if is_asked { Ended::Interrupted(name.into()) } else { crashed(name) };
    if line.contains(" received at time=") {
        return Some(RankEnd::of(how()));
    }
    if let Some((_, pid)) = line.split_once(" received by PID ") {
        return Some(RankEnd { pid: leading(pid), ..RankEnd::of(how()) });
    }
    let (name, number) = signal.rsplit_once(" (")?;
    Some(RankEnd::of(by_signal(number.strip_suffix(')')?.parse().ok()?, name)))
}

/// The library of a frame, unless the C library's or a crash handler's: `[host:pid] [ 1] /lib/libnccl.so.2(+0x14e63f)[0x7bdb0174e63f]` of Open MPI,
/// ` 4  /lib/libucp.so.0(ucp_dt_pack+0x69) [0x15548b6e9109]` of UCX; the function, where UCX knows its file:
/// ` 5 0x0000000000032543 ucp_dt_pack()  /src/ucp/dt/dt.c:120` (`ucs/debug/debug.c`).
fn library(line: &str) -> Option<String> {
    const OF_THE_SYSTEM: [&str; 5] = ["libc.so", "libpthread", "ld-linux", "libc-", "libucs.so"];
    let of_open_mpi = || line.strip_prefix('[')?.split_once("] [")?.1.trim_start().split_once("] ");
    let of_ucx = || Some(line).filter(|line| line.ends_with(']') && line.contains("+0x"))?.split_once("  /");
    let (number, path) = of_open_mpi().or_else(of_ucx)?;
    number.parse::<u32>().ok()?;
    let name = path.split('(').next()?.rsplit('/').next()?;
    let is_name = !name.is_empty() && !name.contains([' ', '*']);
    (is_name && !OF_THE_SYSTEM.iter().any(|start| name.starts_with(start))).then(|| name.to_string())
}

/// The function of such a frame, unless it is a crash handler's, or the C library's, of which the nearest name may be any.
fn function(line: &str) -> Option<String> {
    let (number, rest) = parted(line, finder!(b" 0x"))?;
    let (address, rest) = rest.split_once(' ')?;
    let (function, file) = rest.split_once("()  ")?;
    let is_frame = number.parse::<u32>().is_ok() && address.len() == 16 && file.contains(':');
    let is_of_c = file.starts_with([':', '?']) || file.contains("/bits/");
    let is_of_handler = function.starts_with("ucs_") || function.starts_with("__");
    (is_frame && !is_of_c && !is_of_handler).then(|| format!("{function}()"))
}

/// What the C library says before it aborts a process whose memory is damaged (glibc `malloc/malloc.c`, `debug/fortify_fail.c`).
const ABORTS: [&str; 10] = [
    "double free or corruption",
    "free(): ",
    "malloc(): ",
    "realloc(): ",
    "munmap_chunk(): ",
    "malloc_consolidate(): ",
    "corrupted size vs. prev_size",
    "corrupted double-linked list",
    "*** stack smashing detected ***",
    "*** buffer overflow detected ***",
];

/// The C++ and Rust runtimes, and Python's own; what Ray's processes print in the place of C++'s (`src/ray/util/logging.cc`):
/// `E 42067 42067] logging.cc:97: Unhandled exception: St13runtime_error. what(): text`.
fn runtime(line: &str) -> Option<RankEnd> {
    if let Some((_, thrown)) =
        parted(line, finder!(b"] logging.cc:")).and_then(|(_, rest)| rest.split_once(": Unhandled exception: "))
    {
        let (what, message) = thrown.split_once(". what(): ")?;
        let how = Ended::Crash { what: what.into(), library: None, message: message.into() };
        return Some(RankEnd::of(how));
    }
    if let Some(text) = fatal(line) {
        let message = text.strip_prefix("Check failed: ").unwrap_or(text);
        let what = if message == text { "a fatal error" } else { "Check failed" };
        return Some(RankEnd::of(Ended::Crash { what: what.into(), library: None, message: message.into() }));
    }
    if ABORTS.iter().any(|start| line.starts_with(start)) {
        return Some(RankEnd::of(crashed(line.trim_end())));
    }
    let what = if let Some(kind) = line.strip_prefix("terminate called after throwing an instance of '") {
        kind.trim_end_matches('\'').to_string()
    } else if TERMINATES.contains(&line.trim_end()) {
        line.trim_end().to_string()
    } else if let Some(what) = assertion(line) {
        what
    } else if let Some(message) = of_openacc(line) {
        message.to_string()
    } else if let Some(message) = failure_with_place(line) {
        let how = crashed(&format!("fatal error: {message}"));
        let rank: Option<u32> = line.strip_prefix("ERROR on proc ").and_then(leading);
        // Of one rank, the program ends itself behind it.
        let told_by = if rank.is_some() { EndTeller::Job } else { EndTeller::Library };
        let ranks = rank.into_iter().collect();
        return Some(RankEnd { ranks, told_by, ..RankEnd::of(how) });
    } else if let Some(reason) = line.strip_prefix("Fatal Python error: ") {
        reason.to_string()
    } else {
        // `thread 'main' panicked at src/main.rs:3:5:`; since Rust 1.91 `thread 'main' (4242) panicked at …`.
        let (_, place) = line.strip_prefix("thread '")?.split_once(" panicked at ")?;
        format!("panic at {}", place.trim_end_matches(':'))
    };
    Some(RankEnd::of(crashed(&what)))
}

/// LAMMPS's `ERROR: text (src/pair.cpp:57)` and `ERROR on proc 3: …` (`src/error.cpp`), behind which it calls `MPI_Abort`: what failed.
fn failure_with_place(line: &str) -> Option<&str> {
    let (head, said) = line.trim_end().split_once(": ")?;
    let (what, place) = said.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, number) = place.rsplit_once(':')?;
    let is_file = [".cpp", ".h"].iter().any(|ending| file.ends_with(ending)) && !file.contains(' ');
    let fails = head == "ERROR" || head.starts_with("ERROR on proc ");
    (fails && is_file && number.bytes().all(|b| b.is_ascii_digit())).then_some(what)
}

/// What the OpenACC runtime of NVIDIA's compilers ends a program with: `FATAL ERROR: data in PRESENT clause was not found on device 1: name=x …`,
/// `Accelerator Fatal Error: call to cuMemAlloc returned error 2 (CUDA_ERROR_OUT_OF_MEMORY): Out of memory`.
fn of_openacc(line: &str) -> Option<&str> {
    const CLAUSES: [&str; 2] = ["data in ", "variable in data clause "];
    let of_data =
        line.strip_prefix("FATAL ERROR: ").filter(|said| CLAUSES.iter().any(|clause| said.starts_with(clause)));
    let said = of_data.or_else(|| line.strip_prefix("Accelerator Fatal Error: "))?;
    Some(said.split(": name=").next().unwrap_or(said).trim_end())
}

/// What GNU's C++ runtime says of a program that it ends without an exception (`libsupc++/vterminate.cc`, `pure.cc`).
const TERMINATES: [&str; 3] =
    ["terminate called without an active exception", "terminate called recursively", "pure virtual method called"];

/// glibc's `python: malloc.c:2617: sysmalloc: Assertion `size == 0' failed.` (`assert/assert.c`): what failed, and where.
fn assertion(line: &str) -> Option<String> {
    let (place, failed) = parted(line, finder!(b": Assertion `"))?;
    let expression = failed.trim_end().strip_suffix("' failed.")?;
    let mut parts = place.splitn(4, ": ").flat_map(|part| part.split_once(':'));
    let (file, number) = parts.next()?;
    number.bytes().all(|b| b.is_ascii_digit()).then(|| format!("assertion {expression} at {file}:{number}"))
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
fn fatal(line: &str) -> Option<&str> {
    let (head, text) = line.strip_prefix('F')?.split_once("] ")?;
    let fatal = head.starts_with(|c: char| c == ' ' || c.is_ascii_digit());
    let (file, number) = head.rsplit_once(' ')?.1.rsplit_once(':')?;
    (fatal && file.contains('.') && number.bytes().all(|b| b.is_ascii_digit())).then_some(text)
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
        None => parted(line, finder!(b": ")).and_then(|(host, rest)| Some((Some(host.to_string()), head(rest)?)))?,
    };
    let said = text.split_once('\'').filter(|(place, _)| place.contains(':'))?.1;
    Some(RankEnd { host, ..RankEnd::of(Ended::Failure(said.trim_end_matches([' ', '/', '\'']).to_string())) })
}

/// oneCCL, which throws most of what it logs as an error, and tries another way behind some: `2024:05:29-09:14:19:(1234) |CCL_ERROR| exec.cpp:134 start_workers: condition …`.
fn one_ccl(line: &str) -> Option<RankEnd> {
    let (_, said) = parted(line, finder!(b"|CCL_ERROR| "))?;
    Some(RankEnd { told_by: EndTeller::Library, ..RankEnd::of(Ended::Failure(said.to_string())) })
}

/// Servers of models whose worker processes end: vLLM's (`v1/engine/core.py`, `v1/engine/exceptions.py`), SGLang's (`srt/entrypoints/engine.py`); what
/// Hydra says of the program that it runs, before it leaves with status 1 (`hydra/_internal/utils.py`).
pub(super) fn server(line: &str) -> Option<RankEnd> {
    const SAID: [&str; 5] = [
        "EngineCore encountered a fatal error.",
        "EngineCore failed to start.",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "Received sigquit from a child process.",
        "Error executing job with overrides: ",
    ];
    let bracket = memrchr_iter(b']', line.as_bytes()).find(|at| line[at + 1..].starts_with(' '));
    let text = bracket.map_or(line, |at| &line[at + 2..]);
    SAID.iter().any(|said| text.starts_with(said)).then(|| RankEnd::of(Ended::Exit(None)))
}

/// What a launcher in Python raises of a child that a signal ended: `… died with <Signals.SIGSEGV: 11>.` (`subprocess`, which
/// torch.distributed.launch and accelerate start ranks with), `process 1 terminated with signal SIGKILL` (`torch/multiprocessing/spawn.py`).
pub(super) fn of_child(at: Option<&str>, message: &str) -> Option<Ended> {
    at.filter(|at| at.starts_with("launch.py:") || at.starts_with("spawn.py:"))?;
    let heads = [" died with <Signals.", " terminated with signal "];
    let name = heads.iter().find_map(|head| Some(message.split_once(head)?.1))?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    signal_named(name).map(|number| by_signal(number, &name[..end]))
}

/// Whether an exception tells of a process that is gone, whoever logs it: vLLM's of its engine (`v1/engine/exceptions.py`).
pub(super) fn is_of_dead(kind: &str) -> bool {
    kind.ends_with("EngineDeadError")
}

/// Whether no process goes on after an exception: those of communicators, which are gone then, and of a GPU's context.
pub(super) fn is_final(kind: &str, message: &str) -> bool {
    const MESSAGES: [&str; 4] = ["NCCL error", "NCCL Error", "CUDA error", "HIP error"];
    is_of_dead(kind) || kind.starts_with("torch.distributed") || MESSAGES.iter().any(|start| message.starts_with(start))
}

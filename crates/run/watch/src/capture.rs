//! What the moment of a standstill shows beside the samples: stacks, NCCL's RAS, PyTorch's flight recorder. All at once, and none for
//! longer than a few seconds.

use crate::folder::{Folder, recording_name};
use crate::ras;
use busbw_model::WatchSource;
use busbw_probe::processes::RankSample;
use busbw_probe::{Program, Root};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// How long py-spy may take for one process, with others beside it.
const STACK: Duration = Duration::from_secs(4);
/// PyTorch looks at its pipe once a second (`coordCheckIntervalMilSec_` of ProcessGroupNCCL.cpp).
const DUMP: Duration = Duration::from_secs(3);
/// Stacks are taken of so many processes at once.
const AT_ONCE: usize = 8;

/// Collects everything of these ranks into the folder; what each source told.
pub fn all(root: &Root, host: &str, ranks: &[RankSample], ras: Option<&str>, folder: &Folder) -> Vec<WatchSource> {
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask_ras(root, ranks, ras, folder));
        let stacks = scope.spawn(|| stacks(root, host, ranks, folder));
        let dumps = scope.spawn(|| flight_recorder(root, ranks, folder));
        let told = [stacks.join(), dumps.join(), asked.join()];
        told.into_iter().filter_map(Result::ok).collect()
    })
}

/// Asks NCCL's RAS at the address that was given, else where the ranks' environment says: of jobs on GPUs, others have none.
fn ask_ras(root: &Root, ranks: &[RankSample], address: Option<&str>, folder: &Folder) -> WatchSource {
    let set = |rank: &RankSample| variable(root, rank.pid, "NCCL_RAS_ADDR");
    let usual = || ranks.iter().find(|rank| rank.on_gpu).map(|rank| set(rank).unwrap_or_else(|| "localhost".into()));
    let Some(address) = address.map(str::to_owned).or_else(usual) else {
        let detail = "not asked: no rank here has a GPU open".into();
        return WatchSource { name: "ras".into(), told: false, detail };
    };
    let asked = ras::ask(&ras::address(&address));
    if let Ok(text) = &asked {
        // What is lost here is one source of several.
        let _ = folder.write("ras.txt", text.as_bytes());
    }
    ras::source(&asked)
}

/// A variable of a process's environment.
fn variable(root: &Root, pid: u32, name: &str) -> Option<String> {
    let environment = root.bytes(&format!("/proc/{pid}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    let value = environment.split('\0').find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Stacks of the ranks: by py-spy, or as far as the kernel tells them.
fn stacks(root: &Root, host: &str, ranks: &[RankSample], folder: &Folder) -> WatchSource {
    let spy = Program::find("py-spy");
    let mut text = String::new();
    let mut told = 0;
    for some in ranks.chunks(AT_ONCE) {
        let dumped: Vec<Option<String>> = std::thread::scope(|scope| {
            let spy = spy.as_ref();
            let one = |rank: &RankSample| {
                let pid = rank.pid;
                scope.spawn(move || dump(spy?, pid))
            };
            let running: Vec<_> = some.iter().map(one).collect();
            running.into_iter().map(|one| one.join().ok().flatten()).collect()
        });
        for (rank, dumped) in some.iter().zip(dumped) {
            told += usize::from(dumped.is_some());
            text.push_str(&dumped.unwrap_or_else(|| by_kernel(root, rank)));
            text.push('\n');
        }
    }
    let written = folder.write(&format!("stacks-{host}.txt"), text.as_bytes());
    let detail = match (&spy, told, written) {
        (_, _, Err(error)) => format!("not kept: {error}"),
        (Some(_), n, _) if n == ranks.len() => "py-spy's stack of every rank".into(),
        (Some(_), n, _) => format!(
            "py-spy read {n} of {} ranks; it needs root or CAP_SYS_PTRACE (kernel.yama.ptrace_scope=0 for one's own processes)",
            ranks.len()
        ),
        (None, ..) => "system calls only; with py-spy on the PATH (pip install py-spy), the line of the program".into(),
    };
    WatchSource { name: "stacks".into(), told: told > 0, detail }
}

/// As py-spy prints it. It does not hold the process while it looks (--nonblocking).
fn dump(spy: &std::path::Path, pid: u32) -> Option<String> {
    let ended = Program::new(spy, ["dump", "--nonblocking", "--pid", &pid.to_string()], STACK).run().ok()?;
    let text = String::from_utf8_lossy(&ended.output).into_owned();
    (ended.succeeded() && text.contains("Thread ")).then_some(text)
}

/// What /proc shows to those who may: its files by name, for people.
fn by_kernel(root: &Root, rank: &RankSample) -> String {
    let mut text = format!("rank {} (process {})\n", rank.identity.rank, rank.pid);
    for file in ["status", "wchan", "syscall", "stack"] {
        let read = root.read(&format!("/proc/{}/{file}", rank.pid));
        let read = read.unwrap_or_else(|error| format!("cannot be read: {error}"));
        let kept = read.lines().filter(|line| file != "status" || line.starts_with("State") || line.contains("ctxt"));
        kept.for_each(|line| text.push_str(&format!("{file}: {line}\n")));
    }
    text
}

/// Has PyTorch's flight recorders write what they hold, where a job has their pipes, and copies it.
///
/// `DumpPipe` of torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp reads `PREFIX` + rank + `.pipe`, any byte asks; the dump goes to the
/// file of `TORCH_FR_DUMP_TEMP_FILE` or `TORCH_NCCL_DEBUG_INFO_TEMP_FILE` + rank.
fn flight_recorder(root: &Root, ranks: &[RankSample], folder: &Folder) -> WatchSource {
    let asked: Vec<(u32, PathBuf, SystemTime)> = ranks.iter().filter_map(|rank| ask_recorder(root, rank)).collect();
    let until = Instant::now() + DUMP;
    let mut left = asked.clone();
    while !left.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
        left.retain(|(rank, file, since)| {
            // Written beside and in pieces: it is whole when it has not grown for a moment.
            let whole = file.metadata().is_ok_and(|there| {
                there.modified().is_ok_and(|at| at > *since && at.elapsed().is_ok_and(|age| age.as_millis() > 200))
            });
            let copied = || std::fs::read(file).and_then(|dump| folder.write(&recording_name(*rank), &dump));
            !(whole && copied().is_ok())
        });
    }
    let told = asked.len() - left.len();
    let detail = match (asked.len(), told) {
        (0, _) => {
            "no rank has a pipe: set TORCH_NCCL_DEBUG_INFO_PIPE_FILE and TORCH_NCCL_TRACE_BUFFER_SIZE (NCCL only)"
                .into()
        }
        (asked, told) => format!("{told} of {asked} ranks wrote which collectives they are in"),
    };
    WatchSource { name: "flight recorder".into(), told: told > 0, detail }
}

/// Asks the recorder of a rank: where its answer will be.
fn ask_recorder(root: &Root, rank: &RankSample) -> Option<(u32, PathBuf, SystemTime)> {
    let variable = |name: &str| variable(root, rank.pid, name);
    let number = rank.identity.rank;
    // As the process sees its files: in a container they are elsewhere.
    let seen = |path: String| PathBuf::from(format!("/proc/{}/root{path}", rank.pid));
    let pipe = seen(format!("{}{number}.pipe", variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")?));
    if !pipe.metadata().is_ok_and(|there| there.file_type().is_fifo()) {
        return None;
    }
    let since = SystemTime::now();
    // Nobody reads where the process is gone: then opening fails at once.
    let mut pipe = OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(pipe).ok()?;
    pipe.write_all(b"1").ok()?;
    let prefix = variable("TORCH_FR_DUMP_TEMP_FILE").or_else(|| variable("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"));
    let prefix = prefix.unwrap_or_else(|| "/tmp/nccl_trace_rank_".into());
    Some((number, seen(format!("{prefix}{number}")), since))
}

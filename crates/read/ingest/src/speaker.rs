//! Who prints a line other than a message of NCCL's. It is recognised by its form (a prefix, a format), never by a word.

use crate::cursor::finder;
use crate::ends;
use crate::evidence::KNOWN;
use crate::logger::level_of;
use crate::text::is_number;
use busbw_model::{Speaker, pod_row};
use memchr::memmem::Finder;

/// A form and who has it. The line stands without launchers' labels and time stamps, as [`crate::launcher::peel`] leaves it.
type Form = (Speaker, fn(&str) -> bool);

const FORMS: [Form; 10] = [
    (Speaker::NcclTests, is_nccl_tests),
    (Speaker::NetLibrary, is_net_library),
    (Speaker::Launcher, is_elastic),
    (Speaker::Torch, is_torch),
    (Speaker::Ssh, is_ssh),
    (Speaker::Python, |line| line.contains(XLA_QUOTES)),
    (Speaker::Python, is_warning),
    (Speaker::Crash, is_crash),
    (Speaker::Launcher, is_launcher),
    (Speaker::Kernel, is_kernel),
];

/// What XLA puts between its own error and NCCL's last warning (`xla/service/gpu/nccl_utils.cc`), in exceptions of JAX and TensorFlow.
const XLA_QUOTES: &str = "Last NCCL warning(error) log entry (may be unrelated)";

/// A warning of Python's, `/x/torch/cuda/__init__.py:174: UserWarning: text` (`Lib/warnings.py`, `_formatwarnmsg_impl`).
fn is_warning(line: &str) -> bool {
    let place = line.split_once(": UserWarning: ").map_or("", |(place, _)| place);
    place.rsplit_once(".py:").is_some_and(|(_, number)| is_number(number))
}

/// The speaker of a line: the job's own program where no form fits.
pub(crate) fn of(body: &str) -> Speaker {
    let body = body.trim_start();
    FORMS.iter().find(|(_, fits)| fits(body)).map_or(Speaker::Program, |(speaker, _)| *speaker)
}

/// Whether a text stands in a line: lines of PyTorch's are long, and each is searched.
fn has(line: &str, text: &Finder) -> bool {
    text.find(line.as_bytes()).is_some()
}

/// `host: Test NCCL failure common.cu:958 '…'`, ` .. host pid 1234: Test failure common.cu:401` (`src/common.h`).
fn is_nccl_tests(line: &str) -> bool {
    let behind_host = || line.split_once(": ").map_or(line, |(_, rest)| rest);
    ends::is_of_nccl_program(line) || line.starts_with(".. ") && behind_host().starts_with("Test failure ")
}

/// `libfabric:1612792:1751035971::core:core:ofi_shm_map():171<warn> …`; what UCX
/// dies of, `[host:1:0:1] ib_mlx5_log.c:143  Transport …` (`ucs_fatal_error_message` of its `debug/assert.c`); Cray MPICH's way to GPUs,
/// `GTL_DEBUG: [0] hsa_amd_ipc_memory_attach (in gtlt_hsa_ops.c at line 1544): …`, `(GTL DEBUG: 1) cuIpcOpenMemHandle: invalid argument, …`.
fn is_net_library(line: &str) -> bool {
    line.strip_prefix("libfabric:").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        || is_ucx(line)
        || line.starts_with("GTL_DEBUG: [")
        || line.starts_with("(GTL DEBUG: ")
        || line.starts_with("mlx5: ") && line.contains(": got completion with error:")
        || line.starts_with("cxil_map: ")
        || has(line, finder!(b"|CCL_ERROR| "))
        || is_nvshmem(line)
        || is_psm(line)
        || has(line, finder!(b"WARN: Function: ")) && line.contains(" Line: ")
        || behind_process(line)
            .and_then(|rest| rest.split_once(".c:"))
            .is_some_and(|(file, rest)| !file.contains(' ') && rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// `[1612792.1] [host:1:0]  mm.c:1  UCX  ERROR …`, also without what stands before the file; UCC and MXM write alike.
fn is_ucx(line: &str) -> bool {
    let names = [(finder!(b" UCX "), " UCX "), (finder!(b" MXM "), " MXM "), (finder!(b" UCC "), " UCC ")];
    names.iter().filter(|(finder, _)| has(line, finder)).any(|(_, name)| {
        line.split_once(name).is_some_and(|(place, rest)| {
            let place = place.trim_end();
            let of_file = place.rsplit_once(".c:").is_some_and(|(file, line)| !file.contains(' ') && is_number(line));
            (place.starts_with('[') || of_file)
                && ["ERROR ", "WARN "].iter().any(|level| rest.trim_start().starts_with(level))
        })
    })
}

/// `node1.30734PSM2 can't open hfi unit: -1 (err=23)`, `node1:rank0: PSM3 can't open nic unit: 0 (err=23)` (`psm_ep.c`, `psmi_ep_open_device`),
/// `node1.30734PSM2 no hfi units are active (err=23)` (`psm_context.c`).
fn is_psm(line: &str) -> bool {
    has(line, finder!(b" can't open "))
        && ["PSM2 can't open hfi unit", "PSM3 can't open nic unit"].iter().any(|text| line.contains(text))
        || has(line, finder!(b"PSM2 no hfi units are "))
}

/// `/opt/nvshmem/src/modules/transport/ibrc/ibrc.cpp:418: non-zero status: 110 …`: NVSHMEM names its file with the path of the build.
fn is_nvshmem(line: &str) -> bool {
    const FILES: [&str; 3] = [".cpp:", ".cu:", ".h:"];
    let of_file =
        |file: &str| line.split_once(file).is_some_and(|(path, _)| path.contains("nvshmem") && !path.contains(' '));
    line.starts_with('/') && FILES.iter().any(|file| of_file(file))
}

/// `[E ProcessGroupNCCL.cpp:616] …`, `[rank0]:[W1012 10:00:00.0 socket.cpp:752] …`, `E0101 … ProcessGroupNCCL.cpp:1] …`: glog's
/// letter, time and place, of a C++ file. Horovod and TensorFlow name a path: `W horovod/common/operations.cc:588] …`.
fn is_torch(line: &str) -> bool {
    let head = &line[..line.floor_char_boundary(160)];
    let Some((head, _)) = head.split_once(']') else { return false };
    let head = head.trim_start_matches('[');
    let letter =
        head.starts_with(['E', 'W', 'I', 'F']) && head[1..].starts_with(|c: char| c == ' ' || c.is_ascii_digit());
    letter
        && head.rsplit_once(":").is_some_and(|(file, line)| {
            let is_cpp = file.ends_with(".cpp") || file.ends_with(".hpp");
            is_number(line) && (is_cpp || file.ends_with(".cc") && file.contains('/'))
        })
}

/// torchrun: `E1012 10:00:01.000000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) …`,
/// `torch.distributed.elastic.multiprocessing.api: [ERROR] failed`, `ERROR:torch.distributed.elastic…:failed` (Python's `logging.basicConfig`, at any
/// level); DeepSpeed's launcher.
fn is_elastic(line: &str) -> bool {
    let head = &line[..line.floor_char_boundary(160)];
    head.contains("torch/distributed/elastic/") && head.contains(".py:")
        || behind_level(line).starts_with("torch.distributed.elastic.")
        || line.starts_with("[ERROR] [launch.py:")
        || line.starts_with("[INFO] [launch.py:")
}

/// What stands behind the level of `LEVEL:logger:text`.
fn behind_level(line: &str) -> &str {
    line.split_once(':').filter(|(level, _)| level_of(level).is_some()).map_or(line, |(_, rest)| rest)
}

/// Crash handlers, the C++ and Rust runtimes, Python's faulthandler, a shell that reports a signal; AMD's runtime before it ends a process:
/// `Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7. Reason: Unknown.` (ROCR's `runtime.cpp`), `:0:rocdevice.cpp :2984: …
/// aborting with error : HSA_STATUS_ERROR_EXCEPTION: …` (ROCclr), `"hipErrorNoBinaryForGpu: Unable to find code object …"` (HIP's `guarantee`).
fn is_crash(line: &str) -> bool {
    const MORE: [&str; 10] = [
        "terminate called ",
        "what(): ",
        "*** SIG",
        "*** Aborted at ",
        "Segmentation fault",
        "Bus error",
        "Memory access fault by GPU node-",
        "HW Exception by GPU node-",
        ":0:rocdevice.cpp",
        "\"hipErrorNoBinaryForGpu: ",
    ];
    ends::is_of_crash(line)
        || is_device_assertion(line)
        || behind_process(line).is_some_and(|rest| rest.starts_with("Signal code: "))
        || line.contains("guarantee(") && line.contains("hipErrorNoBinaryForGpu: ")
        || MORE.iter().any(|start| line.starts_with(start))
}

/// `assert` in a kernel: CUDA's `IndexKernel.cu:93: operator(): block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed.`, and HIP's
/// `skinny_gemms.hip:583: void wv_(): Device-side assertion `false' failed.`.
fn is_device_assertion(line: &str) -> bool {
    let of_cuda = line.contains(": block: [") && line.contains("], thread: [") && line.contains("] Assertion `");
    (of_cuda || line.contains(": Device-side assertion `")) && line.trim_end().ends_with(" failed.")
}

/// OpenSSH's client, `me@n2: Permission denied (publickey,password).` too; pdsh puts its host in front: `n2: ssh: connect to host n2 …`.
fn is_ssh(line: &str) -> bool {
    let behind_host = line.split_once(": ").filter(|(host, _)| !host.contains(' ')).map_or("", |(_, rest)| rest);
    KNOWN.ssh.iter().any(|start| line.starts_with(start))
        || behind_host.starts_with("ssh: ")
        || line
            .split_once(": Permission denied (publickey")
            .is_some_and(|(who, _)| who.contains('@') && !who.contains(' '))
}

/// mpirun and its daemons, srun, Ray (`E 395 395] (raylet) node_manager.cc:3049: …`), shells that find no program.
fn is_launcher(line: &str) -> bool {
    KNOWN.launchers.iter().any(|start| line.starts_with(start))
        || line.contains("] (raylet) ")
        || behind_process(line).is_some_and(is_open_mpi)
        || line.starts_with("*** An error occurred in MPI_")
        || pod_row(line).is_some()
        || ends::is_row_of_slurm(line)
        || ends::is_of_step(line)
        || is_last_of_slurm(line)
        || is_journal_of_slurm(line)
        || line.starts_with('[') && (line.contains("][btl_") || line.contains("][connect/btl_"))
        || is_of_mpich_stack(line)
        || line.contains(": error while loading shared libraries: ")
        || line.contains(": symbol lookup error: ")
        || line.contains("sh: ") && NOT_FOUND.iter().any(|end| line.contains(end))
}

/// What a daemon of Slurm writes to its own log as it gives up, `[2026-11-20T10:00:00.123] fatal: …` (`src/common/log.c`): the form of the time shows
/// whose it is.
pub(crate) fn is_last_of_slurm(line: &str) -> bool {
    const HEAD: &[u8] = b"[dddd-dd-ddTdd:dd:dd.ddd] fatal: ";
    let fits = |(shape, byte): (&u8, u8)| if *shape == b'd' { byte.is_ascii_digit() } else { *shape == byte };
    line.len() > HEAD.len() && HEAD.iter().zip(line.bytes()).all(fits)
}

/// A line of Slurm's daemons in a journal: `Nov 20 10:00:00 n1 slurmd[4242]: error: …`.
fn is_journal_of_slurm(line: &str) -> bool {
    const TAGS: [&str; 3] = [" slurmd[", " slurmctld[", " slurmdbd["];
    let is_tag = |rest: &str| rest.split_once("]: ").is_some_and(|(process, _)| is_number(process));
    has(line, finder!(b" slurm"))
        && TAGS.iter().filter_map(|tag| line.split_once(tag)).any(|(head, rest)| head.len() < 80 && is_tag(rest))
}

/// A line of the stack below `Fatal error in PMPI_Bcast: Other MPI error, error stack:`, `MPIDU_complete_posted(1137)...........: message`, where dots fill up to a
/// column (MPICH `src/mpi/errhan/errutil.c`).
fn is_of_mpich_stack(line: &str) -> bool {
    has(line, finder!(b".:"))
        && line.split_once('(').is_some_and(|(function, rest)| {
            let is_function = function.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let dots = rest.split_once(')').filter(|(number, _)| is_number(number)).map(|(_, dots)| dots);
            is_function && dots.is_some_and(|dots| dots.trim_start_matches('.').starts_with(':'))
        })
}

/// What shells say behind the name of a program that they do not find: bash, dash (`sh: 1: torchrun: not found`).
const NOT_FOUND: [&str; 3] = [": command not found", ": not found", "_perf: No such file or directory"];

/// What Open MPI prints behind its `[host:pid] ` (`opal_output`), itself or the parts below it.
fn is_open_mpi(text: &str) -> bool {
    const STARTS: [&str; 9] = [
        "*** MPI_ERR_",
        "PMIX ERROR: ",
        "PRTE ERROR: ",
        "PRRTE ERROR: ",
        "OPAL ERROR: ",
        "PML add procs failed",
        "*** An error occurred in MPI_",
        "Read -1, expected ",
        "Wrote -1, expected ",
    ];
    STARTS.iter().any(|start| text.starts_with(start)) || text.starts_with("[[") && text.contains("] ORTE_ERROR_LOG: ")
}

/// The kernel, and gpu_burn of a machine's GPU: `GPU 3: FAULTY`; `[12345.678901] NVRM: …`, `Nov 23 05:00:00 node1 kernel: …`, `NVRM: Xid (…`, Talos's
/// `kern: warning: [2026-11-23T05:00:00Z]: NVRM: …`.
fn is_kernel(line: &str) -> bool {
    let uptime = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    // `dmesg -e` prints the time since the line before: `[  +0.000316]`.
    let is_uptime = |text: &str| {
        text.trim_start()
            .trim_start_matches('+')
            .split_once('.')
            .is_some_and(|(whole, part)| is_number(whole) && part.len() == 6 && is_number(part))
    };
    uptime.is_some_and(|(time, _)| is_uptime(time) || is_date(time))
        || line.strip_prefix("GPU ").and_then(|rest| rest.split_once(": FAULTY")).is_some_and(|(gpu, _)| is_number(gpu))
        || line.starts_with("NVRM: ")
        || line.strip_prefix("kern: ").is_some_and(|rest| rest.contains(": [") && rest.contains("]: "))
        || is_fabric_manager(line)
        || [" kernel: ", " nv-fabricmanager["]
            .iter()
            .any(|program| line.split_once(program).is_some_and(|(head, _)| head.len() < 80))
}

/// What the fabric manager writes to its own log: `[Nov 20 2026 11:02:13] [ERROR] [tid 3214] …`.
fn is_fabric_manager(line: &str) -> bool {
    let behind_level = || line.rsplit_once("] [tid ");
    has(line, finder!(b"] [tid "))
        && behind_level()
            .and_then(|(head, rest)| Some((head.rsplit_once('[')?.1, rest.split_once("] ")?.0)))
            .is_some_and(|(level, thread)| level_of(level).is_some() && is_number(thread))
}

/// `Mon Nov 23 05:00:00 2026` of `dmesg -T`.
fn is_date(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let day = words.next().is_some_and(|day| ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(&day));
    day && words.nth(1).is_some_and(is_number) && words.next().is_some_and(|time| time.split(':').count() == 3)
}

/// What stands behind Open MPI's `[host:pid]` or UCX's `[host:pid  :0:pid]`, which gives the number five places.
fn behind_process(line: &str) -> Option<&str> {
    let (head, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (host, pid) = head.split_once(':')?;
    let process = !host.is_empty() && !host.contains(' ') && pid.split(':').all(|part| is_number(part.trim_end()));
    process.then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_tell_who_speaks() {
        for (line, speaker) in crate::text::cases::<(String, String)>("speakers") {
            assert_eq!(of(&line).as_str(), speaker, "{line}");
            let looked_at = line.trim_start().starts_with('[') || crate::evidence::of(line.as_bytes()).speaker;
            assert!(looked_at || speaker == "program", "{line}");
        }
    }
}

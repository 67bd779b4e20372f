//! Tells lines of the formats that words anywhere in a line give away: NCCL's diagnostics and RAS, PyTorch's watchdog,
//! commands of the system. Runs on lines that are no messages of NCCL's log, once over each.

use aho_corasick::AhoCorasick;
use std::sync::LazyLock;

/// Who may read the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Evidence {
    /// PyTorch's: the reader wants the line with its labels, which name the rank.
    Torch,
    /// Anybody else's.
    Other,
}

const TORCH: [&str; 19] = [
    "Watchdog caught collective operation timeout",
    "atchdog thread terminated",
    "enqueued work",
    "enqueued NCCL work",
    "atchdog got stuck",
    "Heartbeat monitor timed out",
    "no heartbeat of its watchdog",
    "dump signal",
    "Some NCCL operations have failed",
    "taking the entire process down",
    "Detected mismatch between collectives",
    "to pass monitoredBarrier",
    "Timeout at collective",
    "are the lagging ranks",
    "collective #",
    " started ranks:",
    " finished ranks:",
    "] started ",
    "aborted its NCCL communicators",
];

const OTHER: [&str; 94] = [
    // fr_trace
    "Not all ranks joining",
    "group info: ",
    "missing ranks: {",
    // NCCL's diagnostics and RAS
    "NCCL DIAG ",
    "compiled with CUDA ",
    "CUDA runtime version ",
    "Job summary",
    "per process",
    "(total)",
    "Communicators... (",
    "Ranks     Ranks",
    "RUNNING ",
    "FINALIZE ",
    "INIT ",
    "ABORT ",
    "INCOMPLETE",
    "MISMATCH",
    ") ERROR",
    "DEAD",
    " ranks have ",
    " ranks reported ",
    "have different ",
    " managed by process ",
    " managing GPU",
    "[process information not found]",
    "issing communicator data",
    "The missing rank",
    "considered dead",
    "communication timeout",
    "nitialization error",
    "synchronous error",
    // Ports
    "CA '",
    "Infiniband device '",
    "hca_id",
    "Port ",
    "port:",
    "tate:",
    "ate:",
    "ink layer",
    "link_layer",
    "_mtu",
    "fw_ver",
    "irmware version",
    "CA type:",
    "active_",
    "==>",
    "physical_state",
    "GID[",
    "\tv1",
    " v1 ",
    "\tv2",
    " v2 ",
    "Settings for ",
    "Speed:",
    "Duplex:",
    "Link detected",
    " mtu ",
    // PCIe, GPUs
    "LnkSta:",
    "LnkCap:",
    "ACSCtl:",
    ":00.",
    " controller: ",
    "PCI bridge: ",
    "Driver Version",
    "CUDA Version",
    "Product Name",
    "    Fabric",
    "        Link Width",
    "    MIG Mode",
    "C Mode",
    "c Mode",
    "        Volatile",
    "        Aggregate",
    "Uncorrectable",
    "Remapp",
    "        PCIe Generation",
    "Current  ",
    "Max  ",
    "Status  ",
    "State  ",
    "GB/s",
    "<inactive>",
    " CNS",
    // Limits and services
    "open files",
    "locked memory",
    "/dev/shm",
    "peermem",
    "peer_mem",
    ".service",
    "Active: ",
    // The kernel
    "Xid (",
    "AER: ",
    "PCIe Bus Error: ",
    "ut of memory: Kill",
];

/// What begins a line of a command's output, or is a prompt with a command.
const BEGINNINGS: [&[u8]; 6] = [b"GPU", b" GPU", b"DEAD", b"max ", b"stack size", b"Max "];

static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(TORCH.iter().chain(&OTHER)).ok());

/// Who may read a line; `None` for most lines.
pub(crate) fn of(line: &[u8]) -> Option<Evidence> {
    if BEGINNINGS.iter().any(|start| line.starts_with(start)) || is_prompt(line) {
        return Some(Evidence::Other);
    }
    let evidence = |pattern: usize| if pattern < TORCH.len() { Evidence::Torch } else { Evidence::Other };
    let found = WORDS.as_ref()?.find_iter(line);
    found.map(|found| evidence(found.pattern().as_usize())).min()
}

/// `root@node1:~# ibstat`: the commands that follow speak of that host.
fn is_prompt(line: &[u8]) -> bool {
    let start = &line[..line.len().min(80)];
    let at = memchr::memchr(b'@', start);
    at.is_some_and(|at| {
        memchr::memmem::find(&start[at..], b"# ").or(memchr::memmem::find(&start[at..], b"$ ")).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_who_may_read_them() {
        let cases = [
            ("[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(", Some(Evidence::Torch)),
            ("n:1 NCCL DIAG [OK] p2p: fine", Some(Evidence::Other)),
            ("\t\tState: Active", Some(Evidence::Other)),
            ("root@node1:~# ibstat", Some(Evidence::Other)),
            ("step 12, loss 0.25, 3.1 s", None),
            ("      8388608       2097152     float     sum      -1   123.4   68.0  127.5      0", None),
        ];
        for (line, expected) in cases {
            assert_eq!(of(line.as_bytes()), expected, "{line}");
        }
    }
}

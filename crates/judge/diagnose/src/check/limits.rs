//! Limits of processes and memory.

use super::area_report::{AreaReport, listed};
use busbw_model::node::{Bound, Known, Limits, LinuxLimit, SharedMemory};
use busbw_model::{Code, NodeFacts};

/// Locked memory below this is a shell's default, not one for RDMA.
const LITTLE_LOCKED_MEMORY: u64 = 1 << 30;
/// NCCL raises the soft limit of files to the hard one (`setFilesLimit` in src/bootstrap.cc); large jobs need some sockets per
/// rank and channel.
const FEW_FILES: u64 = 1024;
const ENOUGH_FILES: u64 = 8192;
const FEW_PROCESSES: u64 = 4096;
/// What Docker gives of /dev/shm, and what several GPUs want.
const DOCKERS_SHARED_MEMORY: u64 = 64 << 20;
const LITTLE_SHARED_MEMORY: u64 = 256 << 20;

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    match &node.limits {
        Known::Unknown(why) => report.skip("limits", why),
        Known::Known(limits) => {
            locked_memory(limits, node, report);
            files(limits.open_files, report);
            processes(limits.processes, report);
        }
    }
    match &node.shared_memory {
        Known::Unknown(why) => report.skip("/dev/shm", why),
        Known::Known(memory) => shared_memory(*memory, node.gpu.devices.len(), report),
    }
    if !node.memory_kills.is_empty() {
        let remedy = "When a rank is killed, the others wait for it. Give the job more host memory, or load less per rank: `sudo dmesg -T | grep -i 'killed process'`";
        report.fail(
            "memory",
            format!("ran out: the kernel killed {}", listed(&node.memory_kills)),
            Some(Code::PeerDied),
            remedy,
        );
    }
    if let Some(huge) = &node.huge_pages {
        let own = huge.transparent.as_deref().map_or(String::new(), |mode| format!(", transparent: {mode}"));
        report.ok("huge pages", format!("{} of {} set aside{own}", huge.pages, bytes(huge.page_bytes)));
    }
}

fn bytes(count: u64) -> String {
    match count {
        count if count >= 10 << 30 => format!("{} GiB", count >> 30),
        count if count >= 10 << 20 => format!("{} MiB", count >> 20),
        count => format!("{} KiB", count >> 10),
    }
}

fn shown(bound: Bound, unit: impl Fn(u64) -> String) -> String {
    match bound {
        Bound::Unlimited => "unlimited".to_owned(),
        Bound::At(value) => unit(value),
    }
}

fn locked_memory(limits: &Limits, node: &NodeFacts, report: &mut AreaReport) {
    let soft = limits.locked_memory.soft;
    let detail = shown(soft, bytes);
    if !soft.is_below(LITTLE_LOCKED_MEMORY) {
        return report.ok("memlock", detail);
    }
    if limits.may_lock_all {
        return report.ok("memlock", format!("{detail}, which CAP_IPC_LOCK lifts for this process"));
    }
    if node.rdma.is_empty() && !node.partial {
        return report.ok("memlock", format!("{detail}, and no RDMA device that would need more"));
    }
    let remedy = "RDMA locks the memory that NICs read and write: `printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee /etc/security/limits.d/rdma.conf`, then log in again; Docker: `--ulimit memlock=-1`; Slurm: `PropagateResourceLimitsExcept=MEMLOCK`";
    if node.rdma.is_empty() {
        return report.warn("memlock", detail, Some(Code::LimitsMemlock), remedy);
    }
    report.fail("memlock", detail, Some(Code::LimitsMemlock), remedy);
}

fn files(limit: LinuxLimit, report: &mut AreaReport) {
    let number = |value: u64| value.to_string();
    let detail = format!("{}, may be raised to {}", shown(limit.soft, number), shown(limit.hard, number));
    let remedy = "Every rank needs sockets and files for each peer and channel: `printf '* soft nofile 1048576\\n* hard nofile 1048576\\n' | sudo tee /etc/security/limits.d/nofile.conf`, then log in again; Docker: `--ulimit nofile=1048576`";
    if limit.hard.is_below(FEW_FILES) {
        report.fail("nofile", detail, Some(Code::LimitsFiles), remedy);
    } else if limit.hard.is_below(ENOUGH_FILES) {
        report.warn("nofile", detail, Some(Code::LimitsFiles), remedy);
    } else {
        report.ok("nofile", detail);
    }
}

fn processes(limit: LinuxLimit, report: &mut AreaReport) {
    let detail = shown(limit.soft, |value| value.to_string());
    if limit.soft.is_below(FEW_PROCESSES) {
        let remedy = "Threads count as processes, and every rank has dozens: `ulimit -u unlimited`; Docker and Kubernetes: raise the limit of pids";
        report.warn("nproc", detail, None, remedy);
    } else {
        report.ok("nproc", detail);
    }
}

fn shared_memory(memory: SharedMemory, gpus: usize, report: &mut AreaReport) {
    let detail = format!("{}, {} free", bytes(memory.size_bytes), bytes(memory.free_bytes));
    let remedy = "Ranks of a node share buffers there. Docker: `docker run --shm-size=8g …` or `--ipc=host`; Kubernetes: an emptyDir of medium Memory at /dev/shm; full: `ls -l /dev/shm`";
    if memory.size_bytes > LITTLE_SHARED_MEMORY && memory.free_bytes > LITTLE_SHARED_MEMORY / 4 {
        report.ok("/dev/shm", detail);
    } else if gpus > 1 && memory.free_bytes <= DOCKERS_SHARED_MEMORY {
        report.fail("/dev/shm", detail, Some(Code::LimitsShm), remedy);
    } else {
        report.warn("/dev/shm", detail, Some(Code::LimitsShm), remedy);
    }
}

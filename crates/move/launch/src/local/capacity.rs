//! How many ranks this host can hold. More are refused before the first is started: a host that has forked its last process
//! serves nobody.

use crate::{Error, Result};
use nix::sys::resource::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// What a rank takes at least: `busbw bench` with 8 bytes on x86-64 has 11 MiB of its own and four threads, and two threads
/// and pipes of this process pass on what it prints.
const MEMORY: u64 = 8 << 20;
const TASKS: u64 = 6;
const DESCRIPTORS: u64 = 2;
/// What this process opens beside the pipes.
const OWN_DESCRIPTORS: u64 = 16;

/// So much of something is left, of which a rank takes `each`.
struct Limit {
    left: u64,
    each: u64,
    why: String,
}

impl Limit {
    fn ranks(&self) -> u64 {
        self.left / self.each
    }
}

/// Refuses ranks for which there is no room.
pub(super) fn check(np: usize) -> Result<()> {
    let own = [descriptors(), processes()].into_iter().flatten();
    judge(np, own.chain(of_the_host(Path::new("/"))))
}

fn judge(np: usize, limits: impl Iterator<Item = Limit>) -> Result<()> {
    match limits.min_by_key(Limit::ranks) {
        Some(least) if (np as u64) > least.ranks() => {
            Err(Error::Usage(format!("--np {np}: this host has room for {} ranks: {}", least.ranks(), least.why)))
        }
        _ => Ok(()),
    }
}

fn descriptors() -> Option<Limit> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let left = limit.saturating_sub(OWN_DESCRIPTORS);
    Some(Limit { left, each: DESCRIPTORS, why: format!("each needs {DESCRIPTORS} open files here; see `ulimit -n`") })
}

/// Root has no limit of processes (`copy_process` in Linux' kernel/fork.c).
fn processes() -> Option<Limit> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    let user = nix::unistd::geteuid();
    let taken = if user.is_root() { return None } else { tasks_of(user.as_raw()) };
    let why = format!("each has {TASKS} threads, and you have {taken} of at most {limit} threads; see `ulimit -u`");
    Some(Limit { left: limit.saturating_sub(taken), each: TASKS, why })
}

fn tasks_of(user: u32) -> u64 {
    let statuses = fs::read_dir("/proc").into_iter().flatten().flatten();
    let statuses = statuses.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let theirs = statuses.filter(|status| field(status, "Uid:") == Some(user.into()));
    theirs.filter_map(|status| field(&status, "Threads:")).sum()
}

/// What the kernel and the cgroups of this process leave.
fn of_the_host(root: &Path) -> impl Iterator<Item = Limit> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let running = read("proc/loadavg").split(['/', ' ']).nth(4).and_then(|all| all.parse().ok()).unwrap_or(0);
    let kernel = ["pid_max", "threads-max"].map(|name| {
        let limit: u64 = read(&format!("proc/sys/kernel/{name}")).trim().parse().ok()?;
        let why = format!("each has {TASKS} threads, and {running} of the kernel's {limit} are taken (kernel.{name})");
        Some(Limit { left: limit.saturating_sub(running), each: TASKS, why })
    });
    let memory = field(&read("proc/meminfo"), "MemAvailable:").map(|kib| of_memory(kib << 10, "available"));
    let groups = cgroups(root, &read("proc/self/cgroup"));
    kernel.into_iter().chain([memory]).flatten().chain(groups.into_iter().flat_map(|group| of_a_cgroup(&group)))
}

fn of_memory(left: u64, what: &str) -> Limit {
    let why = format!("each needs {} MiB of memory or more, and {} MiB are {what}", MEMORY >> 20, left >> 20);
    Limit { left, each: MEMORY, why }
}

/// Folders of the cgroups that this process is in, version 1 and 2, with those above them. In a container, what the process
/// sees as its own may be at the mount's root.
fn cgroups(root: &Path, of_process: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in of_process.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controller), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mount = root.join("sys/fs/cgroup").join(controller);
        let own = Path::new(path.trim_start_matches('/'));
        found.extend(own.ancestors().map(|folder| mount.join(folder)).filter(|folder| folder.is_dir()));
    }
    found
}

/// The names of version 2 and of version 1: <https://docs.kernel.org/admin-guide/cgroup-v2.html>, `cgroup-v1/memory.html`.
fn of_a_cgroup(folder: &Path) -> Vec<Limit> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let mut limits = Vec::new();
    if let (Some(most), Some(taken)) = (number("pids.max"), number("pids.current")) {
        let why = format!("each has {TASKS} threads, and {taken} of the cgroup's {most} are taken (pids.max)");
        limits.push(Limit { left: most.saturating_sub(taken), each: TASKS, why });
    }
    for [most, taken, cached] in [
        ["memory.max", "memory.current", "inactive_file "],
        ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
    ] {
        if let (Some(limit), Some(taken)) = (number(most), number(taken)) {
            // The kernel takes back pages of files that nobody uses.
            let cached = read("memory.stat").and_then(|stat| field(&stat, cached)).unwrap_or(0);
            limits.push(of_memory(limit.saturating_sub(taken.saturating_sub(cached)), &format!("left ({most})")));
        }
    }
    limits
}

/// The number that follows a word at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with one thing in short supply.
    fn said(np: usize, changed: &[(&str, &str)]) -> String {
        let root = std::env::temp_dir().join(format!("busbw-capacity-{}-{np}", std::process::id()));
        let usual = [
            ("proc/loadavg", "0.5 0.5 0.5 2/500 7777"),
            ("proc/sys/kernel/pid_max", "4194304\n"),
            ("proc/sys/kernel/threads-max", "1000000\n"),
            ("proc/meminfo", "MemTotal: 99 kB\nMemAvailable: 67108864 kB\n"),
            ("proc/self/cgroup", "8:pids:/a/b\n4:memory:/elsewhere\n0::/user.slice/job\n"),
            ("sys/fs/cgroup/pids/a/pids.max", "max\n"),
        ];
        for (path, text) in usual.iter().chain(changed) {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let said = judge(np, of_the_host(&root)).err().map(|error| error.to_string()).unwrap_or_default();
        fs::remove_dir_all(root).unwrap();
        said
    }

    #[test]
    fn what_is_in_short_supply_is_named_with_the_ranks_that_fit() {
        assert_eq!(said(300, &[]), "");
        for (np, changed, says) in [
            (100_000, &[][..], "for 8192 ranks: each needs 8 MiB of memory or more, and 65536 MiB are available"),
            (
                301,
                &[("proc/sys/kernel/pid_max", "1400")],
                "for 150 ranks: each has 6 threads, and 500 of the kernel's 1400",
            ),
            (
                302,
                &[("sys/fs/cgroup/pids/a/pids.max", "700"), ("sys/fs/cgroup/pids/a/pids.current", "100")],
                "for 100 ranks: each has 6 threads, and 100 of the cgroup's 700 are taken (pids.max)",
            ),
            (
                303,
                &[
                    ("sys/fs/cgroup/user.slice/memory.max", "1073741824"),
                    ("sys/fs/cgroup/user.slice/memory.current", "943718400"),
                    ("sys/fs/cgroup/user.slice/memory.stat", "anon 5\ninactive_file 104857600\n"),
                ],
                "for 28 ranks: each needs 8 MiB of memory or more, and 224 MiB are left (memory.max)",
            ),
            (
                304,
                &[
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824"),
                    ("sys/fs/cgroup/memory/memory.usage_in_bytes", "536870912"),
                ],
                "for 64 ranks: each needs 8 MiB of memory or more, and 512 MiB are left (memory.limit_in_bytes)",
            ),
        ] {
            let said = said(np, changed);
            assert!(said.contains(says), "{says}: {said}");
        }
    }
}

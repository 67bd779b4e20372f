//! Limits, /dev/shm, huge pages, governors.

use crate::Root;
use busbw_model::node::{Bound, HugePages, Known, Limits, LinuxLimit, SharedMemory};
use std::collections::BTreeMap;

/// `/proc/self/limits`, where a limit has a name, and a soft and a hard value.
pub(super) fn limits(root: &Root) -> Known<Limits> {
    const FILE: &str = "/proc/self/limits";
    let text = match root.read(FILE) {
        Ok(text) => text,
        Err(error) => return Known::Unknown(format!("{FILE}: {error}")),
    };
    let limit = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = rest.split_whitespace();
        Some(LinuxLimit { soft: bound(words.next()?)?, hard: bound(words.next()?)? })
    };
    let all = || {
        Some(Limits {
            locked_memory: limit("Max locked memory")?,
            may_lock_all: may_lock_all(root),
            open_files: limit("Max open files")?,
            processes: limit("Max processes")?,
        })
    };
    all().map_or_else(|| Known::Unknown(format!("{FILE} lacks limits that Linux has")), Known::Known)
}

/// Whether this process was given CAP_IPC_LOCK in the first user namespace, which is what the kernel asks for when RDMA locks
/// memory beyond the limit (`ib_umem_get` in drivers/infiniband/core/umem.c). Root of the host, who may load modules too, has
/// it in any case, and that says nothing of the users whose ranks will run here.
fn may_lock_all(root: &Root) -> bool {
    const IPC_LOCK: u32 = 14;
    const SYS_MODULE: u32 = 16;
    let status = root.value("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = effective.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0);
    // A kernel without user namespaces has no such file.
    let users = root.value("/proc/self/uid_map");
    let is_first = users.is_none_or(|users| users.split_whitespace().eq(["0", "0", "4294967295"]));
    let has = |capability: u32| capabilities >> capability & 1 == 1;
    is_first && has(IPC_LOCK) && !has(SYS_MODULE)
}

fn bound(word: &str) -> Option<Bound> {
    if word == "unlimited" { Some(Bound::Unlimited) } else { word.parse().ok().map(Bound::At) }
}

pub(super) fn shared_memory(root: &Root) -> Known<SharedMemory> {
    if !root.is_live() {
        return Known::Unknown("a captured tree does not hold it".into());
    }
    match nix::sys::statvfs::statvfs("/dev/shm") {
        Ok(told) => Known::Known(SharedMemory {
            size_bytes: told.blocks() * told.fragment_size(),
            free_bytes: told.blocks_available() * told.fragment_size(),
        }),
        Err(error) => Known::Unknown(format!("/dev/shm: {}", error.desc())),
    }
}

pub(super) fn huge_pages(root: &Root) -> Option<HugePages> {
    let text = root.value("/proc/meminfo")?;
    let number = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    // `always [madvise] never`.
    let modes = root.value("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = modes.as_deref().and_then(|modes| modes.split(['[', ']']).nth(1));
    Some(HugePages {
        pages: number("HugePages_Total:")?,
        free: number("HugePages_Free:")?,
        page_bytes: number("Hugepagesize:")? * 1024,
        transparent: chosen.map(str::to_owned),
    })
}

pub(super) fn governors(root: &Root) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for core in root.list("/sys/devices/system/cpu") {
        let is_core = core.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
        let file = format!("/sys/devices/system/cpu/{core}/cpufreq/scaling_governor");
        if let Some(governor) = root.value(&file).filter(|_| is_core) {
            *found.entry(governor).or_default() += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container with the capability beside Docker's usual ones, root of the host, a container of another user's with all
    /// that mean nothing outside, and a plain user.
    #[test]
    fn a_capability_that_was_given_lifts_the_limit_of_locked_memory() {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("proc/self");
        std::fs::create_dir_all(&process).unwrap();
        let root = Root::captured(folder.path()).unwrap();
        assert!(!may_lock_all(&root));
        for (capabilities, users, lifted) in [
            ("00000000a80465fb", "         0          0 4294967295", true),
            ("000001ffffffffff", "         0          0 4294967295", false),
            ("000001ffffffffff", "         0       1000          1", false),
            ("0000000000000000", "         0          0 4294967295", false),
        ] {
            std::fs::write(process.join("status"), format!("Name:\tbusbw\nCapEff:\t{capabilities}\n")).unwrap();
            std::fs::write(process.join("uid_map"), format!("{users}\n")).unwrap();
            assert_eq!(may_lock_all(&root), lifted, "{capabilities} {users}");
        }
    }
}

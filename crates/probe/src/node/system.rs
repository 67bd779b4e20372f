//! Limits, /dev/shm, huge pages, governors.

use crate::Root;
use busbw_model::node::{Bound, Huge, Known, Limits, LinuxLimit, SharedMemory};
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
            open_files: limit("Max open files")?,
            processes: limit("Max processes")?,
        })
    };
    all().map_or_else(|| Known::Unknown(format!("{FILE} lacks limits that Linux has")), Known::Known)
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

pub(super) fn huge_pages(root: &Root) -> Option<Huge> {
    let text = root.value("/proc/meminfo")?;
    let number = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    // `always [madvise] never`.
    let modes = root.value("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = modes.as_deref().and_then(|modes| modes.split(['[', ']']).nth(1));
    Some(Huge {
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

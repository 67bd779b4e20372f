//! How much memory can be had before the kernel starts to kill processes.

use std::path::Path;

/// Bytes that stay free for everyone else.
const SPARED: usize = 128 << 20;

/// Bytes that this process may still allocate, as the kernel estimates for the machine and for the process's control
/// groups; `None` where it shows neither.
///
/// Anonymous memory files have no limit of their own: without asking, too large an allocation ends in the out-of-memory
/// killer instead of an error.
pub(super) fn available_bytes() -> Option<usize> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok();
    let groups = groups.and_then(|text| of_groups(Path::new("/sys/fs/cgroup"), &text));
    machine.into_iter().chain(groups).min().map(|bytes| bytes.saturating_sub(SPARED))
}

fn of_machine(meminfo: &str) -> Option<usize> {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches("kB").trim().parse::<usize>().ok()
    };
    Some((kib("MemAvailable")? + kib("SwapFree").unwrap_or(0)) << 10)
}

/// The least room in the process's memory control group (version 2) and those above it.
fn of_groups(root: &Path, cgroup: &str) -> Option<usize> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = root.join(path);
    own.ancestors().take_while(|group| group.starts_with(root)).filter_map(of_group).min()
}

fn of_group(group: &Path) -> Option<usize> {
    let read = |file: &str| std::fs::read_to_string(group.join(file)).ok();
    let number = |file: &str| read(file)?.trim().parse::<usize>().ok();
    let (most, used) = (number("memory.max")?, number("memory.current")?);
    let cached = read("memory.stat")?;
    let cached = cached.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<usize>().ok());
    Some(most.saturating_sub(used) + cached.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_machine_has() {
        let meminfo =
            "MemTotal:       24689320 kB\nMemFree:         100 kB\nMemAvailable:   2048 kB\nSwapFree:  1024 kB\n";
        assert_eq!(of_machine(meminfo), Some(3 << 20));
        assert_eq!(of_machine("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let root = std::env::temp_dir().join(format!("busbw-cgroup-{}", std::process::id()));
        let write = |group: &str, most: &str| {
            let path = root.join(group);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("memory.max"), most).unwrap();
            std::fs::write(path.join("memory.current"), "1000\n").unwrap();
            std::fs::write(path.join("memory.stat"), "anon 600\ninactive_file 300\n").unwrap();
        };
        write("job", "5000\n");
        write("job/step", "max\n");
        let found = of_groups(&root, "1:cpu:/elsewhere\n0::/job/step\n");
        let without = of_groups(&root, "4:memory:/job\n");
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!((found, without), (Some(4300), None));
    }
}

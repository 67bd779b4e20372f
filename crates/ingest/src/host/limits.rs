//! Limits, shared memory, kernel modules and services: `ulimit -a`, `/proc/PID/limits`, `df`, `lsmod`, `systemctl status`.

use super::{Context, Told, leading_float};
use busbw_model::{Fact, HostTool, Limit};

pub(super) fn read(context: &mut Context, text: &str) -> Told {
    limit(text).or_else(|| shared_memory(text)).or_else(|| module(text)).or_else(|| service(context, text))
}

/// `max locked memory       (kbytes, -l) 64` of bash, `Max locked memory  65536  65536  bytes` of /proc.
fn limit(text: &str) -> Told {
    /// In bash's words, by its flag, in the words of /proc.
    const NAMES: [(&str, &str, &str, Limit); 4] = [
        ("max locked memory", "-l", "max locked memory", Limit::LockedMemory),
        ("open files", "-n", "max open files", Limit::OpenFiles),
        ("max user processes", "-u", "max processes", Limit::Processes),
        ("stack size", "-s", "max stack size", Limit::Stack),
    ];
    let trimmed = text.trim();
    if let Some((name, rest)) = trimmed.split_once('(')
        && let Some((unit, value)) = rest.split_once(')')
    {
        let (.., limit) = NAMES.iter().find(|(known, flag, ..)| name.trim() == *known && unit.ends_with(flag))?;
        let factor = if unit.contains("kbytes") { 1024 } else { 1 };
        return told(*limit, value.trim(), factor);
    }
    let lower = trimmed.to_ascii_lowercase();
    let (rest, limit) = NAMES.iter().find_map(|(_, _, known, limit)| Some((lower.strip_prefix(known)?, limit)))?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let is_row = words.len() == 3 && matches!(words[2], "bytes" | "files" | "processes");
    is_row.then(|| told(*limit, words[0], 1))?
}

fn told(limit: Limit, value: &str, factor: u64) -> Told {
    let soft = match value {
        "unlimited" => None,
        number => Some(number.parse::<u64>().ok()?.saturating_mul(factor)),
    };
    Some((HostTool::Ulimit, vec![(String::new(), Fact::Limit { limit, soft })]))
}

/// `shm              64M     0   64M   0% /dev/shm`; without a unit `df` counts KiB.
fn shared_memory(text: &str) -> Told {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., size, _, free, share, "/dev/shm"] = words.as_slice() else { return None };
    share.strip_suffix('%')?.parse::<u32>().ok()?;
    let fact = Fact::SharedMemory { size: bytes(size)?, free: bytes(free) };
    Some((HostTool::Df, vec![(String::new(), fact)]))
}

/// `64M`, `1.5Gi`, `65536` (KiB).
fn bytes(word: &str) -> Option<u64> {
    let number = leading_float(word)?;
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let shift = match unit.chars().next().map(|c| c.to_ascii_uppercase()) {
        None if number == 0.0 => 0,
        None | Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => return None,
    };
    Some((number * (1u64 << shift) as f64) as u64)
}

/// `nvidia_peermem         16384  0` of lsmod, or that sentence in words; and the interface the module registers.
fn module(text: &str) -> Told {
    const NAMES: [&str; 4] = ["nvidia_peermem", "nv_peer_mem", "gdrdrv", "mlx5_core"];
    let words: Vec<&str> = text.split_whitespace().collect();
    if text.contains("memory_peers/nv_mem") {
        let registered = !text.contains("No such file");
        let is_told = !registered || text.contains("version exists") || words.len() == 1;
        return is_told.then(|| (HostTool::Lsmod, vec![(String::new(), Fact::GpuMemoryPeer { registered })]));
    }
    let name = words.iter().find(|word| NAMES.contains(word))?;
    let is_row = words.first() == Some(name) && words.get(1).is_some_and(|size| size.parse::<u64>().is_ok());
    let is_sentence = text.contains("lsmod") && words.last() == Some(&"loaded") && !text.contains("not loaded");
    let fact = Fact::ModuleLoaded(name.to_string());
    (is_row || is_sentence).then(|| (HostTool::Lsmod, vec![(String::new(), fact)]))
}

/// `● nvidia-fabricmanager.service - NVIDIA fabric manager service`, its `Active: failed (Result: exit-code)`, and `Unit
/// nvidia-fabricmanager.service could not be found.`
fn service(context: &mut Context, text: &str) -> Told {
    let trimmed = text.trim();
    let told = |name: &str, state: &str| {
        let (name, state) = (name.to_string(), state.to_string());
        Some((HostTool::Systemctl, vec![(String::new(), Fact::Service { name, state })]))
    };
    if let Some(rest) = trimmed.strip_prefix("Unit ")
        && let Some((name, _)) = rest.split_once(".service could not be found")
    {
        return told(name, "not found");
    }
    if let Some(state) = trimmed.strip_prefix("Active: ")
        && context.is(&[HostTool::Systemctl])
    {
        let name = context.device.clone();
        return told(&name, state.split(' ').next().unwrap_or_default());
    }
    let rest = trimmed.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let (name, _) = rest.split_once(".service - ")?;
    let is_name =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'@' | b'.'));
    is_name.then(|| {
        context.begin(HostTool::Systemctl, name);
        (HostTool::Systemctl, Vec::new())
    })
}

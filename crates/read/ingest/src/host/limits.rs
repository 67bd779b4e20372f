//! Limits, shared memory, kernel modules and services: `ulimit -a`, `/proc/PID/limits`, `df`, `lsmod`, `systemctl status`.

use super::page::Page;
use super::{Context, leading_float};
use crate::ends::FABRIC_MANAGER;
use busbw_model::node::{Bound, Known, Limits, LinuxLimit, SharedMemory};

const SYSTEMCTL: &str = "systemctl status";

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    limit(context, text, page)
        .or_else(|| shared_memory(context, text, page))
        .or_else(|| module(context, text, page))
        .or_else(|| service(context, text, page))
}

/// A limit: bash's words and flag, those of /proc, the item that judges it, its place among the limits.
type Limit = (&'static str, &'static str, &'static str, &'static str, fn(&mut Limits) -> &mut LinuxLimit);

const LIMITS: [Limit; 3] = [
    ("max locked memory", "-l", "Max locked memory", "memlock", |limits| &mut limits.locked_memory),
    ("open files", "-n", "Max open files", "nofile", |limits| &mut limits.open_files),
    ("max user processes", "-u", "Max processes", "nproc", |limits| &mut limits.processes),
];

/// `max locked memory       (kbytes, -l) 64` of bash, `Max locked memory  65536  65536  bytes` of /proc.
fn limit(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let trimmed = text.trim();
    let ((.., item, part), soft, hard) = if let Some((name, rest)) = trimmed.split_once('(')
        && let Some((unit, value)) = rest.split_once(')')
    {
        let limit = LIMITS.iter().find(|(known, flag, ..)| name.trim() == *known && unit.ends_with(flag))?;
        (limit, bound(value.trim(), if unit.contains("kbytes") { 1024 } else { 1 })?, None)
    } else {
        let (limit, rest) = LIMITS.iter().find_map(|limit| Some((limit, trimmed.strip_prefix(limit.2)?)))?;
        let [soft, hard, "bytes" | "files" | "processes"] = rest.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        (limit, bound(soft, 1)?, Some(bound(hard, 1)?))
    };
    // Of files the hard limit counts (NCCL raises the soft one to it), which `ulimit -a` does not tell.
    let item = if *item == "nofile" && hard.is_none() { "" } else { *item };
    *part(page.tell(context, "ulimit -a", "", item).limits.begun()) =
        LinuxLimit { soft, hard: hard.unwrap_or(Bound::Unlimited) };
    Some(())
}

fn bound(value: &str, factor: u64) -> Option<Bound> {
    match value {
        "unlimited" => Some(Bound::Unlimited),
        number => Some(Bound::At(number.parse::<u64>().ok()?.saturating_mul(factor))),
    }
}

/// `shm              64M     0   64M   0% /dev/shm`; without a unit `df` counts KiB.
fn shared_memory(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., size, _, free, share, "/dev/shm"] = words.as_slice() else { return None };
    share.strip_suffix('%')?.parse::<u32>().ok()?;
    let memory = SharedMemory { size_bytes: bytes(size)?, free_bytes: bytes(free)? };
    page.tell(context, "df -h /dev/shm", "", "/dev/shm").shared_memory = Known::Known(memory);
    Some(())
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

/// `nvidia_peermem         16384  0` of lsmod. A module that is absent says nothing: the list may be cut.
fn module(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    const NAMES: [&str; 4] = ["nvidia_peermem", "nv_peer_mem", "gdrdrv", "mlx5_core"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [name, size, ..] = words.as_slice() else { return None };
    if !NAMES.contains(name) || size.parse::<u64>().is_err() {
        return None;
    }
    let item = if name.contains("peer") { "GPUDirect RDMA" } else { "" };
    page.tell(context, "lsmod", "", item).modules.begun().push(name.to_string());
    Some(())
}

/// Whether a unit came up, as systemd's journal tells since version 247: `systemd[1]: Failed to start nvidia-fabricmanager.service - NVIDIA fabric
/// manager service.`
fn of_journal(text: &str) -> Option<(&str, bool)> {
    let (_, said) = text.split_once(" systemd[1]: ")?;
    let (unit, is_up) = match said.strip_prefix("Failed to start ") {
        Some(unit) => (unit, false),
        None => (said.strip_prefix("Started ")?, true),
    };
    Some((unit.split_once(".service")?.0, is_up))
}

/// `● nvidia-fabricmanager.service - NVIDIA fabric manager service`, its `Active: failed (Result: exit-code)`, and `Unit
/// nvidia-fabricmanager.service could not be found.`
fn service(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    let trimmed = text.trim();
    let is_absent = trimmed.strip_prefix("Unit ").and_then(|rest| rest.strip_suffix(".service could not be found."));
    let state = trimmed.strip_prefix("Active: ").filter(|_| context.command == SYSTEMCTL);
    let (name, is_active) = match (is_absent, state, of_journal(trimmed)) {
        (Some(name), ..) => (name, false),
        (_, Some(state), _) => (context.device.as_str(), state.split(' ').next() == Some("active")),
        (.., Some(told)) => told,
        _ => {
            let rest = trimmed.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
            let (name, _) = rest.split_once(".service - ")?;
            let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'@' | b'.');
            (!name.is_empty() && name.bytes().all(is_part)).then_some(())?;
            context.begin(SYSTEMCTL, name);
            return Some(());
        }
    };
    if name == FABRIC_MANAGER {
        let state = if is_active { "running" } else { "not running" };
        page.tell(context, SYSTEMCTL, "", "fabric manager").fabric_manager = Some(state.to_string());
    }
    Some(())
}

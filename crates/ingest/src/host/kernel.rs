//! The kernel's log: Xid errors of GPUs, PCIe errors, NIC drivers, processes killed for memory.

use super::{Context, Told};
use crate::text::part_digits;
use busbw_model::{Fact, HostTool};

pub(super) fn read(context: &mut Context, text: &str) -> Told {
    let told = |device: &str, fact| Some((HostTool::Dmesg, vec![(device.to_string(), fact)]));
    let found = xid(text).or_else(|| pcie_error(text)).or_else(|| nic(text)).or_else(|| killed(text));
    let (device, fact) = found?;
    if let Some(host) = syslog_host(text) {
        context.host = Some(host.to_string());
    }
    told(device, fact)
}

/// `NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`
fn xid(text: &str) -> Option<(&str, Fact)> {
    let (_, rest) = text.split_once("Xid (")?;
    let (device, rest) = rest.split_once("): ")?;
    let (code, rest) = part_digits(rest);
    let (code, text) = (code.parse().ok()?, rest.trim_start_matches([',', ' ']).to_string());
    Some((device.trim_start_matches("PCI:"), Fact::Xid { code, text }))
}

/// `pcieport 0000:16:02.0: AER: Corrected error received: 0000:17:00.0`, `… PCIe Bus Error: severity=Uncorrected (Fatal)`.
fn pcie_error(text: &str) -> Option<(&str, Fact)> {
    let at = text.find("AER: ").or_else(|| text.find("PCIe Bus Error: "))?;
    let message = &text[at..];
    let corrected = message.contains("Corrected error") || message.contains("severity=Corrected");
    if !corrected && !message.to_ascii_lowercase().contains("uncorrect") {
        return None;
    }
    Some((address(&text[..at]), Fact::PcieError { corrected, text: message.trim().to_string() }))
}

/// `mlx5_core 0000:17:00.0 ens1f0: Link down`. The many messages of a healthy start are left out.
fn nic(text: &str) -> Option<(&str, Fact)> {
    const DRIVERS: [&str; 5] = ["mlx5_core ", "mlx4_core ", "bnxt_en ", "irdma ", "efa "];
    const TROUBLE: [&str; 11] = [
        "error",
        "link down",
        "link up",
        "fail",
        "timeout",
        "health",
        "syndrome",
        "assert",
        "port module",
        "temperature",
        "fatal",
    ];
    let at = DRIVERS.iter().find_map(|driver| text.find(driver))?;
    let message = &text[at..];
    let device = address(message);
    let lower = message.to_ascii_lowercase();
    let is_trouble = !device.is_empty() && TROUBLE.iter().any(|word| lower.contains(word));
    is_trouble.then(|| (device, Fact::NicMessage(message.trim().to_string())))
}

/// `Out of memory: Killed process 1234 (python)`, `oom-kill:constraint=…`, `Memory cgroup out of memory: Killed process …`.
fn killed(text: &str) -> Option<(&str, Fact)> {
    let at = ["ut of memory: Kill", "oom-kill:constraint", "oom_reaper: reaped"]
        .iter()
        .find_map(|words| text.find(words))?;
    let message = text[at..].trim_start_matches("ut of memory: ").trim();
    Some(("", Fact::OutOfMemoryKill(message.to_string())))
}

/// The first PCI address in a text.
fn address(text: &str) -> &str {
    let is_address = |word: &&str| {
        word.matches(':').count() == 2
            && word.contains('.')
            && word.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
    };
    text.split([' ', '[', ']']).map(|word| word.trim_end_matches([':', ','])).find(is_address).unwrap_or_default()
}

/// `Jan  1 00:00:00 node1 kernel: …`.
fn syslog_host(text: &str) -> Option<&str> {
    let (before, _) = text.split_once(" kernel: ")?;
    before.rsplit(' ').next().filter(|word| !word.is_empty() && !word.contains(':'))
}

//! The kernel's log: Xid errors of GPUs, PCIe errors, processes killed for memory. What NICs' drivers say, signatures judge.

use super::Context;
use super::page::Page;
use crate::evidence::KNOWN;
use crate::text::part_digits;
use busbw_model::node::XidLine;

const DMESG: &str = "dmesg";

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    let host = syslog_host(text).map(str::to_string).or(context.key.host.take());
    context.key.host = host;
    xid(context, text, page)
        .or_else(|| pcie_error(context, text, page))
        .or_else(|| kills(context, text))
        .or_else(|| killed(context, text, page))
}

/// `NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`; of what is cleaned up behind another error, that error:
/// `…: 45, pid=4242, name=python3, Ch 00000001 caused by previous Xid 149`.
fn xid(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let (_, rest) = text.split_once("NVRM: Xid (")?;
    let (device, rest) = rest.split_once("): ")?;
    let (own, rest) = part_digits(rest);
    let code = rest.split_once("caused by previous Xid ").map_or(own, |(_, cause)| part_digits(cause).0);
    let pci = device.trim_start_matches("PCI:").to_string();
    let xid = XidLine { pci, code: code.parse().ok()?, text: rest.trim_start_matches([',', ' ']).to_string() };
    page.tell(context, DMESG, &xid.pci, "Xid").xids.begun().push(xid);
    Some(())
}

/// `pcieport 0000:16:02.0: AER: Corrected error received: 0000:17:00.0`, `… PCIe Bus Error: severity=Uncorrected (Fatal)`.
/// What was corrected is counted by the kernel and costs little.
fn pcie_error(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let (before, message) = text.split_once("PCIe Bus Error: severity=").or_else(|| text.split_once("AER: "))?;
    let address = address(before)?;
    if message.starts_with("Uncorrect") {
        page.tell(context, DMESG, address, "PCIe errors").pcie_errors.push(address.to_string());
    }
    Some(())
}

/// `oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/system.slice/redis.service,task=python3,pid=8812,uid=999` (Linux 5.0 and later, `mm/oom_kill.c`): of
/// which service a process is that the kernel kills next. Those that stand beside a job are remembered.
fn kills(context: &mut Context, text: &str) -> Option<()> {
    let (_, group) = text.split_once("oom-kill:constraint=")?.1.split_once(",task_memcg=")?;
    let (group, rest) = group.split_once(",task=")?;
    let pid = part_digits(rest.split_once(",pid=")?.1).0;
    let is_beside = group.rsplit('/').any(|unit| KNOWN.is_beside(unit));
    context.beside = is_beside.then(|| pid.to_string());
    Some(())
}

/// `Out of memory: Killed process 1234 (python)`, `Memory cgroup out of memory: Killed process …`.
fn killed(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let (_, process) = text.split_once("ut of memory: Kill")?;
    let (_, process) = process.split_once("process ")?;
    if context.beside.as_deref() == Some(part_digits(process).0) {
        return Some(());
    }
    let process = process.split_once(')').map_or(process, |(name, _)| &process[..=name.len()]);
    page.tell(context, DMESG, "", "memory").memory_kills.push(process.to_string());
    Some(())
}

/// The first PCI address in a text.
fn address(text: &str) -> Option<&str> {
    let is_address = |word: &&str| {
        word.matches(':').count() == 2
            && word.contains('.')
            && word.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
    };
    text.split([' ', '[', ']']).map(|word| word.trim_end_matches([':', ','])).find(is_address)
}

/// `Jan  1 00:00:00 node1 kernel: …`.
fn syslog_host(text: &str) -> Option<&str> {
    let (before, _) = text.split_once(" kernel: ")?;
    before.rsplit(' ').next().filter(|word| !word.is_empty() && !word.contains(':'))
}

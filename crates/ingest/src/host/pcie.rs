//! PCIe links and access control: `lspci -vv`, whole or its `LnkCap`, `LnkSta` and `ACSCtl` lines alone.

use super::{Context, Told, leading_float};
use busbw_model::{Fact, HostTool, PcieLink};

pub(super) fn read(context: &mut Context, text: &str) -> Told {
    let trimmed = text.trim();
    if let Some(address) = function(text) {
        context.begin(HostTool::Lspci, address);
        return Some((HostTool::Lspci, Vec::new()));
    }
    let of = |name: &str| trimmed.split_once(name).map(|(_, rest)| rest.trim());
    let fact = if let Some(rest) = of("LnkSta:") {
        Fact::PcieLink(link(rest)?)
    } else if let Some(rest) = of("LnkCap:") {
        Fact::PcieCapability(link(rest)?)
    } else {
        // Redirection sends what one device writes to another up to the CPU first (NCCL's troubleshooting guide, ACS).
        let flags = of("ACSCtl:")?;
        Fact::AcsRedirects(["SrcValid+", "ReqRedir+", "CmpltRedir+"].iter().any(|flag| flags.contains(flag)))
    };
    let device = if context.is(&[HostTool::Lspci]) { context.device.clone() } else { String::new() };
    Some((HostTool::Lspci, vec![(device, fact)]))
}

/// The address of a line that begins a function: `0000:17:00.0 Ethernet controller: …`, `3b:00.0 3D controller: …`.
fn function(text: &str) -> Option<&str> {
    let (address, rest) = text.split_once(' ')?;
    let (bus, function) = address.rsplit_once('.')?;
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = bus.split(':').count();
    let is_address = function.len() == 1 && (2..=3).contains(&parts) && bus.split(':').all(is_hex);
    (is_address && rest.contains(": ")).then_some(address)
}

/// `Speed 16GT/s (downgraded), Width x16 (ok)`, `Port #0, Speed 32GT/s, Width x16, ASPM not supported`.
fn link(text: &str) -> Option<PcieLink> {
    let after = |word: &str| text.split_once(word).map(|(_, rest)| rest);
    Some(PcieLink {
        speed_gts: leading_float(after("Speed ")?)?,
        width: leading_float(after("Width x")?)? as u32,
        downgraded: text.contains("(downgraded)"),
    })
}

//! PCIe links and access control: `lspci -vv`, whole or its `LnkCap`, `LnkSta` and `ACSCtl` lines alone.

use super::page::{Page, gpu_at, pci_address, rdma};
use super::{Context, leading_float};
use busbw_model::PcieLink;
use busbw_model::node::{Bridge, Known, PciFunction};

const LSPCI: &str = "lspci -vv";
/// lspci's names of the classes of NICs, and of GPUs (pci.ids).
const NICS: [&str; 3] = ["Infiniband controller", "Ethernet controller", "Network controller"];
const GPUS: [&str; 4] = ["3D controller", "VGA compatible controller", "Processing accelerators", "Display controller"];

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    if let Some((address, class)) = function(text) {
        context.begin(LSPCI, address);
        context.section = class.to_string();
        // A device that has fallen off the bus reads as ones.
        if text.contains(" (rev ff)") && GPUS.contains(&class) {
            let address = pci_address(address);
            let index = gpu_at(page.facts(context), &address).index;
            let facts = page.tell(context, LSPCI, &format!("GPU {index}"), "sensors");
            gpu_at(facts, &address).readable = Some(false);
        }
        return Some(());
    }
    let trimmed = text.trim();
    if let Some(rest) = trimmed.strip_prefix("LnkSta:") {
        let link = link(rest)?;
        of_function(context, page, |function| function.link = Some(link));
    } else if let Some(rest) = trimmed.strip_prefix("LnkCap:") {
        let link = link(rest)?;
        of_function(context, page, |function| function.most = Some(link));
    } else {
        // Redirection sends what one device writes to another up to the CPU first (NCCL's troubleshooting guide, ACS).
        let flags = trimmed.strip_prefix("ACSCtl:")?;
        let redirects = ["SrcValid+", "ReqRedir+", "CmpltRedir+"].iter().any(|flag| flags.contains(flag));
        let address = if context.command == LSPCI { context.device.clone() } else { "a bridge".to_string() };
        let facts = page.tell(context, LSPCI, &address, "ACS");
        facts.bridges.push(Bridge { address, acs_redirects: Known::Known(redirects), above: Vec::new() });
    }
    Some(())
}

/// Fills the function that the lines above speak of, if it is a GPU's or a NIC's. The lines of a function that nothing
/// names are taken for a GPU's, whose speed says nothing while it is idle.
fn of_function(context: &Context, page: &mut Page, fill: impl FnOnce(&mut PciFunction)) {
    let is_named = context.command == LSPCI;
    let address = if is_named { pci_address(&context.device) } else { String::new() };
    if is_named && NICS.contains(&context.section.as_str()) {
        let device = rdma(page.tell(context, LSPCI, &address, "link"), &address);
        fill(device.pci.get_or_insert_with(|| PciFunction { address, ..PciFunction::default() }));
    } else if !is_named || GPUS.contains(&context.section.as_str()) {
        let index = gpu_at(page.facts(context), &address).index;
        let facts = page.tell(context, LSPCI, &format!("GPU {index}"), "link");
        fill(&mut gpu_at(facts, &address).pci);
    }
}

/// Address and class of a line that begins a function: `0000:17:00.0 Ethernet controller: …`, `3b:00.0 3D controller: …`.
fn function(text: &str) -> Option<(&str, &str)> {
    let (address, rest) = text.split_once(' ')?;
    let (bus, function) = address.rsplit_once('.')?;
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = bus.split(':').count();
    let is_address = function.len() == 1 && (2..=3).contains(&parts) && bus.split(':').all(is_hex);
    let (class, _) = rest.split_once(": ")?;
    is_address.then_some((address, class.split(" [").next()?))
}

/// `Speed 16GT/s (downgraded), Width x16 (ok)`, `Port #0, Speed 32GT/s, Width x16, ASPM not supported`.
fn link(text: &str) -> Option<PcieLink> {
    let (_, speed) = text.split_once("Speed ")?;
    let (_, width) = text.split_once("Width x")?;
    Some(PcieLink {
        speed_gts: leading_float(speed)?,
        width: leading_float(width)? as u32,
        downgraded: width.contains("(downgraded)"),
    })
}

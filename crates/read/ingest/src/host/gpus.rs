//! GPUs: `nvidia-smi` with its header, `-L`, `-q`, `nvlink -s` and `-e`, and `topo -p2p`; `dcgmi nvlink -s`.

use super::page::{Page, gpu, gpu_at, pci_address};
use super::{Context, MOST_OF_A_KIND, key_value, leading_float};
use busbw_model::PcieLink;
use busbw_model::node::{Ecc, FabricState, GpuDevice, NvLinkState, PeerAccess};

const NVIDIA_SMI: &str = "nvidia-smi";
pub(super) const QUERY_PARTS: &str = "nvidia-smi -q";
/// What the driver asks to have done with a GPU (570 and later), and what is checked of it.
pub(super) const RECOVERY: &str = "GPU Recovery Action";
pub(super) const RECOVERY_ITEM: &str = "recovery";

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    versions(context, text, page)
        .or_else(|| listed(context, text, page))
        .or_else(|| link(context, text, page))
        .or_else(|| dcgm_links(context, text, page))
        .or_else(|| peers(context, text, page))
        .or_else(|| queried(context, text, page))
}

/// `| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |`, and `Driver Version : 535.104.05` of `-q`.
fn versions(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let after = |words: &str| {
        let rest = text.split_once(words)?.1.trim_start().strip_prefix(':')?.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        (end > 0).then(|| rest[..end].to_string())
    };
    let trimmed = text.trim_start();
    let is_smi = trimmed.starts_with("| NVIDIA-SMI ") || trimmed.starts_with("Driver Version  ");
    let driver = is_smi.then(|| after("Driver Version")).flatten();
    let cuda = (is_smi || trimmed.starts_with("CUDA Version  ")).then(|| after("CUDA Version")).flatten();
    if driver.is_none() && cuda.is_none() {
        return None;
    }
    let known = &mut page.tell(context, NVIDIA_SMI, "", "").gpu;
    known.driver = driver.or(known.driver.take());
    known.cuda_driver = cuda.or(known.cuda_driver.take());
    Some(())
}

/// `GPU 0: NVIDIA A100-SXM4-80GB (UUID: …)`, `|   0  NVIDIA H100 80GB HBM3   On  | 00000000:18:00.0 Off |`, and the
/// `GPU 00000000:18:00.0` that begins a GPU of `-q`.
fn listed(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    if let Some(rest) = text.strip_prefix("GPU ") {
        let (device, name) = match rest.split_once(": ") {
            Some((index, name)) => {
                index.parse::<u32>().ok()?;
                (text.split(':').next()?.to_string(), name.split_once(" (UUID").map(|(name, _)| name.trim())?)
            }
            None => {
                (rest.matches(':').count() == 2 && rest.contains('.')).then_some(())?;
                (rest.trim().to_string(), "")
            }
        };
        context.begin(NVIDIA_SMI, &device);
        return of(context, page, "", |gpu| gpu.name = name.to_string());
    }
    let mut cells = text.trim().strip_prefix('|')?.split('|').map(str::trim);
    let (cell, address, errors) = (cells.next()?, cells.next()?.split(' ').next()?, cells.next()?);
    (address.matches(':').count() == 2 && address.contains('.')).then_some(())?;
    let (index, rest) = cell.split_once(' ')?;
    let index: u32 = index.parse().ok()?;
    let name = rest.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    // The third cell counts errors since the driver was loaded that ECC could not correct.
    let ecc = errors.parse().ok().map(|errors| Ecc { enabled: true, uncorrected: Some(errors), ..Ecc::default() });
    // The driver reads nothing of a GPU that has failed.
    let is_lost = errors.starts_with("ERR!");
    let item = match ecc {
        Some(_) => "ECC",
        None if is_lost => "sensors",
        None => "",
    };
    let gpu = gpu(page.tell(context, NVIDIA_SMI, &format!("GPU {index}"), item), index);
    gpu.ecc = ecc.or(gpu.ecc.take());
    gpu.readable = is_lost.then_some(false).or(gpu.readable);
    gpu.name = if name.is_empty() { rest.trim() } else { name }.to_string();
    gpu.pci.address = pci_address(address);
    Some(())
}

/// Fills the GPU that the lines above speak of, by its index (`GPU 3`) or its address.
fn of(context: &Context, page: &mut Page, item: &'static str, fill: impl FnOnce(&mut GpuDevice)) -> Option<()> {
    let index = match context.device.strip_prefix("GPU ") {
        Some(index) => index.parse().ok()?,
        None => gpu_at(page.facts(context), &context.device).index,
    };
    fill(gpu(page.tell(context, NVIDIA_SMI, &format!("GPU {index}"), item), index));
    Some(())
}

/// `Link 0: 25 GB/s`, `Link 4: <inactive>`, `Link 4: Recovery Errors: 0` below the line of a GPU. A retransmitted packet
/// (`Replay`) did no harm; a link that had to be trained again is not sound.
fn link(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    // Of a GPU that has no link up, no number of links is told (behind `NVML: ` or not, as versions differ).
    if context.command == NVIDIA_SMI && text.ends_with("NVLink information as all links are inActive") {
        return of(context, page, "NVLink", |gpu| gpu.nvlinks.push(NvLinkState::default()));
    }
    let rest = text.trim().strip_prefix("Link ").filter(|_| context.command == NVIDIA_SMI)?;
    let (link, rate) = rest.split_once(": ")?;
    if let Some((kind, count)) = rate.split_once(" Errors: ") {
        let count: u64 = count.parse().ok()?;
        let (item, errors) = if kind == "Recovery" { ("NVLink errors", count) } else { ("", 0) };
        return of(context, page, item, |gpu| *gpu.link_errors.get_or_insert(0) += errors);
    }
    let (link, active) = (link.parse().ok()?, rate.ends_with("GB/s"));
    if !active && rate != "<inactive>" {
        return None;
    }
    let state = NvLinkState { link, active, rate_gbs: leading_float(rate) };
    of(context, page, "NVLink", |gpu| gpu.nvlinks.push(state))
}

/// `gpuId 0:`, and below it a letter for each link, `U U D X _`: up, down, disabled, not supported.
fn dcgm_links(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    const DCGMI: &str = "dcgmi nvlink";
    if let Some(index) = text.trim().strip_prefix("gpuId ").and_then(|rest| rest.strip_suffix(':')) {
        let index: u32 = index.parse().ok()?;
        context.begin(DCGMI, &format!("GPU {index}"));
        return Some(());
    }
    // Their own links follow.
    if text.trim() == "NvSwitches:" && context.command == DCGMI {
        context.command = "";
        return Some(());
    }
    let letters: Vec<&str> = text.split_whitespace().collect();
    let is_row = !letters.is_empty() && letters.iter().all(|letter| ["U", "D", "X", "_"].contains(letter));
    let index = context.device.strip_prefix("GPU ").filter(|_| context.command == DCGMI && is_row)?.parse().ok()?;
    let links = (0..).zip(letters).filter(|(_, letter)| ["U", "D"].contains(letter));
    let states = links.map(|(link, letter)| NvLinkState { link, active: letter == "U", rate_gbs: None });
    gpu(page.tell(context, DCGMI, &context.device, "NVLink"), index).nvlinks.extend(states);
    Some(())
}

/// Which GPU, and what its access to each other one is: `GPU0 X OK CNS OK`, a row of `nvidia-smi topo -p2p`.
pub(super) fn peer_access(text: &str) -> Option<(u32, Vec<&str>)> {
    const STATES: [&str; 8] = ["X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"];
    let mut words = text.split_whitespace();
    let from = words.next()?.strip_prefix("GPU")?.parse().ok()?;
    let cells: Vec<&str> = words.collect();
    let is_row = cells.len() > 1 && cells.iter().all(|cell| STATES.contains(cell)) && cells.contains(&"X");
    is_row.then_some((from, cells))
}

fn peers(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let (from, cells) = peer_access(text)?;
    let facts = page.tell(context, NVIDIA_SMI, &format!("GPU {from}"), "P2P");
    let others = (0..).zip(cells).filter(|(_, cell)| *cell != "X");
    facts.gpu.peers.extend(others.map(|(to, status)| PeerAccess { from, to, status: status.to_string() }));
    Some(())
}

/// Begins what `grep -A` left of a GPU of `-q`: a section as it is printed, of the next GPU where it stands there again.
fn part(context: &mut Context, text: &str) {
    const SECTIONS: [&str; 8] = [
        "Fabric",
        "Remapped Rows",
        "Clocks Event Reasons",
        "Clocks Throttle Reasons",
        "Volatile",
        "Aggregate",
        "MIG Mode",
        "HW Slowdown",
    ];
    let line = text.split_once(" : ").map_or(text, |(key, _)| key).trim();
    let Some(section) = SECTIONS.into_iter().find(|section| *section == line) else { return };
    if is_whole(context) || section.ends_with("Slowdown") && context.section.starts_with("Clocks ") {
        return;
    }
    if context.command != QUERY_PARTS && context.begun.contains(&(section, "0".to_string())) {
        // It was asked once more: of this machine, or without a name of another one.
        context.begun.retain(|(begun, _)| *begun != section);
        context.key.part += u32::from(context.key.host.is_none());
    }
    let Some(index) = (0..MOST_OF_A_KIND).find(|index| context.begun.insert((section, index.to_string()))) else {
        context.section.clear();
        return;
    };
    (context.command, context.device, context.section) = (QUERY_PARTS, format!("GPU {index}"), section.into());
}

/// Whether the lines are of a GPU that `nvidia-smi -q` began with its address.
fn is_whole(context: &Context) -> bool {
    context.command == NVIDIA_SMI && !context.device.starts_with("GPU ")
}

/// Members of `nvidia-smi -q` that show something: `    Fabric` is a section, `        State : Completed` a member.
fn queried(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    part(context, text);
    if !is_whole(context) && context.command != QUERY_PARTS {
        return None;
    }
    let Some((key, value)) = key_value(text).filter(|_| text.contains(" : ")) else {
        let is_section =
            text.starts_with("    ") && text.trim().bytes().all(|b| b.is_ascii_alphanumeric() || b == b' ');
        context.section = text.trim().to_string();
        return is_section.then_some(());
    };
    if no_value(value) {
        return Some(());
    }
    let item = match (context.section.as_str(), key) {
        ("Ecc Mode" | "ECC Mode", "Current") => "ECC",
        ("Remapped Rows", "Remapping Failure Occurred" | "Pending") | (_, "Pending Page Blacklist") => "ECC",
        ("Volatile", key) if key.contains("Uncorrectable") => "ECC",
        (_, "SRAM Threshold Exceeded") => "ECC",
        (_, RECOVERY) => RECOVERY_ITEM,
        ("Fabric", "State" | "Status") | ("Health", "Summary" | "Bandwidth" | "Route Unhealthy") => "NVLink fabric",
        (_, key) if key.ends_with(" Slowdown") => "clocks",
        ("Link Width", "Max" | "Current") => "link",
        ("MIG Mode", "Current") => "MIG",
        ("PCIe Generation", "Max" | "Current") | (_, "Product Name") => "",
        _ => return Some(()),
    };
    let section = std::mem::take(&mut context.section);
    of(context, page, item, |gpu| member(gpu, &section, key, value));
    context.section = section;
    Some(())
}

/// Whether a GPU does not have what was asked for, or does not tell.
pub(super) fn no_value(value: &str) -> bool {
    ["N/A", "[N/A]", "[Not Supported]", "Requested functionality has been deprecated"].contains(&value)
}

pub(super) fn member(gpu: &mut GpuDevice, section: &str, key: &str, value: &str) {
    let ecc = || Ecc { enabled: true, ..Ecc::default() };
    match (section, key) {
        ("Ecc Mode" | "ECC Mode", _) => gpu.ecc.get_or_insert_with(ecc).enabled = value == "Enabled",
        (_, "SRAM Threshold Exceeded") => gpu.ecc.get_or_insert_with(ecc).sram_exceeded = Some(value == "Yes"),
        (_, RECOVERY) => gpu.recovery = Some(value.to_string()),
        (_, "Pending" | "Pending Page Blacklist") => gpu.ecc.get_or_insert_with(ecc).pending = Some(value == "Yes"),
        ("Remapped Rows", _) => gpu.ecc.get_or_insert_with(ecc).remapping_failed = Some(value == "Yes"),
        ("Volatile", _) => {
            let errors = &mut gpu.ecc.get_or_insert_with(ecc).uncorrected;
            *errors = value.parse::<u64>().ok().map(|more| errors.unwrap_or(0).saturating_add(more)).or(*errors);
        }
        (_, key) if key.ends_with(" Slowdown") => {
            gpu.slowdowns.get_or_insert_default().extend((value == "Active").then(|| key.to_string()));
        }
        ("Fabric", "State") => {
            let state = value.to_ascii_lowercase();
            gpu.fabric = Some(FabricState { succeeded: state == "completed", state });
        }
        ("Fabric", _) => {
            if let Some(fabric) = &mut gpu.fabric {
                fabric.succeeded &= value == "Success";
            }
        }
        // Of GPUs with NVLink 5, behind a registration that is complete.
        ("Health", _) => {
            let is_sound = ["Healthy", "Full", "False"].contains(&value);
            if let Some(fabric) = gpu.fabric.as_mut().filter(|_| !is_sound) {
                *fabric = FabricState { succeeded: false, state: FabricState::UNHEALTHY.to_string() };
            }
        }
        ("MIG Mode", _) => gpu.mig = Some(value == "Enabled"),
        ("Link Width" | "PCIe Generation", _) => {
            let end = if key == "Max" { &mut gpu.pci.most } else { &mut gpu.pci.link };
            let (link, number) =
                (end.get_or_insert_with(PcieLink::default), leading_float(value).unwrap_or(0.0) as u32);
            match section {
                "Link Width" => link.width = number,
                _ => link.speed_gts = speed_of(number),
            }
        }
        _ => gpu.name = value.to_string(),
    }
}

/// GT/s per lane of a generation of PCIe.
fn speed_of(generation: u32) -> f64 {
    match generation {
        1 => 2.5,
        2 => 5.0,
        3.. => f64::from(1 << generation.min(8)),
        0 => 0.0,
    }
}

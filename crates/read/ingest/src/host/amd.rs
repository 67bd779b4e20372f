//! AMD's GPUs: `amd-smi` alone, and `rocm-smi`, alone and with `--showxgmierr`, `--showrasinfo`, `--showtopo`, `--showtopoaccess`,
//! `--showproductname`, `--showbus` (rocm_smi.py of ROCm/rocm_smi_lib a129571).

use super::page::{Page, gpu, gpu_at, pci_address};
use super::{Context, leading_float};
use busbw_model::node::{Ecc, GpuDevice, NvLinkState, PeerAccess};

pub(super) const ROCM_SMI: &str = "rocm-smi";
const CONCISE: &str = "Concise Info";
/// A GPU that sleeps says nothing either.
const ASLEEP: &str = "low-power state";
const RAS: &str = "RAS Info";
const LINK_TYPES: &str = "Link Type between two GPUs";
const ACCESS: &str = "Link accessibility between two GPUs";

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    if let Some(title) = text.strip_prefix("==").map(|rest| rest.trim_matches('=').trim()) {
        match title {
            // Before 4.0 the table stood below this title.
            "ROCm System Management Interface" => (context.command, context.device) = (ROCM_SMI, CONCISE.into()),
            CONCISE | RAS | LINK_TYPES | ACCESS => {
                let state = std::mem::take(&mut context.section);
                context.begin(ROCM_SMI, title);
                context.section = state;
            }
            _ => return None,
        }
        return Some(());
    }
    if text.starts_with("WARNING: AMD GPU device(s) is/are in a low-power state") {
        (context.command, context.section) = (ROCM_SMI, ASLEEP.into());
        return Some(());
    }
    if context.command != ROCM_SMI {
        return listed(context, text, page);
    }
    property(context, text, page).or_else(|| match context.device.as_str() {
        CONCISE => concise(context, text, page),
        RAS => memory(context, text, page),
        _ => matrix(context, text, page),
    })
}

/// `| 0000:83:00.0 AMD Instinct MI300X VF | 0 %      37 °C   0           135/750 W |` of `amd-smi`: before the power stands the
/// count of errors that could not be corrected (UEC).
fn listed(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let (device, state) = text.strip_prefix("| ")?.strip_suffix(" W |")?.split_once('|')?;
    let (address, name) = device.trim().split_once(' ').filter(|(address, _)| address.matches(':').count() == 2)?;
    let errors: u64 = state.split_whitespace().nth_back(1)?.parse().ok()?;
    let index = gpu_at(page.facts(context), address).index;
    let gpu = of(context, page, index, "ECC");
    gpu.name = format!("AMD {}", name.trim().trim_start_matches("AMD "));
    gpu.ecc = Some(Ecc { enabled: true, uncorrected: Some(errors), ..Ecc::default() });
    Some(())
}

/// A GPU of AMD's, after keeping that the line tells `item` of it.
fn of<'a>(context: &Context, page: &'a mut Page, index: u32, item: &'static str) -> &'a mut GpuDevice {
    let gpu = gpu(page.tell(context, ROCM_SMI, &format!("GPU {index}"), item), index);
    if gpu.name.is_empty() {
        gpu.name = "AMD".into();
    }
    gpu
}

/// `GPU[0]  : XGMI Error count: 2 (Multiple errors detected since last read)`, `GPU[0]  : Card Series:  AMD Instinct MI300X`,
/// and `GPU[0]:  RAS INFO`, which begins a GPU's table.
fn property(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    let (index, rest) = text.strip_prefix("GPU[")?.split_once(']')?;
    let rest = rest.trim_start().strip_prefix(':')?.trim();
    let number = index.parse().ok()?;
    match rest.split_once(':') {
        Some(("XGMI Error count", count)) => {
            of(context, page, number, "XGMI errors").link_errors = Some(leading_float(count.trim())? as u64);
        }
        Some(("Card Series" | "Card series", name)) => {
            of(context, page, number, "").name = format!("AMD {}", name.trim().trim_start_matches("AMD "));
        }
        Some(("PCI Bus", address)) => of(context, page, number, "").pci.address = pci_address(address.trim()),
        None if rest == "RAS INFO" => context.section = index.to_string(),
        _ => return None,
    }
    Some(())
}

/// `7       9     0x74b5,   60025  N/A   N/A   NPS1, N/A, 0   None   None   0%   auto  Unsupported  0%   0%`: temperature and
/// clocks come from the GPU itself.
fn concise(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let mut words = text.split_whitespace();
    let index = words.next()?.parse().ok()?;
    (words.clone().count() >= 8 && words.next_back()?.ends_with('%')).then_some(())?;
    let is_temperature = |word: &str| {
        let number = word.trim_end_matches(['c', 'C']).trim_end_matches('°');
        number.len() < word.len() && number.parse::<f64>().is_ok()
    };
    let readable = words.any(|word| word.ends_with("Mhz") || is_temperature(word));
    let is_awake = readable || context.section != ASLEEP;
    of(context, page, index, if is_awake { "sensors" } else { "" }).readable = is_awake.then_some(readable);
    Some(())
}

/// `     UMC    ENABLED    3    1`: a block of the GPU, and its errors that were corrected and that could not be.
fn memory(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let mut words = text.split_whitespace().skip(1);
    let (status, _, errors) = (words.next()?, words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
    (status == "ENABLED").then_some(())?;
    let enabled = || Ecc { enabled: true, ..Ecc::default() };
    let ecc = of(context, page, context.section.parse().ok()?, "ECC").ecc.get_or_insert_with(enabled);
    *ecc.uncorrected.get_or_insert(0) += errors;
    Some(())
}

/// `GPU0   0   XGMI   PCIE`: how a GPU is joined with each; `GPU0   True   False`: whether it may read the other's memory.
fn matrix(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let mut words = text.split_whitespace();
    let from = words.next()?.strip_prefix("GPU")?.parse().ok()?;
    let cells: Vec<&str> = words.collect();
    let are = |known: &[&str]| !cells.is_empty() && cells.iter().all(|cell| known.contains(cell));
    if context.device == LINK_TYPES && are(&["0", "XGMI", "PCIE", "XXXX"]) {
        let link = NvLinkState { active: cells.contains(&"XGMI"), ..NvLinkState::default() };
        of(context, page, from, "XGMI").nvlinks.push(link);
    } else {
        are(&["True", "False"]).then_some(())?;
        let status = |cell: &str| if cell == "True" { "OK" } else { "not accessible" }.to_string();
        let others = (0..).zip(&cells).filter(|(to, _)| *to != from);
        let facts = page.tell(context, ROCM_SMI, &format!("GPU {from}"), "P2P");
        facts.gpu.peers.extend(others.map(|(to, cell)| PeerAccess { from, to, status: status(cell) }));
    }
    Some(())
}

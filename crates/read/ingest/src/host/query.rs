//! `nvidia-smi --query-gpu=… --format=csv`: a line of column names, then a row per GPU and point in time.

use super::gpus::{RECOVERY, RECOVERY_ITEM, member, no_value};
use super::page::{Page, gpu, gpu_at, pci_address};
use super::{Context, leading_float};
use busbw_model::node::{Ecc, GpuDevice};

const QUERY: &str = "nvidia-smi --query-gpu";

/// Columns that tell something to judge, as the command's help (`--help-query-gpu`) names them: section and member of `nvidia-smi -q`,
/// and the item.
const COLUMNS: [(&str, &str, &str, &str); 13] = [
    ("name", "", "Product Name", ""),
    ("pcie.link.gen.current", "PCIe Generation", "Current", ""),
    ("pcie.link.gen.max", "PCIe Generation", "Max", ""),
    ("pcie.link.width.current", "Link Width", "Current", "link"),
    ("pcie.link.width.max", "Link Width", "Max", "link"),
    ("ecc.mode.current", "ECC Mode", "Current", "ECC"),
    ("retired_pages.pending", "", "Pending Page Blacklist", "ECC"),
    ("gpu_recovery_action", "", RECOVERY, RECOVERY_ITEM),
    ("mig.mode.current", "MIG Mode", "Current", "MIG"),
    ("hw_slowdown", "", "HW Slowdown", "clocks"),
    ("hw_thermal_slowdown", "", "HW Thermal Slowdown", "clocks"),
    ("hw_power_brake_slowdown", "", "HW Power Brake Slowdown", "clocks"),
    ("sw_thermal_slowdown", "", "SW Thermal Slowdown", "clocks"),
];

/// Bits of `clocks_event_reasons.active` (`nvmlClocksEventReason…` in nvml.h) that `-q` names among the slowdowns. The cap on power is none.
const SLOWDOWNS: [(u64, &str); 4] = [
    (0x08, "HW Slowdown"),
    (0x20, "SW Thermal Slowdown"),
    (0x40, "HW Thermal Slowdown"),
    (0x80, "HW Power Brake Slowdown"),
];

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    if is_header(text) {
        context.begin(QUERY, text);
        context.section = text.to_string();
        return Some(());
    }
    if context.command != QUERY || text.split(", ").count() != context.section.split(", ").count() {
        return None;
    }
    let cells =
        || context.section.split(", ").map(|name| name.split(" [").next().unwrap_or(name)).zip(text.split(", "));
    let cell = |wanted: &str| cells().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let address = cell("pci.bus_id");
    let index = match cell("index").and_then(|index| index.parse().ok()) {
        Some(index) => index,
        None => gpu_at(page.facts(context), address?).index,
    };
    let (mut row, mut items) = (GpuDevice::default(), vec![""]);
    for (name, value) in cells().filter(|(_, value)| !no_value(value) && !value.starts_with('[')) {
        items.extend(fill(&mut row, name, value));
    }
    if is_lost(cells().map(|(_, value)| value)) {
        row.readable = Some(false);
        items.push("sensors");
    }
    items.sort_unstable();
    items.dedup();
    for item in items {
        page.tell(context, QUERY, &format!("GPU {index}"), item);
    }
    if let Some(driver) = cell("driver_version") {
        page.facts(context).gpu.driver = Some(driver.to_string());
    }
    let known = gpu(page.facts(context), index);
    if let Some(address) = address {
        known.pci.address = pci_address(address);
    }
    take(known, row);
    Some(())
}

/// Whether NVML's errors stand in place of a row's values (`nvmlErrorString`). An unknown one alone is a sensor's that some boards lack.
fn is_lost<'a>(values: impl Iterator<Item = &'a str> + Clone) -> bool {
    let unknown = values.clone().filter(|value| *value == "[Unknown Error]").count();
    unknown > 1 || values.into_iter().any(|value| ["[GPU is lost]", "[GPU requires reset]"].contains(&value))
}

/// Names of columns, some with a unit behind (`power.draw [W]`), of which one says which GPU and another what its state is.
fn is_header(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._".contains(&b))
    };
    let names = || text.split(", ").map(|cell| cell.split_once(" [").map_or(cell, |(name, _)| name));
    let tells = |name: &str| fill(&mut GpuDevice::default(), name, "0").is_some_and(|item| !item.is_empty());
    names().all(is_name) && names().any(|name| ["index", "pci.bus_id"].contains(&name)) && names().any(tells)
}

/// Fills what a cell tells of a GPU; the item that it is of.
fn fill(gpu: &mut GpuDevice, name: &str, value: &str) -> Option<&'static str> {
    if name.starts_with("ecc.errors.uncorrected.volatile.") {
        // The total is one of the columns.
        let errors = value.parse().ok()?;
        let ecc = gpu.ecc.get_or_insert_with(|| Ecc { enabled: true, ..Ecc::default() });
        ecc.uncorrected = ecc.uncorrected.max(Some(errors));
        return Some("ECC");
    }
    if let "power.limit" | "enforced.power.limit" | "power.default_limit" = name {
        let watts = Some(leading_float(value)?);
        let power = gpu.power.get_or_insert_default();
        match name {
            "power.default_limit" => power.default_watts = watts,
            _ => power.watts = watts,
        }
        return Some("power limit");
    }
    // Drivers before 535 call them reasons to throttle.
    let reason =
        ["clocks_event_reasons.", "clocks_throttle_reasons."].iter().find_map(|start| name.strip_prefix(start));
    if reason == Some("active") {
        let bits = u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()?;
        let told = SLOWDOWNS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, slowdown)| slowdown.to_string());
        gpu.slowdowns.get_or_insert_default().extend(told);
        return Some("clocks");
    }
    let (_, section, key, item) = COLUMNS.iter().find(|(column, ..)| *column == reason.unwrap_or(name))?;
    member(gpu, section, key, value);
    Some(item)
}

/// Takes over what a row tells: the last one counts, but whatever slowed the GPU down at any time did.
fn take(known: &mut GpuDevice, row: GpuDevice) {
    if !row.name.is_empty() {
        known.name = row.name;
    }
    known.ecc = row.ecc.or(known.ecc.take());
    known.readable = row.readable.or(known.readable);
    known.mig = row.mig.or(known.mig);
    known.power = row.power.or(known.power.take());
    known.pci.link = row.pci.link.or(known.pci.link.take());
    known.pci.most = row.pci.most.or(known.pci.most.take());
    if let Some(reasons) = row.slowdowns {
        let slowdowns = known.slowdowns.get_or_insert_default();
        slowdowns.extend(reasons);
        slowdowns.sort_unstable();
        slowdowns.dedup();
    }
}

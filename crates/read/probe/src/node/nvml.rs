//! Asks NVIDIA's management library. It is opened when it is there; no build needs it.

use busbw_model::NO_LIBRARIES;
use busbw_model::node::{
    Ecc, FabricState, GpuDevice, GpuFacts, Known, NvLinkState, PciFunction, PeerAccess, PowerLimit,
};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, P2pCapabilitiesIndex, P2pStatus};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_LINK_COUNT, NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON,
    NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING,
};
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use nvml_wrapper_sys::bindings::{
    NVML_GPU_FABRIC_STATE_COMPLETED, NVML_GPU_FABRIC_STATE_IN_PROGRESS, NVML_GPU_FABRIC_STATE_NOT_STARTED,
    nvmlGpuFabricInfo_t, nvmlReturn_enum_NVML_SUCCESS,
};

/// No GPU has more NVLinks.
const MOST_LINKS: u32 = 18;

/// What the library shows, or why it does not.
pub(super) fn ask() -> Result<GpuFacts, String> {
    let nvml = Nvml::init().map_err(|error| reason(&error))?;
    let count = nvml.device_count().map_err(|error| reason(&error))?;
    // A GPU that is lost has no handle; it is missing from the list, and the count on the bus shows it.
    let devices: Vec<Device> = (0..count).filter_map(|index| nvml.device_by_index(index).ok()).collect();
    let cuda = nvml.sys_cuda_driver_version().ok();
    Ok(GpuFacts {
        nvml: Known::Known(nvml.sys_nvml_version().unwrap_or_default()),
        driver: nvml.sys_driver_version().ok(),
        cuda_driver: cuda
            .map(|cuda| format!("{}.{}", cuda_driver_version_major(cuda), cuda_driver_version_minor(cuda))),
        devices: devices.iter().map(|device| facts(&nvml, device)).collect(),
        peers: peers(&devices),
        ..GpuFacts::default()
    })
}

/// The library's words in one line.
fn reason(error: &NvmlError) -> String {
    match (error, NO_LIBRARIES) {
        (NvmlError::LibloadingError(_), Some(reason)) => format!("libnvidia-ml.so.1 is needed, and {reason}"),
        (NvmlError::LibloadingError(_), None) => "libnvidia-ml.so.1 of the NVIDIA driver is not there".to_owned(),
        (other, _) => format!("NVML: {}", other.to_string().lines().next().unwrap_or_default()),
    }
}

fn facts(nvml: &Nvml, device: &Device) -> GpuDevice {
    GpuDevice {
        index: device.index().unwrap_or_default(),
        name: device.name().unwrap_or_default(),
        pci: PciFunction { address: address(device), ..PciFunction::default() },
        persistence: device.is_in_persistent_mode().ok(),
        ecc: ecc(device),
        nvlinks: nvlinks(device),
        fabric: fabric(nvml, device),
        mig: device.mig_mode().ok().map(|mode| mode.current == 1),
        readable: None,
        slowdowns: slowdowns(device),
        link_errors: field(device, NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL),
        power: power(device),
        recovery: None,
    }
}

/// NVML counts milliwatts.
fn power(device: &Device) -> Option<PowerLimit> {
    let watts = |limit: Result<u32, NvmlError>| limit.ok().map(|milliwatts| f64::from(milliwatts) / 1e3);
    let watts_now = watts(device.power_management_limit())?;
    Some(PowerLimit { watts: Some(watts_now), default_watts: watts(device.power_management_limit_default()) })
}

/// The reasons that are faults, by nvidia-smi's names.
fn slowdowns(device: &Device) -> Option<Vec<String>> {
    const FAULTS: [(ThrottleReasons, &str); 4] = [
        (ThrottleReasons::HW_SLOWDOWN, "HW Slowdown"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "HW Thermal Slowdown"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "HW Power Brake Slowdown"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "SW Thermal Slowdown"),
    ];
    let reasons = device.current_throttle_reasons().ok()?;
    Some(FAULTS.iter().filter(|(fault, _)| reasons.contains(*fault)).map(|(_, name)| name.to_string()).collect())
}

/// NVML writes the domain with eight digits and large letters, sysfs with four and small ones.
fn address(device: &Device) -> String {
    let bus_id = device.pci_info().map(|pci| pci.bus_id.to_lowercase()).unwrap_or_default();
    match bus_id.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 => format!("{}:{rest}", &domain[4..]),
        _ => bus_id,
    }
}

fn ecc(device: &Device) -> Option<Ecc> {
    let enabled = device.is_ecc_enabled().ok()?.currently_enabled;
    let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
    Some(Ecc {
        enabled,
        uncorrected: errors(MemoryError::Uncorrected),
        corrected: errors(MemoryError::Corrected),
        remapping_failed: field(device, NVML_FI_DEV_REMAPPED_FAILURE).map(|failures| failures > 0),
        pending: field(device, NVML_FI_DEV_REMAPPED_PENDING).map(|pending| pending > 0),
        sram_exceeded: None,
    })
}

/// The links that the GPU has, up or not. What the board does not wire says that it is not supported.
fn nvlinks(device: &Device) -> Vec<NvLinkState> {
    let count = field(device, NVML_FI_DEV_NVLINK_LINK_COUNT).map_or(MOST_LINKS, |count| (count as u32).min(MOST_LINKS));
    let rate = field(device, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON).filter(|rate| *rate > 0);
    let links = (0..count).filter_map(|link| Some((link, device.link_wrapper_for(link).is_active().ok()?)));
    let rate_gbs = rate.map(|megabytes| megabytes as f64 / 1000.0);
    links.map(|(link, active)| NvLinkState { link, active, rate_gbs: rate_gbs.filter(|_| active) }).collect()
}

fn field(device: &Device, id: u32) -> Option<u64> {
    let sample = device.field_values_for(&[FieldId(id)]).ok()?.pop()?.ok()?;
    match sample.value.ok()? {
        SampleValue::U32(value) => Some(u64::from(value)),
        SampleValue::U64(value) => Some(value),
        SampleValue::I64(value) => u64::try_from(value).ok(),
        SampleValue::F64(_) => None,
    }
}

/// A GPU that is no part of a fabric says that it is not supported.
fn fabric(nvml: &Nvml, device: &Device) -> Option<FabricState> {
    let query = nvml.lib().nvmlDeviceGetGpuFabricInfo.as_ref().ok()?;
    // SAFETY: all zeros is a valid value of the structure.
    let mut told: nvmlGpuFabricInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the handle is the device's own, whose library is open; the structure lives through the call.
    let result = unsafe { query(device.handle(), &mut told) };
    if result != nvmlReturn_enum_NVML_SUCCESS {
        return None;
    }
    let state = match u32::from(told.state) {
        NVML_GPU_FABRIC_STATE_NOT_STARTED => "not started",
        NVML_GPU_FABRIC_STATE_IN_PROGRESS => "in progress",
        NVML_GPU_FABRIC_STATE_COMPLETED => "completed",
        _ => return None,
    };
    Some(FabricState { state: state.to_owned(), succeeded: told.status == nvmlReturn_enum_NVML_SUCCESS })
}

fn peers(devices: &[Device]) -> Vec<PeerAccess> {
    let mut found = Vec::new();
    for (from, device) in devices.iter().enumerate() {
        for (to, other) in devices.iter().enumerate().filter(|(to, _)| *to != from) {
            let Ok(status) = device.p2p_status(other, P2pCapabilitiesIndex::Read) else { continue };
            found.push(PeerAccess { from: from as u32, to: to as u32, status: short(&status).to_owned() });
        }
    }
    found
}

/// As `nvidia-smi topo -p2p r` writes it.
fn short(status: &P2pStatus) -> &'static str {
    match status {
        P2pStatus::Ok => "OK",
        P2pStatus::ChipsetNotSupported => "CNS",
        P2pStatus::GpuNotSupported => "GNS",
        P2pStatus::IohTopologyNotSupported => "TNS",
        P2pStatus::DisabledByRegkey => "DR",
        P2pStatus::NotSupported => "NS",
        P2pStatus::Unknown => "U",
    }
}

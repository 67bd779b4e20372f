//! GPUs, through the driver's library (NVML), which is opened at run time where it is installed.

use super::GpuCounters;
use crate::Root;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

#[derive(Debug)]
pub struct Gpus(Option<Nvml>);

impl Gpus {
    pub fn new(root: &Root) -> Self {
        Gpus(root.is_live().then(Nvml::init).and_then(Result::ok))
    }

    /// Every GPU that the driver counts, in its order.
    pub fn read(&self) -> Vec<GpuCounters> {
        let Some(nvml) = &self.0 else { return Vec::new() };
        (0..nvml.device_count().unwrap_or(0)).map(|index| gpu(nvml, index).unwrap_or_default()).collect()
    }
}

fn gpu(nvml: &Nvml, index: u32) -> Result<GpuCounters, NvmlError> {
    let device = nvml.device_by_index(index)?;
    // NVML gives no utilisation in MIG mode, and no memory for a GPU that shares the host's memory.
    let memory = device.memory_info().ok();
    Ok(GpuCounters {
        name: device.name()?,
        uuid: device.uuid().ok(),
        pci_bus_id: device.pci_info().ok().map(|pci| pci.bus_id),
        busy_pct: device.utilization_rates().ok().map(|shares| shares.gpu),
        memory_used_bytes: memory.as_ref().map(|memory| memory.used),
        memory_total_bytes: memory.map(|memory| memory.total),
        power_mw: device.power_usage().ok(),
    })
}

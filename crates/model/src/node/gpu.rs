//! GPUs as NVIDIA's management library (NVML) shows them.

use super::{Known, PciFunction};
use crate::Outcome;
use serde::{Deserialize, Serialize};

/// The GPUs of a node and their driver.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuFacts {
    /// Version of the management library (NVML), or why it could not be asked; then the rest is what the kernel tells.
    pub nvml: Known<String>,
    /// The driver: `550.54.15`.
    pub driver: Option<String>,
    /// Whether the driver's kernel module is the open one, which gives NICs access to GPU memory by dma-buf.
    pub open_module: Option<bool>,
    /// The newest CUDA version that the driver can run: `12.4`.
    pub cuda_driver: Option<String>,
    /// The GPUs.
    pub devices: Vec<GpuDevice>,
    /// What direct access between each pair is.
    pub peers: Vec<PeerAccess>,
    /// PCI devices of NVIDIA's that are GPUs, by the kernel's count: more than `devices` when one fell off the bus.
    pub on_the_bus: Option<u32>,
    /// What DCGM's diagnostic (`dcgmi diag`) found, test by test.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostic: Vec<GpuTest>,
}

/// A test of DCGM's diagnostic that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTest {
    /// Its name: `GPU Memory`, since DCGM 4 `memory`.
    pub name: String,
    /// How it came out.
    pub outcome: Outcome,
    /// On which it did not pass: `GPU3`; none where the test says it of all, or of the machine.
    pub on: Vec<String>,
    /// What DCGM says of it.
    pub said: String,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuDevice {
    /// NVML's index.
    pub index: u32,
    /// `NVIDIA H100 80GB HBM3`, `AMD Instinct MI300X`; `AMD` where only that is known.
    pub name: String,
    /// Where it is on PCIe.
    pub pci: PciFunction,
    /// Whether the driver stays loaded while nobody uses the GPU.
    pub persistence: Option<bool>,
    /// Error correction.
    pub ecc: Option<Ecc>,
    /// Its NVLinks.
    pub nvlinks: Vec<NvLinkState>,
    /// Its place in the NVLink fabric, where there is one.
    pub fabric: Option<FabricState>,
    /// Whether it is cut into instances (MIG), which NCCL cannot join.
    pub mig: Option<bool>,
    /// Whether its sensors and clocks can be read; not, where it hangs or has fallen off the bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readable: Option<bool>,
    /// Why it runs below its clocks because of heat or a lack of power, by nvidia-smi's names; none if nothing shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdowns: Option<Vec<String>>,
    /// Errors of its NVLinks or XGMI links that sending again did not mend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_errors: Option<u64>,
    /// The cap on its power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerLimit>,
    /// What the driver asks to have done with it after a fault: `Reset`, `Drain P2P`; `None` where nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<String>,
}

/// The power that a GPU may draw.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerLimit {
    /// In force, in watts; none where only the default is known.
    pub watts: Option<f64>,
    /// What the driver sets where nobody changes it, in watts.
    pub default_watts: Option<f64>,
}

/// Error correction of a GPU's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ecc {
    /// Switched on.
    pub enabled: bool,
    /// Errors that could not be corrected since the driver was loaded.
    pub uncorrected: Option<u64>,
    /// Errors that were corrected since the driver was loaded.
    pub corrected: Option<u64>,
    /// Remapping a row of memory failed: the GPU needs service.
    pub remapping_failed: Option<bool>,
    /// A row or page of memory waits for the GPU's next reset to be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    /// More errors in its caches and registers (SRAM) than NVIDIA allows a GPU: it needs service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sram_exceeded: Option<bool>,
}

/// An NVLink of a GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLinkState {
    /// Its number.
    pub link: u32,
    /// Whether it is up.
    pub active: bool,
    /// GB/s per direction, if the driver says so.
    pub rate_gbs: Option<f64>,
}

/// State of a GPU in the NVLink fabric, by NVML's names: `completed`, `in progress`, `not started`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FabricState {
    /// State of its registration.
    pub state: String,
    /// Whether the registration succeeded, when it is complete.
    pub succeeded: bool,
}

impl FabricState {
    /// The state of a GPU that is registered, and whose links the driver does not find sound.
    pub const UNHEALTHY: &str = "unhealthy";
}

/// Whether a GPU may read another's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerAccess {
    /// Index of the GPU.
    pub from: u32,
    /// Index of the other.
    pub to: u32,
    /// `OK`, or why not, by the short names of `nvidia-smi topo -p2p`: `CNS` (chipset not supported), `GNS`, `DR` ….
    pub status: String,
}

/// An Xid error in the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XidLine {
    /// The GPU's bus id.
    pub pci: String,
    /// Its number.
    pub code: u32,
    /// What follows.
    pub text: String,
}

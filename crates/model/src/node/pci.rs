//! Where a device is on PCIe, and how wide the way there is.

use super::Known;
use crate::host::PcieLink;
use serde::{Deserialize, Serialize};

/// A PCI function and its link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PciFunction {
    /// `0000:17:00.0`.
    pub address: String,
    /// The link as it is.
    pub link: Option<PcieLink>,
    /// The link that the device could have.
    pub most: Option<PcieLink>,
    /// The other end of the link.
    pub slot: Option<PcieSlot>,
    /// Its NUMA node; none if the machine has only one, or does not say.
    pub numa_node: Option<u32>,
    /// Type of the IOMMU's domain (`DMA`, `DMA-FQ`, `identity`); none without an IOMMU.
    pub iommu: Option<String>,
}

/// The bridge that a device is below.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PcieSlot {
    /// The bridge.
    pub address: String,
    /// The link that it could have.
    pub most: Option<PcieLink>,
}

/// A bridge above GPUs or NICs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bridge {
    /// `0000:15:01.0`.
    pub address: String,
    /// Whether access control (ACS) sends requests between devices below it up to the CPU; false where it has none.
    pub acs_redirects: Known<bool>,
    /// The GPUs and NICs below it: `GPU 0`, `mlx5_0`.
    pub above: Vec<String>,
}

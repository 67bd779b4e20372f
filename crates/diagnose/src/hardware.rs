//! The machines as far as words and matrices tell, and what such machines reach.

use busbw_model::{Collective, DeviceKind, PathType, Run, ToldFact, TopoMatrix};
use serde::Deserialize;
use std::sync::LazyLock;

/// GB/s of payload for each Gbit/s of a port: 12 GB/s per 100G port (NVIDIA's yardstick in nccl-tests issue 119).
const GBS_PER_GBIT: f64 = 0.12;
/// An HCA in a GPU machine has at least this rate, Gbit/s.
const SLOWEST_HCA: f64 = 100.0;

static GPUS: LazyLock<Vec<GpuKind>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        gpu: Vec<GpuKind>,
    }
    toml::from_str::<File>(include_str!("hardware.toml")).map(|file| file.gpu).unwrap_or_default()
});

/// What GPUs of a kind reach with each other on one node, from `hardware.toml`.
#[derive(Debug, Clone, Deserialize)]
pub struct GpuKind {
    /// Part of the name: `H100`.
    pub name: String,
    /// None of these is in the name: `PCIe`.
    #[serde(default)]
    unless: Vec<String>,
    /// busbw of a ring over all GPUs of a node, GB/s.
    pub ring_gbs: f64,
    /// busbw of all-reduce with reductions in the switch, GB/s.
    pub nvls_gbs: Option<f64>,
    /// Whether NVLink joins all GPUs of a usual node.
    pub nvlink: bool,
    /// Whether such GPUs stand in machines with RDMA.
    pub rdma: bool,
}

impl GpuKind {
    /// The kind of a GPU by its name.
    pub fn of(name: &str) -> Option<&'static GpuKind> {
        let lower = name.to_lowercase();
        let fits = |kind: &&GpuKind| {
            lower.contains(&kind.name.to_lowercase()) && !kind.unless.iter().any(|u| lower.contains(&u.to_lowercase()))
        };
        GPUS.iter().find(fits)
    }
}

/// What words and matrices say of the machines.
#[derive(Debug, Clone, Default)]
pub struct Hardware {
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// GPUs of a node.
    pub gpus_per_node: Option<u32>,
    /// GPUs' name.
    pub gpu: Option<String>,
    /// NICs of a node and Gbit/s of each, as told.
    pub nics: Option<(u32, f64)>,
    /// NICs in the topology matrix.
    pub matrix_nics: Option<u32>,
    /// The shortest path between any GPU and any NIC in the matrix.
    pub nearest_nic: Option<PathType>,
    /// GPUs of the matrix are joined by NVLink.
    pub nvlink: bool,
}

impl Hardware {
    /// Collects what a run tells in words.
    pub fn of(run: &Run) -> Self {
        let mut hardware = Hardware::default();
        for told in &run.told {
            match &told.fact {
                ToldFact::Nodes(nodes) => hardware.nodes = hardware.nodes.or(Some(*nodes)),
                ToldFact::Gpus { count, name } => {
                    hardware.gpus_per_node = hardware.gpus_per_node.or(*count);
                    hardware.gpu.get_or_insert_with(|| name.clone());
                }
                ToldFact::Nics { count, gbit_s } => hardware.nics = hardware.nics.or(Some((*count, *gbit_s))),
                ToldFact::Figure(_) | ToldFact::Pair { .. } => {}
            }
        }
        for matrix in &run.topo_matrices {
            hardware.add_matrix(matrix);
        }
        hardware
    }

    fn add_matrix(&mut self, matrix: &TopoMatrix) {
        let names = |kind| matrix.of_kind(kind).map(|d| d.name.as_str()).collect::<Vec<_>>();
        let (gpus, nics) = (names(DeviceKind::Gpu), names(DeviceKind::Nic));
        if !nics.is_empty() {
            self.matrix_nics = self.matrix_nics.max(Some(nics.len() as u32));
        }
        if self.gpus_per_node.is_none() && gpus.len() > 1 {
            self.gpus_per_node = Some(gpus.len() as u32);
        }
        let paths = gpus.iter().flat_map(|gpu| nics.iter().filter_map(|nic| matrix.path(gpu, nic)));
        self.nearest_nic = paths.chain(self.nearest_nic).min();
        let between = gpus.iter().flat_map(|a| gpus.iter().filter(move |b| *b != a).filter_map(|b| matrix.path(a, b)));
        self.nvlink |= between.into_iter().any(|path| matches!(path, PathType::NvLink(_)));
    }

    /// NICs of a node, told or in the matrix.
    pub fn nic_count(&self) -> Option<u32> {
        self.nics.map(|(count, _)| count).or(self.matrix_nics)
    }

    /// What the NICs of a node carry together, GB/s, and whether their rate is known.
    pub fn nics_gbs(&self) -> Option<(f64, bool)> {
        match (self.nics, self.matrix_nics) {
            (Some((count, gbit_s)), _) => Some((f64::from(count) * gbit_s * GBS_PER_GBIT, true)),
            (None, Some(count)) => Some((f64::from(count) * SLOWEST_HCA * GBS_PER_GBIT, false)),
            (None, None) => None,
        }
    }

    /// GB/s of one NIC, where told.
    pub fn nic_gbs(&self) -> Option<f64> {
        self.nics.map(|(_, gbit_s)| gbit_s * GBS_PER_GBIT)
    }

    /// Number of ranks, one per GPU.
    pub fn ranks(&self) -> Option<u32> {
        Some(self.gpus_per_node? * self.nodes.unwrap_or(1))
    }

    /// What a ring or the switch of one node reaches, GB/s.
    pub fn within_node(&self, collective: Option<Collective>) -> Option<f64> {
        let kind = GpuKind::of(self.gpu.as_deref()?)?;
        let reduces = matches!(collective, None | Some(Collective::AllReduce));
        Some(kind.nvls_gbs.filter(|_| reduces).unwrap_or(kind.ring_gbs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_known_by_their_names() {
        let ring = |name: &str| GpuKind::of(name).map(|kind| (kind.ring_gbs, kind.nvlink));
        assert_eq!(ring("NVIDIA H100 80GB HBM3"), Some((370.0, true)));
        assert_eq!(ring("NVIDIA A100-PCIE-40GB").map(|(_, nvlink)| nvlink), Some(false));
        assert_eq!(ring("Tesla T4").map(|(_, nvlink)| nvlink), Some(false));
        assert!(GpuKind::of("CPU 0").is_none());
    }
}

//! How the GPUs and NICs of a host are joined, from a `nvidia-smi topo -m` matrix or an NCCL topology XML.

use busbw_model::{DeviceKind, PathType, PciSpot, Run, TopoMatrix, XmlTopology};

/// GPUs in the order of their devices, NICs by name, and the paths between them.
#[derive(Default)]
pub(super) struct Wiring {
    pub gpus: Vec<String>,
    pub nics: Vec<String>,
    pub nvlinks: NvLinks,
    /// A row per GPU, a column per NIC.
    paths: Vec<Vec<Option<PathType>>>,
}

/// NVLinks between the GPUs of a host.
#[derive(Default)]
pub(super) enum NvLinks {
    /// None, or not known.
    #[default]
    None,
    /// Every GPU to every other with as many: through switches, or a full mesh.
    AllToAll(String),
    /// Pairs of GPUs, and how many links join them.
    Pairs(Vec<(usize, usize, u32)>),
}

impl Wiring {
    /// The wiring of a host with `gpus` GPUs, from the first matrix or XML of that many (of any, without a number).
    pub fn of(run: &Run, gpus: Option<usize>) -> Option<Self> {
        let fits = |wiring: &Wiring| !wiring.gpus.is_empty() && gpus.is_none_or(|gpus| wiring.gpus.len() == gpus);
        let matrices = run.topo_matrices.iter().map(Wiring::of_matrix);
        matrices.chain(run.topo_xmls.iter().map(Wiring::of_xml)).find(fits)
    }

    /// The path between a GPU and a NIC.
    pub fn path(&self, gpu: usize, nic: &str) -> Option<PathType> {
        let column = self.nics.iter().position(|name| name == nic)?;
        *self.paths.get(gpu)?.get(column)?
    }

    fn of_matrix(matrix: &TopoMatrix) -> Self {
        let names = |kind| matrix.of_kind(kind).map(|device| device.name.as_str()).collect::<Vec<_>>();
        let (gpus, nics) = (names(DeviceKind::Gpu), names(DeviceKind::Nic));
        let links = |a: &str, b: &str| match matrix.path(a, b) {
            Some(PathType::NvLink(links)) => u32::from(links),
            _ => 0,
        };
        Wiring {
            nvlinks: NvLinks::of(gpus.len(), |a, b| links(gpus[a], gpus[b])),
            paths: gpus.iter().map(|gpu| nics.iter().map(|nic| matrix.path(gpu, nic)).collect()).collect(),
            gpus: gpus.iter().map(|name| (*name).to_owned()).collect(),
            nics: device_names(matrix, DeviceKind::Nic),
        }
    }

    /// Of a fused topology of several hosts, the first.
    fn of_xml(xml: &XmlTopology) -> Self {
        let first = xml.cpus.first().and_then(|cpu| cpu.host_hash.as_deref());
        let spots: Vec<PciSpot> =
            xml.spots().into_iter().filter(|spot| xml.cpus[spot.cpu].host_hash.as_deref() == first).collect();
        let mut gpus: Vec<&PciSpot> = spots.iter().filter(|spot| spot.device.is_gpu()).collect();
        gpus.sort_by_key(|spot| spot.device.gpu.as_ref().and_then(|gpu| gpu.dev));
        let nics = spots.iter().filter(|spot| spot.device.is_nic());
        let nics: Vec<(String, &PciSpot)> =
            nics.flat_map(|spot| net_names(spot).map(move |name| (name, spot))).collect();
        let ends = |spot: &PciSpot| spot.device.gpu.clone().map(|gpu| gpu.nvlinks).unwrap_or_default();
        let direct = |a: usize, b: usize| {
            let target = &gpus[b].device.bus_id;
            ends(gpus[a]).iter().filter(|(bus_id, _)| bus_id == target).map(|(_, count)| *count).sum()
        };
        let mut nvlinks = NvLinks::of(gpus.len(), direct);
        let total = gpus.iter().map(|gpu| ends(gpu).iter().map(|(_, count)| *count).sum::<u32>()).min().unwrap_or(0);
        if matches!(nvlinks, NvLinks::None) && total > 0 {
            nvlinks = NvLinks::AllToAll(format!("NVSwitch, {total} NVLinks per GPU"));
        }
        Wiring {
            nvlinks,
            paths: gpus.iter().map(|gpu| nics.iter().map(|(_, nic)| Some(nic.path(gpu))).collect()).collect(),
            gpus: gpus.iter().enumerate().map(|(index, _)| format!("GPU{index}")).collect(),
            nics: nics.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

/// The networks of a NIC by name; its bus id where NCCL has not listed them.
fn net_names<'a>(spot: &PciSpot<'a>) -> impl Iterator<Item = String> + use<'a> {
    let nets: Vec<String> =
        spot.device.nics.iter().flat_map(|nic| &nic.nets).filter_map(|net| net.name.clone()).collect();
    let bus_id = nets.is_empty().then(|| spot.device.bus_id.clone());
    nets.into_iter().chain(bus_id)
}

impl NvLinks {
    fn of(gpus: usize, links: impl Fn(usize, usize) -> u32) -> Self {
        let pairs = (0..gpus).flat_map(|a| (a + 1..gpus).map(move |b| (a, b)));
        let all: Vec<(usize, usize, u32)> = pairs.map(|(a, b)| (a, b, links(a, b).max(links(b, a)))).collect();
        let joined: Vec<(usize, usize, u32)> = all.iter().copied().filter(|(.., count)| *count > 0).collect();
        match joined.first() {
            None => NvLinks::None,
            Some((.., count)) if joined.len() == all.len() && joined.iter().all(|(.., other)| other == count) => {
                NvLinks::AllToAll(format!("NVLink, {count} to every other GPU"))
            }
            Some(_) => NvLinks::Pairs(joined),
        }
    }
}

/// The names of a matrix's devices of a kind; those of NICs as NCCL writes them.
fn device_names(matrix: &TopoMatrix, kind: DeviceKind) -> Vec<String> {
    matrix.of_kind(kind).map(|device| device.hca.clone().unwrap_or_else(|| device.name.clone())).collect()
}

//! What a picture of a run's machines shows: hosts with their GPUs and NICs, and how these are joined.

use super::wiring::{NvLinks, Wiring};
use crate::words;
use busbw_model::{Communicator, Gpu, Rank, Run};
use std::collections::{BTreeMap, BTreeSet};

/// What stays legible.
const MAX_HOSTS: usize = 64;
const MAX_RANKS: usize = 512;
const MAX_NICS: usize = 16;

/// The machines of a picture.
pub(super) struct Scene {
    pub hosts: Vec<HostBox>,
    pub ranks: BTreeMap<u32, Spot>,
}

/// A machine as it is drawn.
pub(super) struct HostBox {
    /// Its name, GPUs and NICs in words.
    pub about: String,
    /// Whether it is a host; else, ranks whose hosts the log does not tell.
    pub known: bool,
    pub gpus: Vec<GpuBox>,
    pub nics: Vec<Nic>,
    pub wiring: Wiring,
}

/// A GPU as it is drawn.
pub(super) struct GpuBox {
    /// What is written on it: its rank, else its device number.
    pub label: String,
    pub title: String,
}

pub(super) struct Nic {
    /// NCCL's number for it, which connections name.
    pub index: Option<u32>,
    pub name: String,
    pub title: String,
}

/// A GPU of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub host: usize,
    pub gpu: usize,
}

impl Scene {
    /// The machines of a communicator, or of the run as a whole; `None` where nothing is known, or too much to draw.
    pub fn of(run: &Run, comm: Option<&Communicator>) -> Option<Self> {
        let nodes = comm.map(|comm| ranks_by_node(run, comm)).filter(|nodes| !nodes.is_empty());
        let nodes = nodes.unwrap_or_else(|| devices_by_node(run));
        if nodes.is_empty() {
            return Scene::of_topology(run);
        }
        if nodes.len() > MAX_HOSTS || nodes.iter().map(|(_, gpus)| gpus.len()).sum::<usize>() > MAX_RANKS {
            return None;
        }
        let mut scene = Scene { hosts: Vec::new(), ranks: BTreeMap::new() };
        for (node, gpus) in nodes {
            let host = scene.hosts.len();
            for (gpu, known) in gpus.iter().enumerate() {
                scene.ranks.extend(known.rank.map(|rank| (rank, Spot { host, gpu })));
            }
            scene.hosts.push(HostBox::of(run, node, &gpus));
        }
        Some(scene)
    }

    /// The one machine that a matrix or XML shows, where nothing names hosts.
    fn of_topology(run: &Run) -> Option<Self> {
        let wiring = Wiring::of(run, None)?;
        let gpus = wiring.gpus.iter().map(|name| GpuBox { label: name.clone(), title: name.clone() });
        let gpus: Vec<GpuBox> = gpus.take(MAX_RANKS).collect();
        let nics = wiring.nics.iter().map(|name| Nic { index: None, name: name.clone(), title: name.clone() });
        let nics: Vec<Nic> = nics.take(MAX_NICS).collect();
        let counts = [(gpus.len(), "GPU"), (nics.len(), "NIC")].into_iter().filter(|(count, _)| *count > 0);
        let about = counts.map(|(count, noun)| words::counted(count, noun)).collect::<Vec<_>>().join(", ");
        (!gpus.is_empty())
            .then(|| Scene { hosts: vec![HostBox { about, known: true, gpus, nics, wiring }], ranks: BTreeMap::new() })
    }

    /// Whether two ranks are on different hosts; `None` where that is not known.
    pub fn crosses(&self, from: u32, to: u32) -> Option<bool> {
        let host = |rank| self.ranks.get(&rank).map(|spot| spot.host).filter(|host| self.hosts[*host].known);
        Some(host(from)? != host(to)?)
    }
}

impl HostBox {
    fn of(run: &Run, node: Option<u32>, gpus: &[Gpu]) -> Self {
        let Some(node) = node else {
            let (about, gpus) = ("hosts not told".into(), gpus.iter().map(GpuBox::of).collect());
            return HostBox { about, known: false, gpus, nics: Vec::new(), wiring: Wiring::default() };
        };
        let model = run.nodes.get(node as usize);
        let wiring = Wiring::of(run, Some(gpus.len())).unwrap_or_default();
        let about = [model.map(words::gpus), model.map(words::nics)];
        let about: Vec<String> = about.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        let about = [vec![words::host(run, node)], about].concat().join(" · ");
        let mut nics: Vec<Nic> = model.map(|node| node.nics.iter().map(Nic::of).collect()).unwrap_or_default();
        if nics.is_empty() {
            let of_matrix = |name: &String| Nic { index: None, name: name.clone(), title: name.clone() };
            nics = wiring.nics.iter().map(of_matrix).collect();
        }
        nics.truncate(MAX_NICS);
        HostBox { about, known: true, gpus: gpus.iter().map(GpuBox::of).collect(), nics, wiring }
    }

    /// The GPU's number in its wiring: device numbers count from zero in the order of bus ids, as ranks do.
    pub fn joined(&self, gpu: usize, nic: usize) -> Option<busbw_model::PathType> {
        self.wiring.path(gpu, &self.nics.get(nic)?.name)
    }

    pub fn nvlinks(&self) -> &NvLinks {
        &self.wiring.nvlinks
    }
}

impl Nic {
    fn of(nic: &busbw_model::Nic) -> Self {
        let port = nic.port.map(|port| format!(", port {port}")).unwrap_or_default();
        let link = nic.link.as_deref().map(|link| format!(", {link}")).unwrap_or_default();
        let address = nic.address.as_deref().map(|address| format!(", {address}")).unwrap_or_default();
        Nic { index: nic.index, name: nic.name.clone(), title: format!("{}{port}{link}{address}", nic.name) }
    }
}

impl GpuBox {
    fn of(gpu: &Gpu) -> Self {
        let number = gpu.rank.or(gpu.device).map(|number| number.to_string()).unwrap_or_default();
        let rank = gpu.rank.map(|rank| format!("rank {rank}"));
        let device = gpu.device.map(|device| format!("device {device}"));
        let parts = [rank, device, gpu.bus_id.clone(), gpu.name.clone()];
        GpuBox { label: number, title: parts.into_iter().flatten().collect::<Vec<_>>().join(", ") }
    }
}

/// The ranks of each node, those of unknown nodes last; nothing where no node is known.
fn ranks_by_node(run: &Run, comm: &Communicator) -> Vec<(Option<u32>, Vec<Gpu>)> {
    let mut nodes: BTreeMap<Option<u32>, Vec<Gpu>> = BTreeMap::new();
    let unheard = Rank::default();
    let named = comm.channels.values().filter_map(|channel| channel.ring.as_ref()).flat_map(|ring| &ring.ranks);
    let all: BTreeSet<u32> = comm.ranks.keys().chain(named).copied().take(MAX_RANKS + 1).collect();
    for number in &all {
        let rank = comm.ranks.get(number).unwrap_or(&unheard);
        let listed = rank.node.and_then(|node| run.nodes.get(node as usize)).and_then(|node| {
            // By its rank first: containers may show every GPU as device 0.
            let of_rank = node.gpus.iter().find(|gpu| gpu.rank == Some(*number));
            of_rank.or_else(|| node.gpus.iter().find(|gpu| gpu.device.is_some() && gpu.device == rank.device))
        });
        nodes.entry(rank.node).or_default().push(Gpu {
            rank: Some(*number),
            device: rank.device.or(listed.and_then(|gpu| gpu.device)),
            bus_id: rank.bus_id.clone().or_else(|| listed.and_then(|gpu| gpu.bus_id.clone())),
            name: listed.and_then(|gpu| gpu.name.clone()),
        });
    }
    let elsewhere = nodes.remove(&None);
    if nodes.is_empty() {
        return Vec::new();
    }
    nodes.into_iter().chain(elsewhere.map(|ranks| (None, ranks))).collect()
}

fn devices_by_node(run: &Run) -> Vec<(Option<u32>, Vec<Gpu>)> {
    let nodes = (0u32..).zip(&run.nodes).filter(|(_, node)| !node.gpus.is_empty());
    nodes.map(|(index, node)| (Some(index), node.gpus.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_on_its_own_gpu_where_all_are_device_0() {
        let gpu = |rank: u32, name: &str| Gpu {
            rank: Some(rank),
            device: Some(0),
            name: Some(name.into()),
            ..Gpu::default()
        };
        let node = busbw_model::Node { gpus: vec![gpu(0, "A100"), gpu(1, "H100")], ..busbw_model::Node::default() };
        let run = Run { nodes: vec![node], ..Run::default() };
        let rank = Rank { node: Some(0), device: Some(0), ..Rank::default() };
        let comm = Communicator { ranks: [(0, rank.clone()), (1, rank)].into(), ..Communicator::default() };
        let scene = Scene::of(&run, Some(&comm)).map(|scene| scene.hosts).unwrap_or_default();
        let titles: Vec<&str> = scene.iter().flat_map(|host| &host.gpus).map(|gpu| gpu.title.as_str()).collect();
        assert_eq!(titles, ["rank 0, device 0, A100", "rank 1, device 0, H100"]);
    }
}

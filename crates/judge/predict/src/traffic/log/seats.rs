//! Where the ranks of a log sit, and which NICs it names.

use super::super::channels::nearest_nic;
use crate::cluster::Cluster;
use crate::traffic::Port;
use busbw_model::{ChannelSet, Communicator, EdgeEnd};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The NICs that connections of a log name, by sender, receiver and end.
pub struct NamedNics(HashMap<(u32, u32, EdgeEnd), Vec<(ChannelSet, u32)>>);

impl NamedNics {
    pub fn of(comm: &Communicator) -> Self {
        let mut named: HashMap<_, Vec<_>> = HashMap::new();
        for edge in &comm.edges {
            let transport = comm.transports.get(usize::from(edge.transport));
            if let Some(nic) = transport.filter(|t| t.kind.is_network()).and_then(|t| t.nic) {
                named.entry((edge.from, edge.to, edge.end)).or_default().push((edge.channels, nic));
            }
        }
        NamedNics(named)
    }

    pub fn get(&self, from: u32, to: u32, end: EdgeEnd, channel: u16) -> Option<u32> {
        let of_pair = self.0.get(&(from, to, end))?;
        of_pair.iter().find(|(channels, _)| channels.iter().any(|c| c == channel)).map(|(_, nic)| *nic)
    }
}

/// Where ranks sit: nodes in the order of their lowest ranks, GPUs by device index where the devices of a node differ, else
/// by the order of ranks.
pub struct Seats {
    of_rank: BTreeMap<u32, (u32, usize)>,
    pub gpus: usize,
    pub nics: usize,
}

impl Seats {
    pub fn of(comm: &Communicator, cluster: &Cluster) -> Self {
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        let mut nodes: Vec<Vec<(u32, Option<u32>)>> = Vec::new();
        for (rank, of_rank) in &comm.ranks {
            let Some(node) = of_rank.node else { continue };
            let number = *numbers.entry(node).or_insert(nodes.len());
            if number == nodes.len() {
                nodes.push(Vec::new());
            }
            nodes[number].push((*rank, of_rank.device));
        }
        let mut of_rank = BTreeMap::new();
        for (node, ranks) in (0u32..).zip(&nodes) {
            let devices: BTreeSet<u32> = ranks.iter().filter_map(|(_, device)| *device).collect();
            let distinct = devices.len() == ranks.len();
            for (order, (rank, device)) in ranks.iter().enumerate() {
                let gpu = device.filter(|_| distinct).map_or(order, |device| device as usize);
                of_rank.insert(*rank, (node, gpu));
            }
        }
        Seats { of_rank, gpus: cluster.gpus_per_node, nics: cluster.nics.as_ref().map_or(0, |nics| nics.count) }
    }

    /// The NIC by which a rank sends or receives on a channel; none for a rank whose node is unknown.
    pub fn port(&self, rank: u32, channel: u16, named: Option<u32>) -> Option<Port> {
        let (node, gpu) = *self.of_rank.get(&rank)?;
        let nic = named.unwrap_or_else(|| nearest_nic(gpu, usize::from(channel), self.gpus, self.nics) as u32);
        Some(Port { node, nic })
    }
}

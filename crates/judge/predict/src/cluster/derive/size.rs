//! How many nodes and GPUs took part.

use super::Underivable;
use super::host::HostClues;
use busbw_model::{BenchTable, Communicator, Run};
use std::collections::BTreeMap;

/// Nodes, and GPUs of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) struct Size {
    pub(in crate::cluster) nodes: usize,
    pub(in crate::cluster) gpus: usize,
}

/// The table of the most ranks, preferring one with a device list.
pub(super) fn main_table(run: &Run) -> Option<&BenchTable> {
    run.tables.iter().rev().max_by_key(|table| (table.devices.len(), table.nranks))
}

/// Reads it from a device list, from the largest communicator, or from a topology of one host.
pub(super) fn read(run: &Run, host: &HostClues, notes: &mut Vec<String>) -> Result<Size, Underivable> {
    if let Some(size) = main_table(run).and_then(|table| of_devices(table, notes)) {
        return Ok(size);
    }
    if let Some(size) = run.communicators.first().and_then(of_communicator) {
        return Ok(size);
    }
    let used: Vec<usize> = run.nodes.iter().map(|node| node.gpus.len()).filter(|gpus| *gpus > 0).collect();
    if let Some(most) = used.iter().max() {
        return Ok(Size { nodes: used.len(), gpus: *most });
    }
    if host.gpus > 0 {
        notes.push("One node: the topology is of one host.".to_string());
        return Ok(Size { nodes: 1, gpus: host.gpus });
    }
    Err(Underivable::Size)
}

/// The most GPUs that one process drives, by a device list, else by the ranks of the largest communicator.
pub(super) fn of_a_process(run: &Run) -> Option<usize> {
    let mut gpus: BTreeMap<(String, u64), usize> = BTreeMap::new();
    let listed = main_table(run).into_iter().flat_map(|table| &table.devices);
    listed.for_each(|device| *gpus.entry((device.host.clone(), device.pid)).or_default() += 1);
    if gpus.is_empty() {
        let ranks = run.communicators.first().into_iter().flat_map(|comm| comm.ranks.values());
        for rank in ranks {
            let node = rank.node.map(|node| node.to_string())?;
            *gpus.entry((node, rank.pid?)).or_default() += 1;
        }
    }
    gpus.into_values().max()
}

fn of_devices(table: &BenchTable, notes: &mut Vec<String>) -> Option<Size> {
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    for device in &table.devices {
        *hosts.entry(device.host.as_str()).or_default() += 1;
    }
    let most = *hosts.values().max()?;
    if hosts.values().any(|gpus| *gpus != most) {
        notes.push(format!("All nodes have {most} GPUs, although some list fewer."));
    }
    Some(Size { nodes: hosts.len(), gpus: most })
}

fn of_communicator(comm: &Communicator) -> Option<Size> {
    let ranks = comm.nranks? as usize;
    let nodes: std::collections::BTreeSet<u32> = comm.ranks.values().filter_map(|rank| rank.node).collect();
    let nodes = comm.nnodes.map(|nodes| nodes as usize).or((!nodes.is_empty()).then_some(nodes.len()))?;
    (ranks > 0 && nodes > 0).then(|| Size { nodes, gpus: ranks.div_ceil(nodes) })
}

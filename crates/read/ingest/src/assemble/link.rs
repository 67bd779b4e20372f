//! Ties logs and tables together: nodes, their GPUs and NICs, and the nodes of ranks that only a table names.

use busbw_model::{BenchTable, Communicator, Gpu, Nic, Node, Rank, Run};
use rustc_hash::FxHashMap;

/// Fills in the nodes: hosts of the log first, then those that only tables name.
pub(crate) fn nodes(run: &mut Run, hosts: Vec<String>, mut nics: FxHashMap<String, Vec<Nic>>) {
    run.nodes = hosts
        .into_iter()
        .map(|host| Node { nics: nics.remove(&host).unwrap_or_default(), host, gpus: Vec::new() })
        .collect();
    let mut index: FxHashMap<String, u32> = (0u32..).zip(&run.nodes).map(|(i, node)| (node.host.clone(), i)).collect();
    for device in run.tables.iter().flat_map(|table| &table.devices) {
        if !index.contains_key(&device.host) {
            index.insert(device.host.clone(), run.nodes.len() as u32);
            run.nodes.push(Node { host: device.host.clone(), ..Node::default() });
        }
    }
    for comm in &mut run.communicators {
        adopt_devices(comm, &run.tables, &index);
    }
    gpus_of_communicator(run);
    gpus_of_tables(run, &index);
    for node in &mut run.nodes {
        node.gpus.sort_by_key(|gpu| (gpu.rank, gpu.device));
    }
}

/// Excerpts show the log of one rank and the device list of all: the list shows where the other ranks are.
fn adopt_devices(comm: &mut Communicator, tables: &[BenchTable], index: &FxHashMap<String, u32>) {
    let fits = |table: &&BenchTable| {
        table.place.input == comm.place.input
            && Some(table.devices.len() as u32) == comm.nranks
            && table.devices.iter().all(|d| d.group.is_none_or(|group| group == 0))
    };
    let Some(table) = tables.iter().find(fits) else { return };
    for device in &table.devices {
        let rank = comm.ranks.entry(device.rank).or_default();
        *rank = Rank {
            node: rank.node.or_else(|| index.get(&device.host).copied()),
            pid: rank.pid.or(Some(device.pid)),
            device: rank.device.or(Some(device.device)),
            bus_id: rank.bus_id.take().or_else(|| Some(device.bus_id.clone())),
            stage: rank.stage,
            failed: rank.failed,
            up: rank.up,
            left: rank.left,
            aborted: rank.aborted,
        };
    }
    if comm.nnodes.is_none() {
        let mut nodes: Vec<u32> = comm.ranks.values().filter_map(|r| r.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        comm.nnodes = Some(nodes.len() as u32).filter(|n| *n > 0);
    }
}

/// The GPUs that the largest communicator's ranks use.
fn gpus_of_communicator(run: &mut Run) {
    let Some(largest) = run.communicators.first() else { return };
    for (rank, of_rank) in &largest.ranks {
        let Some(node) = of_rank.node.and_then(|node| run.nodes.get_mut(node as usize)) else { continue };
        node.gpus.push(Gpu { rank: Some(*rank), device: of_rank.device, bus_id: of_rank.bus_id.clone(), name: None });
    }
}

/// The GPUs of device lists: names for those that are known, and those that the log does not show. The rank tells which is
/// which, since containers may list every GPU as device 0 with one bus id.
fn gpus_of_tables(run: &mut Run, index: &FxHashMap<String, u32>) {
    let mut known: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    for (node, gpus) in (0u32..).zip(run.nodes.iter().map(|node| &node.gpus)) {
        known.extend(gpus.iter().enumerate().filter_map(|(at, gpu)| Some(((node, gpu.rank?), at))));
    }
    for device in run.tables.iter().flat_map(|table| &table.devices) {
        let Some(node) = index.get(&device.host).copied() else { continue };
        let Some(gpus) = run.nodes.get_mut(node as usize).map(|node| &mut node.gpus) else { continue };
        let at = *known.entry((node, device.rank)).or_insert(gpus.len());
        match gpus.get_mut(at) {
            Some(gpu) => {
                gpu.name.get_or_insert_with(|| device.name.clone());
            }
            None => gpus.push(Gpu {
                rank: Some(device.rank),
                device: Some(device.device),
                bus_id: Some(device.bus_id.clone()),
                name: Some(device.name.clone()),
            }),
        }
    }
}

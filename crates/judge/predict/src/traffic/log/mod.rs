//! The rings that a log shows.

mod seats;

use super::{Flow, Flows, Pattern, Traffic, check_size};
use crate::cluster::{Cluster, GpuLinks};
use crate::simulation::SimulationError;
use busbw_model::{Communicator, EdgeEnd};
use seats::{NamedNics, Seats};
use std::collections::{BTreeMap, HashMap};

impl Traffic {
    /// The flows of the rings that a log shows. The NIC of a channel is the one that the log names (`NET/IB/2`); where it names
    /// none, GPUs and NICs are divided evenly.
    ///
    /// Nodes are numbered by their lowest rank, whatever their names.
    pub fn of_communicator(comm: &Communicator, cluster: &Cluster) -> Result<Traffic, SimulationError> {
        let rings = comm.ring_count().max(1);
        let hops =
            comm.crossings().into_iter().map(|crossing| ((crossing.from, crossing.to), crossing.channels)).collect();
        let (flows, mut assumptions) = flows(comm, cluster, &hops, 1.0 / rings as f64)?;
        assumptions.insert(0, format!("The {rings} rings of the log carry equal parts."));
        Ok(Traffic {
            pattern: Pattern::Ring,
            flows,
            gpu_load: gpu_load(comm, cluster, &hops, rings),
            load: None,
            assumptions,
        })
    }
}

/// Ordered pairs of ranks on different nodes, with the channels in which the first sends to the second.
type Hops = BTreeMap<(u32, u32), Vec<u16>>;

/// The flows of `hops`, each channel of which carries `share`.
fn flows(
    comm: &Communicator,
    cluster: &Cluster,
    hops: &Hops,
    share: f64,
) -> Result<(Vec<Flow>, Vec<String>), SimulationError> {
    let seats = Seats::of(comm, cluster);
    if !hops.is_empty() && seats.nics == 0 {
        return Err(SimulationError::NoNics);
    }
    check_size(Some(hops.len()))?;
    let named = NamedNics::of(comm);
    let mut flows = Flows::default();
    let mut guessed = false;
    for (&(sender, receiver), channels) in hops {
        for &channel in channels {
            let mut end = |rank, end| {
                let nic = named.get(sender, receiver, end, channel);
                guessed |= nic.is_none();
                seats.port(rank, channel, nic)
            };
            let (from, to) = (end(sender, EdgeEnd::Send), end(receiver, EdgeEnd::Receive));
            if let Some((from, to)) = from.zip(to) {
                flows.add(Flow { from, to, share, connections: 1 });
            }
        }
    }
    let mut assumptions = Vec::new();
    if guessed {
        assumptions.push(format!(
            "The log does not name the NIC of every connection: {} GPUs and {} NICs of a node are divided evenly.",
            seats.gpus, seats.nics
        ));
    }
    Ok((flows.list, assumptions))
}

/// What the busiest GPU sends to GPUs of its own node: it is part of all rings, but for those that leave the node there.
fn gpu_load(comm: &Communicator, cluster: &Cluster, hops: &Hops, rings: usize) -> f64 {
    if matches!(cluster.links, GpuLinks::Pcie { .. } | GpuLinks::Single { .. }) {
        return 1.0;
    }
    let mut leaving: HashMap<u32, usize> = HashMap::new();
    for (&(sender, _), channels) in hops {
        *leaving.entry(sender).or_default() += channels.len();
    }
    let fewest = comm.ranks.keys().map(|rank| leaving.get(rank).copied().unwrap_or(0)).min().unwrap_or(0);
    rings.saturating_sub(fewest) as f64 / rings as f64
}

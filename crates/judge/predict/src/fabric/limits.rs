//! What holds a run back before any link of the fabric does: NICs, their PCIe, what a flow may carry, GPU links.

use crate::cluster::{Cluster, GpuLinks, NetTransport, Nics};
use crate::model::constants::Constants;
use crate::simulation::SimulationError;
use crate::traffic::{Port, Traffic, streams_per_connection};
use std::collections::HashMap;

/// Payload of an RDMA link, of its rate. NVIDIA's engineers give 46 to 48 GB/s for a port of 400 Gbit/s (0.92 to 0.96) as what
/// to expect in NCCL's issues, and SimAI takes 48.5 (0.97); headers alone leave 0.98 of packets of 4 KiB.
const RDMA_PAYLOAD: f64 = 0.965;

/// Payload of NVLink, of its rate: NCCL reckons with 20.6 of the 25 GB/s of a link (`SM90_NVLINK_BW`, src/graph/topo.h).
const NVLINK_PAYLOAD: f64 = 0.824;

/// The part of a link's rate that is payload.
pub fn payload(transport: NetTransport) -> f64 {
    match transport {
        NetTransport::InfiniBand | NetTransport::Roce | NetTransport::Efa | NetTransport::Slingshot => RDMA_PAYLOAD,
        NetTransport::Tcp | NetTransport::Tcpx | NetTransport::Tcpxo => {
            Constants::built_in().measured.tcp_payload.value
        }
    }
}

/// The busbw that nodes allow, whatever the fabric does.
#[derive(Debug)]
pub struct NodeLimits {
    /// That of the busiest NIC ports.
    pub ports: f64,
    /// The busiest ports, sending or receiving, by node and NIC.
    pub busiest: Vec<(Port, Direction)>,
    /// Flows over one of these.
    pub port_flows: usize,
    /// The payload rate of a NIC.
    pub port_rate: f64,
    /// That of GPU links and of the limit per flow.
    pub others: f64,
}

/// Which way data passes a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Into the fabric.
    Sending,
    /// Out of it.
    Receiving,
}

/// Ports whose limits differ by less are equally busy.
const SAME: f64 = 1e-9;

impl NodeLimits {
    /// The limits that `traffic` meets in the nodes of `cluster`.
    pub fn new(cluster: &Cluster, traffic: &Traffic) -> Result<NodeLimits, SimulationError> {
        let gpu = gpu_rate(&cluster.links)? / traffic.gpu_load;
        let Some(nics) = &cluster.nics else {
            return match traffic.flows.is_empty() {
                true => Ok(NodeLimits {
                    ports: f64::INFINITY,
                    busiest: Vec::new(),
                    port_flows: 0,
                    port_rate: 0.0,
                    others: gpu,
                }),
                false => Err(SimulationError::NoNics),
            };
        };
        let port_rate = port_rate(nics)?;
        let loads = port_loads(cluster, nics, traffic)?;
        let most = loads.values().map(|(load, _)| *load).fold(0.0, f64::max);
        let busiest = loads.iter().filter(|(_, (load, _))| *load >= most * (1.0 - SAME));
        let port_flows = busiest.clone().map(|(_, (_, flows))| *flows).max().unwrap_or(0);
        let mut busiest: Vec<_> = busiest.map(|(port, _)| *port).collect();
        busiest.sort_unstable();
        let others = gpu.min(flow_limit(cluster, nics, traffic));
        Ok(NodeLimits { ports: port_rate / most, busiest, port_flows, port_rate, others })
    }

    /// The busbw that they allow together.
    pub fn busbw(&self) -> f64 {
        self.ports.min(self.others)
    }
}

fn gpu_rate(links: &GpuLinks) -> Result<f64, SimulationError> {
    let payload = match links {
        GpuLinks::NvSwitch { .. } | GpuLinks::NvLinkMesh { .. } => NVLINK_PAYLOAD,
        // What is described for PCIe is what NCCL reckons with.
        GpuLinks::Pcie { .. } | GpuLinks::Single { .. } => 1.0,
    };
    super::check_rate(links.per_gpu().0 * payload, "GPU links")
}

/// A NIC gives and takes no more than its line and its PCIe slot carry.
fn port_rate(nics: &Nics) -> Result<f64, SimulationError> {
    let line = super::check_rate(nics.rate.0 * payload(nics.transport), "NICs")?;
    Ok(line.min(super::check_rate(nics.pcie.0, "the PCIe links of NICs")?))
}

type PortLoads = HashMap<(Port, Direction), (f64, usize)>;

fn port_loads(cluster: &Cluster, nics: &Nics, traffic: &Traffic) -> Result<PortLoads, SimulationError> {
    let mut loads = PortLoads::new();
    for flow in &traffic.flows {
        for (port, direction) in [(flow.from, Direction::Sending), (flow.to, Direction::Receiving)] {
            if port.node as usize >= cluster.nodes || port.nic as usize >= nics.count {
                return Err(SimulationError::NotInCluster { port, nodes: cluster.nodes, nics: nics.count });
            }
            let (load, flows) = loads.entry((port, direction)).or_default();
            *load += flow.share;
            *flows += 1;
        }
    }
    Ok(loads)
}

/// The busbw at which the largest flow meets the limit that the network sets each of its streams.
fn flow_limit(cluster: &Cluster, nics: &Nics, traffic: &Traffic) -> f64 {
    let Some(limit) = nics.flow_limit else { return f64::INFINITY };
    let streams = f64::from(streams_per_connection(cluster));
    let of_flow = traffic.flows.iter().map(|flow| limit.0 * streams * f64::from(flow.connections) / flow.share);
    of_flow.fold(f64::INFINITY, f64::min)
}

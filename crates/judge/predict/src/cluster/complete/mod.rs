//! From what is stated to a whole cluster: what is missing follows from the GPU and the machine, and is written down.

mod links;
mod network;

pub(super) use network::usual_nic;

use super::facts::Facts;
use super::hardware::BoardWiring;
use super::{Cluster, Cpu, CpuVendor, Fabric, Generation, GpuLinks, NetTransport, Nics, Routing, Wiring};
use crate::calibration::Calibration;
use busbw_model::{GBps, counted};

pub(super) fn complete(mut facts: Facts) -> Cluster {
    let mut notes = std::mem::take(&mut facts.assumptions);
    if let Some(nics) = facts.network.count.filter(|_| facts.network.count_by_rings) {
        notes.insert(0, format!("{nics} NICs per host, because its rings leave it from {nics} GPUs."));
    }
    let links = links::complete(&facts, &mut notes);
    let cpu = cpu(&facts, &mut notes);
    let domain = if let GpuLinks::NvSwitch { domain, .. } = links { domain } else { facts.gpus_per_node };
    let one_domain = facts.nodes * facts.gpus_per_node <= domain.max(facts.gpus_per_node);
    let nics = network::complete(&facts, &links, one_domain, &mut notes);
    if nics.as_ref().is_some_and(|nics| nics.transport == NetTransport::Tcp) {
        network::open_sockets(facts.machine, &mut facts.environment, &mut notes);
    }
    let fabric = fabric(&facts, nics.as_ref().filter(|_| !one_domain), &mut notes);
    Cluster {
        nodes: facts.nodes,
        gpus_per_node: facts.gpus_per_node,
        gpu: facts.gpu,
        links,
        cpu,
        nics,
        fabric,
        nccl: facts.nccl,
        environment: facts.environment,
        collective: facts.collective,
        gpus_per_process: facts.gpus_per_process,
        calibration: Calibration::NONE,
        graphs: None,
        assumptions: notes,
    }
}

/// What usual things are usual for: the machine, else the GPU.
fn hardware_name(facts: &Facts) -> String {
    let machine = facts.machine.map(|machine| machine.name.clone());
    let model = || facts.gpu.product.map(|model| model.name.clone());
    machine.or_else(model).unwrap_or_else(|| facts.gpu.name.clone())
}

/// The PCIe generation that a generation of GPUs has.
fn pcie_generation(generation: Generation) -> u8 {
    match generation {
        Generation::Pascal | Generation::Volta | Generation::Turing => 3,
        Generation::Ampere | Generation::Ada => 4,
        Generation::Cdna | Generation::Hopper | Generation::Blackwell => 5,
    }
}

fn vendor(facts: &Facts) -> CpuVendor {
    let named = facts.cpu.vendor.or(facts.machine.and_then(|machine| machine.cpu));
    named.unwrap_or_else(|| match facts.gpu.product {
        Some(model) if model.c2c().is_some() => CpuVendor::Arm,
        Some(model) if model.wiring == BoardWiring::NvSwitch && facts.gpu.generation == Generation::Ampere => {
            CpuVendor::Amd
        }
        Some(_) if facts.gpu.generation == Generation::Cdna => CpuVendor::Amd,
        _ => CpuVendor::Intel,
    })
}

fn cpu(facts: &Facts, notes: &mut Vec<String>) -> Cpu {
    let vendor = vendor(facts);
    let model_has_c2c = facts.gpu.product.is_some_and(|model| model.c2c().is_some());
    let sockets = facts.cpu.sockets.or(facts.machine.and_then(|machine| machine.sockets)).unwrap_or(2);
    if facts.cpu.vendor.is_none() {
        let name = match vendor {
            CpuVendor::Intel => "Intel",
            CpuVendor::Amd => "AMD",
            CpuVendor::Arm if model_has_c2c => "Grace",
            CpuVendor::Arm => "Arm",
            CpuVendor::Power => "POWER",
            CpuVendor::Unknown => "unknown",
        };
        let processors = counted(sockets, &format!("{name} processor"));
        notes.push(format!("{processors} per host, usual for {}.", hardware_name(facts)));
    }
    Cpu { vendor, sockets, socket_link: facts.cpu.link.unwrap_or_else(|| socket_link(vendor, facts.gpu.generation)) }
}

/// The link between sockets as `src/graph/topo.h` of NCCL 2.30 has it: `AMD_BW`, `SKL_QPI_BW`, `SRP_QPI_BW`, `ERP_QPI_BW`,
/// `P9_BW`, `ARM_BW`. The generation of the GPU stands for the year of the processor.
fn socket_link(vendor: CpuVendor, generation: Generation) -> GBps {
    GBps(match (vendor, generation) {
        (CpuVendor::Amd, _) => 16.0,
        (CpuVendor::Arm, _) => 6.0,
        (CpuVendor::Power, _) => 32.0,
        (_, Generation::Blackwell) => 40.0,
        (_, Generation::Hopper) => 22.0,
        _ => 10.0,
    })
}

fn fabric(facts: &Facts, nics: Option<&Nics>, notes: &mut Vec<String>) -> Fabric {
    if let Some(stated) = &facts.fabric {
        return stated.clone();
    }
    let Some(nics) = nics else { return Fabric { wiring: Wiring::SingleSwitch, routing: Routing::Hash } };
    notes.push("No bottleneck in the fabric, as if all NICs were on one switch.".to_string());
    // EFA's SRD sprays packets over paths, and Slingshot routes adaptively.
    let adaptive = matches!(nics.transport, NetTransport::Efa | NetTransport::Slingshot);
    Fabric { wiring: Wiring::SingleSwitch, routing: if adaptive { Routing::Adaptive } else { Routing::Hash } }
}

//! `[nic]`: the NICs of a host and what carries the messages.

use super::Hosts;
use crate::cluster::NetTransport;
use crate::cluster::environment;
use crate::cluster::facts::{NetworkFacts, StatedTransport};
use crate::cluster::hardware::usual_places;
use crate::cluster::rate::Unit;
use crate::cluster::section::DescriptionError;
use crate::cluster::section::{Section, Stated};
use busbw_model::{GBps, PathType};
use std::collections::BTreeMap;

/// Paths over PCIe, as `nvidia-smi topo -m` names them.
pub(super) const PATHS: [(&str, PathType); 5] = [
    ("PIX", PathType::Pix),
    ("PXB", PathType::Pxb),
    ("PHB", PathType::Phb),
    ("NODE", PathType::Node),
    ("SYS", PathType::Sys),
];

const TRANSPORTS: [(&str, NetTransport); 7] = [
    ("ib", NetTransport::InfiniBand),
    ("roce", NetTransport::Roce),
    ("efa", NetTransport::Efa),
    ("slingshot", NetTransport::Slingshot),
    ("tcpx", NetTransport::Tcpx),
    ("tcpxo", NetTransport::Tcpxo),
    ("tcp", NetTransport::Tcp),
];

/// Reads `[nic]`.
pub(super) fn read(
    root: &Section,
    node: Option<&Section>,
    hosts: &Hosts,
    variables: &BTreeMap<String, String>,
) -> Result<NetworkFacts, DescriptionError> {
    let places = node.map_or(Ok(None), |node| node.count("nic_places", "8"))?;
    let Some(section) = root.section("nic")? else { return Ok(NetworkFacts::default()) };
    let count = section.at_least_one("count", "8")?;
    let rate = section.rate("rate", Unit::Bits)?;
    let transport = section.choice("transport", &TRANSPORTS)?;
    let pcie = section.pcie("pcie")?;
    let gpu_direct = section.flag("gpu_direct")?;
    check_places(&section, count, places, hosts)?;
    if let (Some(rate), Some(pcie)) = (rate, pcie)
        && rate.value.0 > pcie.value.wire_rate().0
    {
        let most = pcie.value.wire_rate().gbit_per_s();
        let message =
            format!("nic.rate is {} Gbit/s, but {} carries {most:.0} Gbit/s", rate.value.gbit_per_s(), pcie.value);
        return Err(section.error(rate.at, message, "write a lower rate, or the pcie that the NIC really has"));
    }
    check_transport(&section, transport, gpu_direct, variables)?;
    let facts = NetworkFacts {
        transport: transport.map_or(StatedTransport::Unknown, |transport| StatedTransport::Is(transport.value)),
        count: count.map(|count| count.value),
        count_by_rings: false,
        rate: rate.map(|rate| rate.value),
        flow_limit: flow_limit(&section, rate)?,
        gpu_direct: gpu_direct.map(|flag| flag.value),
        place: section.choice("place", &PATHS)?.map(|place| place.value),
        pcie: pcie.map(|pcie| pcie.value),
    };
    section.finish()?;
    Ok(facts)
}

fn check_places(
    section: &Section,
    count: Option<Stated<usize>>,
    places: Option<Stated<usize>>,
    hosts: &Hosts,
) -> Result<(), DescriptionError> {
    let Some(count) = count else { return Ok(()) };
    let board = hosts.machine.map(|machine| machine.gpus).or(hosts.model.map(|model| model.board));
    let most = places.map_or_else(|| usual_places(board.unwrap_or(hosts.gpus).max(hosts.gpus)), |places| places.value);
    if count.value <= most {
        return Ok(());
    }
    let message = format!("nic.count = {}, but a host has {most} PCIe places for NICs", count.value);
    let remedy = format!("write count = {most} or less, or the real nic_places in [node]");
    Err(section.error(count.at, message, remedy))
}

fn check_transport(
    section: &Section,
    transport: Option<Stated<NetTransport>>,
    gpu_direct: Option<Stated<bool>>,
    variables: &BTreeMap<String, String>,
) -> Result<(), DescriptionError> {
    let Some(transport) = transport else { return Ok(()) };
    let verbs = matches!(transport.value, NetTransport::InfiniBand | NetTransport::Roce);
    if verbs && environment::is_set(variables, "NCCL_IB_DISABLE") == Some(true) {
        let message = "nic.transport names RDMA, but nccl.env.NCCL_IB_DISABLE = \"1\" switches it off";
        return Err(section.error(transport.at, message, "write transport = \"tcp\", or delete NCCL_IB_DISABLE"));
    }
    match gpu_direct {
        Some(Stated { value: true, at }) if transport.value == NetTransport::Tcp => {
            let message = "nic.gpu_direct = true, but kernel sockets cannot reach GPU memory";
            Err(section.error(at, message, "write gpu_direct = false, or transport = \"tcpx\" or \"tcpxo\""))
        }
        _ => Ok(()),
    }
}

fn flow_limit(section: &Section, rate: Option<Stated<GBps>>) -> Result<Option<GBps>, DescriptionError> {
    let Some(limit) = section.rate("flow_limit", Unit::Bits)? else { return Ok(None) };
    match rate.filter(|rate| limit.value.0 > rate.value.0) {
        Some(rate) => {
            let (limited, line) = (limit.value.gbit_per_s(), rate.value.gbit_per_s());
            let message = format!("nic.flow_limit is {limited} Gbit/s, more than the {line} Gbit/s of the NIC");
            Err(section.error(limit.at, message, "delete it, or write what one flow can carry"))
        }
        None => Ok(Some(limit.value)),
    }
}

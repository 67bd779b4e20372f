//! What logs and topologies show about the network.

use super::host::HostClues;
use super::size::Size;
use crate::cluster::NetTransport;
use crate::cluster::facts::{NetworkFacts, StatedTransport};
use crate::cluster::hardware::MachineProduct;
use crate::cluster::words::Words;
use busbw_model::{
    BenchTable, Communicator, GBps, GdrUse, LinkLayer, NetworkLine, NetworkStatement, NodeFacts, Run, TransportKind,
    XmlTopology, node::HcaList,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn read(
    run: &Run,
    host: &HostClues,
    size: &Size,
    machine: Option<&MachineProduct>,
    notes: &mut Vec<String>,
) -> NetworkFacts {
    let ports = Ports::of(run);
    let of_ports = ports.as_ref().and_then(|ports| ports.transport);
    let transport = transport(run).or(of_ports.filter(|_| size.nodes > 1));
    let of_machine = machine.filter(|_| transport == Some(NetTransport::Efa)).and_then(|machine| machine.nics);
    let shown = of_machine.or_else(|| shown(run, host, size, ports.as_ref()));
    let by_rings = if shown.is_none() { by_rings(run, size) } else { None };
    let count = shown.or(by_rings);
    let used = size.nodes > 1 || count.is_some();
    NetworkFacts {
        transport: transport.filter(|_| used).map_or(StatedTransport::Unknown, StatedTransport::Is),
        count,
        count_by_rings: by_rings.is_some(),
        rate: if of_machine.is_some() {
            None
        } else {
            logged_rate(run).or(host.nic_rate).or(ports.map(|ports| ports.rate))
        },
        flow_limit: None,
        gpu_direct: gpu_direct(run, notes).or(host.gpu_direct),
        place: host.place,
        pcie: host.nic_pcie,
    }
}

/// The transport: what connections name, else what NCCL says it chose or listed.
pub(super) fn transport(run: &Run) -> Option<NetTransport> {
    let connected =
        run.communicators.iter().flat_map(|comm| &comm.transports).find_map(|transport| match &transport.kind {
            TransportKind::Net(name) => Some(name.as_str()),
            _ => None,
        });
    let chosen = || {
        let said = run.nccl.networks.iter().rev().find(|line| line.statement == NetworkStatement::Chosen);
        said.map(|line| line.network.as_str())
    };
    let listed = || {
        let lists = run.nccl.networks.iter().filter(|line| matches!(line.statement, NetworkStatement::Using(_)));
        lists.map(|line| line.network.as_str()).find(|network| *network != "Bootstrap")
    };
    let disabled = || run.nccl.env_value("NCCL_IB_DISABLE").is_some_and(|setting| setting.value.trim() == "1");
    match connected.or_else(chosen).or_else(listed) {
        Some(name) => named(name, run),
        None if disabled() => Some(NetTransport::Tcp),
        None => run.topo_xmls.first().and_then(by_device_names),
    }
}

/// The transport that the devices of a topology XML have by their names: EFA's are called `rdmap79s0`, Slingshot's `cxi0`.
fn by_device_names(xml: &XmlTopology) -> Option<NetTransport> {
    let loose = xml.cpus.iter().flat_map(|cpu| &cpu.nics);
    let pcis = xml.all_pcis();
    let mut names = pcis
        .iter()
        .flat_map(|pci| &pci.nics)
        .chain(loose)
        .flat_map(|nic| &nic.nets)
        .filter_map(|net| net.name.as_deref());
    let name = names.next()?;
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if begins(&["rdmap", "efa"]) {
        return Some(NetTransport::Efa);
    }
    if begins(&["cxi"]) {
        return Some(NetTransport::Slingshot);
    }
    begins(&["eth", "ens", "eno", "enp", "bond"]).then_some(NetTransport::Tcp)
}

fn named(network: &str, run: &Run) -> Option<NetTransport> {
    let words = Words::of(network);
    if words.has("socket") {
        return Some(NetTransport::Tcp);
    }
    if words.has_prefix("fastrak") || words.has_prefix("tcpxo") {
        return Some(NetTransport::Tcpxo);
    }
    if words.has_prefix("gpudirecttcpx") || words.has("tcpx") {
        return Some(NetTransport::Tcpx);
    }
    if words.has("libfabric") || words.has("ofi") {
        return Some(if is_slingshot(run) { NetTransport::Slingshot } else { NetTransport::Efa });
    }
    let links: Vec<&str> = run.nodes.iter().flat_map(|node| &node.nics).filter_map(|nic| nic.link.as_deref()).collect();
    let infiniband = links.iter().filter(|link| **link == "IB").count();
    let roce = links.iter().filter(|link| **link == "RoCE").count();
    match (infiniband, roce) {
        (0, 0) => words.has_prefix("ib").then_some(NetTransport::InfiniBand),
        _ if infiniband >= roce => Some(NetTransport::InfiniBand),
        _ => Some(NetTransport::Roce),
    }
}

/// Libfabric over Slingshot: its provider is `cxi`, its interfaces are called `hsn0` …
fn is_slingshot(run: &Run) -> bool {
    let mut interfaces = run.nccl.networks.iter().flat_map(NetworkLine::listed);
    let variables =
        run.nccl.env.iter().any(|setting| setting.name.starts_with("FI_CXI") || setting.value.starts_with("hsn"));
    variables || notes(run).any(|note| Words::of(note).has("cxi")) || interfaces.any(|nic| nic.name.starts_with("hsn"))
}

/// As many NICs of a host as GPUs from which its rings leave.
fn by_rings(run: &Run, size: &Size) -> Option<usize> {
    let first = run.communicators.first().filter(|_| size.nodes > 1);
    first.map(senders).filter(|gpus| *gpus > 0)
}

/// NICs of a host: those that connections used, else those that a topology or NCCL lists.
fn shown(run: &Run, host: &HostClues, size: &Size, ports: Option<&Ports>) -> Option<usize> {
    let connections = run.communicators.first().map(|comm| comm.transports.as_slice()).unwrap_or_default();
    let used: BTreeSet<u32> = connections.iter().filter(|t| t.kind.is_network()).filter_map(|t| t.nic).collect();
    if !used.is_empty() {
        return Some(used.iter().map(|index| fused(run, *index)).sum());
    }
    if host.nics.is_some() {
        return host.nics;
    }
    if size.nodes < 2 {
        return None;
    }
    if let Some(ports) = ports {
        return Some(ports.count);
    }
    if let Some(named) = hca_list(run).devices() {
        return Some(named);
    }
    let physical = |name: &&str| !name.contains('+');
    let nics = |node: &busbw_model::Node| node.nics.iter().map(|nic| nic.name.as_str()).filter(physical).count();
    run.nodes.iter().map(nics).max().filter(|nics| *nics > 0)
}

/// What NCCL_IB_HCA takes; everything where it is not set.
fn hca_list(run: &Run) -> HcaList<'_> {
    HcaList::parse(run.nccl.env_value("NCCL_IB_HCA").map_or("", |setting| &setting.value))
}

/// The RDMA ports of a host that carry data, as its own tools tell (`ibstat`, saved facts).
struct Ports {
    count: usize,
    rate: GBps,
    transport: Option<NetTransport>,
}

impl Ports {
    /// Of the hosts that ran; of the one with the least, which a collective over all waits for.
    fn of(run: &Run) -> Option<Self> {
        let ran: Vec<&str> = run.tables.iter().flat_map(BenchTable::hosts).collect();
        let list = hca_list(run);
        let of_run = run.machines.iter().filter(|machine| machine.may_be_of(&ran));
        let machines = of_run.filter_map(|machine| Self::of_machine(machine, &list));
        machines.min_by(|a, b| a.together().total_cmp(&b.together()))
    }

    fn of_machine(machine: &NodeFacts, list: &HcaList) -> Option<Self> {
        let ports = machine.data_ports(list);
        let (device, port) = ports.first()?;
        let transport = match port.link_layer {
            _ if device.driver.as_deref() == Some("efa") => Some(NetTransport::Efa),
            Some(LinkLayer::InfiniBand) => Some(NetTransport::InfiniBand),
            Some(LinkLayer::Ethernet) => Some(NetTransport::Roce),
            None => None,
        };
        Some(Ports { count: ports.len(), rate: GBps(port.rate_gbps? / 8.0), transport })
    }

    fn together(&self) -> f64 {
        self.count as f64 * self.rate.0
    }
}

/// Ports that NCCL fused into the device of an index: 1 for a plain one.
fn fused(run: &Run, index: u32) -> usize {
    let device = |note: &str| VirtualDevice::read(note).filter(|device| device.index == index);
    notes(run).find_map(device).map_or(1, |device| device.ports)
}

/// `Made virtual device [9] name=mlx5_1+mlx5_2 speed=200000 ndevs=2` (`src/transport/net_ib` of NCCL 2.23 and later).
struct VirtualDevice {
    index: u32,
    ports: usize,
    /// Of all its ports together, Mbit/s.
    speed: u32,
}

impl VirtualDevice {
    fn read(note: &str) -> Option<Self> {
        let number = |behind: &str| {
            let text = note.split_once(behind)?.1;
            text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
        };
        let ports = number("ndevs=").filter(|ports| (1..=8).contains(ports))?;
        Some(VirtualDevice { index: number("virtual device [")?, ports: ports as usize, speed: number("speed=")? })
    }
}

fn notes(run: &Run) -> impl Iterator<Item = &str> {
    run.nccl.networks.iter().filter_map(|line| match &line.statement {
        NetworkStatement::Note(note) => Some(note.as_str()),
        _ => None,
    })
}

/// The most GPUs of a node from which rings leave it. NCCL leaves by the GPU that is nearest to a NIC.
fn senders(comm: &Communicator) -> usize {
    let mut of_node: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for crossing in comm.crossings() {
        if let Some(node) = comm.node_of(crossing.from) {
            of_node.entry(node).or_default().insert(crossing.from);
        }
    }
    of_node.values().map(BTreeSet::len).max().unwrap_or(0)
}

/// `speed=400000` in Mbit/s, which NCCL 2.27 and later print of each device (`src/transport/net_ib`).
fn logged_rate(run: &Run) -> Option<GBps> {
    let speed = |note: &str| match VirtualDevice::read(note) {
        Some(device) => Some(device.speed / device.ports as u32),
        None => note.split_once("speed=")?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok(),
    };
    let speeds = notes(run).filter_map(speed).filter(|mbps| *mbps > 0);
    speeds.max().map(|mbps| GBps(f64::from(mbps) / 8000.0))
}

fn gpu_direct(run: &Run, notes: &mut Vec<String>) -> Option<bool> {
    Some(match run.communicators.first()?.gdr()? {
        GdrUse::All => true,
        GdrUse::None => false,
        GdrUse::Mixed => {
            notes.push("All connections use GPUDirect RDMA, although some in the log do not.".to_string());
            true
        }
    })
}

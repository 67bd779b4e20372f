//! What people write about links, transports and fabrics, and what it means.

use super::facts::{LinkFacts, LinkKind};
use super::hardware::{BoardWiring, GpuProduct, MachineProduct, Pcie};
use super::words::Words;
use super::{Fabric, NetTransport, Routing, Uplinks, Wiring};
use busbw_model::{GBps, PathType};

/// The texts that speak of the links inside a host.
pub(super) struct LinkText<'a> {
    /// `nvlink3 NVSwitch 600GB/s`.
    pub(super) intra: &'a str,
    /// `A100 80GB (p4de.24xlarge)`.
    pub(super) gpu: &'a str,
    pub(super) gpus: usize,
    pub(super) model: &'a GpuProduct,
}

/// GPUs that NVLink joins across hosts in racks: GH200 NVL32, GB200 NVL36 and NVL72. Other numbers behind NVL count the
/// GPUs or the dies of a board (GB200 NVL4, B300 NVL16).
const NVLINK_RACKS: [usize; 3] = [32, 36, 72];

/// Reads what the texts say about the links inside a host.
pub(super) fn links(text: &LinkText) -> LinkFacts {
    let words = Words::of(text.intra);
    let both = Words::of(&format!("{} {}", text.intra, text.gpu));
    let rack = |gpus: &usize| NVLINK_RACKS.contains(gpus) || *gpus == text.gpus;
    let domain = both.numbers_of("nvl").map(|gpus| gpus as usize).find(rack);
    LinkFacts {
        kind: kind(text, &words, domain),
        nvlink: nvlink_rate(text),
        domain,
        nvls: words.affirms("nvls").filter(|nvls| !nvls),
        peer_to_peer: words.affirms("p2p").or_else(|| words.affirms("peer")),
        path: if words.affirms("nvlink") == Some(true) { None } else { path(text.intra) },
        pcie: words.has_prefix("pcie").then(|| Pcie::read(text.intra)).flatten(),
    }
}

fn kind(text: &LinkText, words: &Words, domain: Option<usize>) -> Option<LinkKind> {
    let pairs: Vec<u32> = words.numbers_of("nv").collect();
    let switched = pairs.iter().any(|links| text.gpus > 2 && text.model.nvlink.is_some_and(|all| *links >= all.links));
    let meshed = ["mesh", "cube", "hybrid", "superchip", "superchips", "direct"].iter().any(|word| words.has(word));
    let nvlink = words.affirms("nvlink").or((!pairs.is_empty()).then_some(true));
    if domain.is_some_and(|domain| domain > text.gpus) {
        return Some(LinkKind::NvSwitch);
    }
    if text.gpus == 1 {
        return Some(LinkKind::Single);
    }
    if words.affirms("nvswitch") == Some(true) || switched {
        return Some(LinkKind::NvSwitch);
    }
    match nvlink {
        Some(false) => Some(LinkKind::Pcie),
        None if words.has_prefix("pcie") => Some(LinkKind::Pcie),
        _ if words.has_prefix("bridge") => Some(LinkKind::Bridge),
        _ if meshed || words.has_phrase("all to all") || words.affirms("nvswitch") == Some(false) => {
            Some(LinkKind::Mesh)
        }
        Some(true) if !pairs.is_empty() && text.model.wiring != BoardWiring::Bridge => Some(LinkKind::Mesh),
        Some(true) if text.model.four_gpu_mesh && text.gpus == 4 => Some(LinkKind::Mesh),
        _ => None,
    }
}

/// The NVLink figure of a text, per direction. Data sheets count both directions; NCCL counts less than the wire
/// (20 of 25 GB/s per link, `SM80_NVLINK_BW` in `src/graph/topo.h`).
fn nvlink_rate(text: &LinkText) -> Option<GBps> {
    let nominal = text.model.nvlink?.rate().0;
    let figures = figures(text.intra);
    let near = |value: f64, reference: f64| (value / reference - 1.0).abs() < 0.03;
    let per_direction = |(value, rest): &(f64, &str)| {
        let words = Words::of(rest);
        let one_way = ["per direction", "each direction", "each way", "one way", "per dir"];
        words.has_prefix("unidir") || one_way.iter().any(|phrase| words.has_phrase(phrase)) || near(*value, nominal)
    };
    if figures.iter().any(|(value, _)| near(*value, nominal) || near(*value, 2.0 * nominal)) {
        return Some(GBps(nominal));
    }
    let links = f64::from(text.model.nvlink?.links);
    let as_nccl = |value: f64| [18.0, 20.0, 20.6, 40.1, 12.0].iter().any(|per_link| near(value, per_link * links));
    let (value, one_way) = figures.first().map(|figure| (figure.0, per_direction(figure)))?;
    let rate = if one_way { value } else { value / 2.0 };
    // More than a GPU has is the sum over a board.
    Some(GBps(if as_nccl(value) || rate > nominal { nominal } else { rate }))
}

/// Every `600GB/s` of a text in GB/s, with what follows it up to the next.
fn figures(text: &str) -> Vec<(f64, &str)> {
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<(f64, usize)> = Vec::new();
    for (unit, factor) in [("gb/s", 1.0), ("gbyte/s", 1.0), ("gbps", 1.0), ("tb/s", 1000.0)] {
        for (at, _) in lower.match_indices(unit) {
            let number = lower[..at].trim_end();
            let start = number.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').len();
            if let Ok(value) = number[start..].parse::<f64>()
                && value > 0.0
            {
                // Sold in bits where the b is small and the G is not.
                let bits = text.get(at..at + 2) == Some("Gb") && !unit.starts_with("gbyte");
                found.push((if bits { value / 8.0 } else { value * factor }, at + unit.len()));
            }
        }
    }
    found.sort_by_key(|(_, end)| *end);
    let ends: Vec<usize> = found.iter().skip(1).map(|(_, end)| *end).chain([text.len()]).collect();
    found.iter().zip(ends).map(|((value, from), to)| (*value, text.get(*from..to).unwrap_or_default())).collect()
}

/// The farthest PCIe path that a text names. The names are written in capitals; `node` is also a word.
fn path(text: &str) -> Option<PathType> {
    let cells = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() > 2);
    cells.filter_map(PathType::from_cell).filter(|path| *path >= PathType::Pix).max()
}

/// The path between a NIC and its GPU, where a text about the network names one.
pub(super) fn nic_place(fabric: &str) -> Option<PathType> {
    path(fabric)
}

/// Sockets, where a text counts them.
pub(super) fn sockets(text: &str) -> Option<usize> {
    let words = Words::of(text);
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.has_phrase(phrase));
    if says(&["two sockets", "2 sockets", "dual socket", "both sockets"]) {
        return Some(2);
    }
    says(&["one socket", "single socket", "1 socket", "same socket"]).then_some(1)
}

/// What people call TCP: TCPX or TCPXO where a text names them or the machine is made for them, else kernel sockets.
pub(super) fn tcp(hints: &Words, machine: Option<&MachineProduct>, assumptions: &mut Vec<String>) -> NetTransport {
    if let Some(named) = tcp_like(hints) {
        return named;
    }
    let offered = machine.and_then(|machine| Some((&machine.name, machine.transport?)));
    let plain = ["plain", "kernel", "socket", "sockets", "without", "no"].iter().any(|word| hints.has(word));
    match offered {
        Some((name, transport @ (NetTransport::Tcpx | NetTransport::Tcpxo))) if !plain => {
            assumptions.push(format!("TCP means {} here, because {name} has it.", transport.name()));
            transport
        }
        _ => NetTransport::Tcp,
    }
}

/// Which of the TCP-like transports a text names.
fn tcp_like(hints: &Words) -> Option<NetTransport> {
    let named = |prefixes: &[&str]| prefixes.iter().any(|prefix| hints.affirms(prefix) == Some(true));
    if named(&["tcpxo", "fastrak", "gpudirecttcpxo"]) {
        return Some(NetTransport::Tcpxo);
    }
    named(&["tcpx", "gpudirecttcpx"]).then_some(NetTransport::Tcpx)
}

/// A transport that the short form calls `other`.
pub(super) fn other(hints: &Words, assumptions: &mut Vec<String>) -> NetTransport {
    if ["slingshot", "cxi", "cassini"].iter().any(|word| hints.has_prefix(word)) {
        return NetTransport::Slingshot;
    }
    if let Some(tcp) = tcp_like(hints) {
        return tcp;
    }
    assumptions.push("Network: RDMA over Ethernet, because the description does not say which.".into());
    NetTransport::Roce
}

/// The fabric, where a text names its kind.
pub(super) fn fabric(text: &str, nodes: usize) -> Option<Fabric> {
    let words = Words::of(text);
    let routing = if words.affirms("adaptive") == Some(true) || words.has_all("packet spraying") {
        Routing::Adaptive
    } else {
        Routing::Hash
    };
    let rail =
        words.has_phrase("rail optimised") || words.has_phrase("rail optimized") || words.has_phrase("rail only");
    rail.then_some(Fabric {
        wiring: Wiring::RailOptimised {
            nodes_per_group: nodes,
            spines: 0,
            uplinks: Uplinks { count: 0, rate: GBps(0.0) },
        },
        routing,
    })
}

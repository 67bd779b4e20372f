//! A described cluster in words: what the pages of predictions and simulations begin with.

use crate::style::clean_line;
use crate::words::counted;
use busbw_model::GBps;
use busbw_predict::cluster::{Fabric, GpuLinks, Nics, Routing, Wiring};
use busbw_predict::{Busiest, Cluster, FabricEffect};

/// What the cluster is, a part each: machines, links, NICs, fabric, NCCL, settings. Parts that do not apply are left out.
pub(crate) fn parts(cluster: &Cluster) -> Vec<String> {
    let mut parts = vec![machines(cluster)];
    parts.extend(links(&cluster.links));
    if cluster.nodes > 1 {
        parts.push(cluster.nics.as_ref().map_or("no network between the nodes".into(), nics));
        parts.push(fabric(&cluster.fabric));
    }
    parts.extend(cluster.nccl.map(|(major, minor)| format!("NCCL {major}.{minor}")));
    parts.extend(cluster.environment.iter().map(|(name, value)| clean_line(&format!("{name}={value}")).into_owned()));
    parts
}

/// `2 nodes × 8 NVIDIA H20`.
pub(crate) fn machines(cluster: &Cluster) -> String {
    let name = clean_line(&cluster.gpu.name);
    let name = if name.trim().is_empty() { "GPUs".into() } else { name };
    format!("{} × {} {name}", counted(cluster.nodes, "node"), cluster.gpus_per_node)
}

/// What the switches leave, in a sentence.
pub(crate) fn hashed(effect: &FabricEffect) -> String {
    let FabricEffect { busbw, unshared, seeds, as_the_worst } = effect;
    if busbw.min == busbw.max {
        return format!("The fabric leaves {} of busbw to large messages; the NICs alone allow {unshared}", busbw.p50);
    }
    format!(
        "A fair hash leaves {} of busbw to large messages in the median of {seeds} seeds, {:.2} to {} in nine of ten; \
         {} in the worst ({:.1}% of seeds, or a hash that is polarised); {unshared} if no two flows share a link",
        busbw.p50,
        busbw.p5.0,
        busbw.p95,
        busbw.min,
        100.0 * as_the_worst
    )
}

/// Who decides how long an uneven exchange takes, in a sentence.
pub(crate) fn busiest(busiest: &Busiest) -> String {
    let nic = busiest.nic.map_or(String::new(), |nic| format!("; {nic}"));
    format!("Load {}: busiest are {}{nic}. The exchange lasts as long as these take", busiest.load, busiest.rank)
}

fn links(links: &GpuLinks) -> Option<String> {
    let per_gpu = format!("{} per GPU", rate(links.per_gpu()));
    match links {
        GpuLinks::NvSwitch { .. } => Some(format!("NVSwitch, {per_gpu}")),
        GpuLinks::NvLinkMesh { .. } => Some(format!("NVLink from GPU to GPU, {per_gpu}")),
        GpuLinks::Pcie { peer_to_peer: true, .. } => Some(format!("PCIe, {per_gpu}")),
        GpuLinks::Pcie { peer_to_peer: false, .. } => Some(format!("PCIe through host memory, {per_gpu}")),
        GpuLinks::Single { .. } => None,
    }
}

/// `8 InfiniBand NICs of 400 Gbit/s per node`.
fn nics(nics: &Nics) -> String {
    let transport = nics.transport.name();
    let mut text = format!("{} of {} per node", counted(nics.count, &format!("{transport} NIC")), port(nics.rate));
    if let Some(limit) = nics.flow_limit {
        text.push_str(&format!(", at most {} per flow", rate(limit)));
    }
    if !nics.gpu_direct {
        text.push_str(", without GPUDirect RDMA");
    }
    text
}

/// How the fabric is wired and routed.
pub(crate) fn fabric(fabric: &Fabric) -> String {
    let routing = match fabric.routing {
        Routing::Hash => "a hash per flow",
        Routing::Adaptive => "adaptive routing",
    };
    match &fabric.wiring {
        Wiring::SingleSwitch => "one switch, or a fabric as good as one".into(),
        Wiring::RailOptimised { spines: 0, .. } => "rail-optimised, rails that never meet".into(),
        Wiring::RailOptimised { spines, uplinks, .. } => {
            let uplinks = format!("{} of {}", counted(uplinks.count, "link"), rate(uplinks.rate));
            format!("rail-optimised, {} by {uplinks} each, {routing}", counted(*spines, "spine"))
        }
        Wiring::LeafSpine { nodes_per_leaf, spines, uplinks, cores } => {
            let levels = if cores.is_some() { "leaf, spine and core" } else { "leaf and spine" };
            let leaf = format!("{} per leaf", counted(*nodes_per_leaf, "node"));
            let up = format!(
                "{} by {} of {} each",
                counted(*spines, "spine"),
                counted(uplinks.count, "link"),
                rate(uplinks.rate)
            );
            format!("{levels}, {leaf}, {up}, {routing}")
        }
        Wiring::HostToSwitch { between } => {
            let between = format!("{} of {} between each two", counted(between.count, "link"), rate(between.rate));
            format!("a switch per node, {between}, {routing}")
        }
        Wiring::Explicit { switches, links } => {
            let cables = links.iter().map(|cable| cable.uplinks.count).sum();
            format!("{} and {} as listed, {routing}", counted_switches(switches.len()), counted(cables, "cable"))
        }
    }
}

fn counted_switches(count: usize) -> String {
    if count == 1 { "1 switch".into() } else { format!("{count} switches") }
}

/// `450 GB/s`, `12.5 GB/s`: as many decimals as say something.
pub(crate) fn rate(rate: GBps) -> String {
    format!("{} GB/s", short(rate.0))
}

/// `400 Gbit/s`: the unit in which ports are sold.
pub(crate) fn port(rate: GBps) -> String {
    format!("{} Gbit/s", short(rate.gbit_per_s()))
}

/// At most two decimals, without zeros at the end.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

//! Changes of wiring and settings, to see what they would gain.

use crate::cluster::{Cable, CableEnd, Cluster, GpuLinks, NetTransport, Nics, Routing, Uplinks, Wiring, rate};
use crate::traffic::Traffic;
use busbw_model::GBps;
use std::fmt;
use std::str::FromStr;

/// A change to a cluster. Written and read as `rail-optimised`, `nics=8`, `nic-rate=400Gbit/s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WhatIf {
    /// All NICs of one rail on one switch.
    RailOptimised,
    /// Switches spread packets over all equal paths.
    AdaptiveRouting,
    SingleSwitch,
    Nics(usize),
    NicRate(GBps),
    /// Queue pairs of a connection (NCCL_IB_QPS_PER_CONNECTION).
    QueuePairs(usize),
    /// Parallel links between two switches.
    Links(usize),
    Spines(usize),
    GpusPerNode(usize),
    Nodes(usize),
}

/// The largest number that a change takes.
const MOST: usize = 1 << 24;

/// Why a change is none.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WhatIfError {
    #[error("'{0}' is no change that busbw knows; write one of {forms}", forms = WhatIf::FORMS.join(", "))]
    Unknown(String),
    /// A change without the number it needs, or with one it does not take.
    #[error("'{given}' does not say how many; write {name}={example}, with a whole number from 1 to {MOST}")]
    Number { given: String, name: &'static str, example: usize },
    /// A rate without a unit, or none.
    #[error("'{0}' is no rate; write it with its unit, for example nic-rate=400Gbit/s or nic-rate=50GB/s")]
    Rate(String),
    /// The cluster has no network to change.
    #[error("{0} changes the network, but the cluster has no NICs; describe them first")]
    NoNetwork(WhatIf),
    #[error("{change} does not apply: {why}; {instead}")]
    Inapplicable { change: WhatIf, why: &'static str, instead: &'static str },
    /// The cluster is like that already.
    #[error("{0} changes nothing: the cluster is like that already")]
    Unchanged(WhatIf),
}

impl fmt::Display for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            WhatIf::RailOptimised => "rail-optimised".to_string(),
            WhatIf::AdaptiveRouting => "adaptive-routing".to_string(),
            WhatIf::SingleSwitch => "single-switch".to_string(),
            WhatIf::Nics(count) => format!("nics={count}"),
            WhatIf::NicRate(rate) => format!("nic-rate={}Gbit/s", rate.gbit_per_s()),
            WhatIf::QueuePairs(count) => format!("qps={count}"),
            WhatIf::Links(count) => format!("links={count}"),
            WhatIf::Spines(count) => format!("spines={count}"),
            WhatIf::GpusPerNode(count) => format!("gpus-per-node={count}"),
            WhatIf::Nodes(count) => format!("nodes={count}"),
        };
        f.pad(&text)
    }
}

impl FromStr for WhatIf {
    type Err = WhatIfError;

    /// Reads a change.
    ///
    /// ```
    /// use busbw_predict::WhatIf;
    /// assert_eq!("nics=8".parse(), Ok(WhatIf::Nics(8)));
    /// assert!("nics=many".parse::<WhatIf>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let (name, value) = match trimmed.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (trimmed, None),
        };
        let name = name.to_ascii_lowercase().replace('_', "-");
        let count = |name, example| {
            let number = value.and_then(|value| value.parse().ok()).filter(|number| (1..=MOST).contains(number));
            number.ok_or(WhatIfError::Number { given: trimmed.to_string(), name, example })
        };
        match (name.as_str(), value) {
            ("rail-optimised" | "rail-optimized", None) => Ok(WhatIf::RailOptimised),
            ("adaptive-routing", None) => Ok(WhatIf::AdaptiveRouting),
            ("single-switch", None) => Ok(WhatIf::SingleSwitch),
            ("nics", _) => count("nics", 8).map(WhatIf::Nics),
            ("nic-rate", _) => {
                let rate = value.and_then(rate).ok_or_else(|| WhatIfError::Rate(trimmed.to_string()));
                rate.map(WhatIf::NicRate)
            }
            ("qps", _) => count("qps", 4).map(WhatIf::QueuePairs),
            ("links", _) => count("links", 8).map(WhatIf::Links),
            ("spines", _) => count("spines", 16).map(WhatIf::Spines),
            ("gpus-per-node", _) => count("gpus-per-node", 8).map(WhatIf::GpusPerNode),
            ("nodes", _) => count("nodes", 16).map(WhatIf::Nodes),
            _ => Err(WhatIfError::Unknown(trimmed.to_string())),
        }
    }
}

/// As in a description: `400Gbit/s`, `400 Gbps`, `50GB/s`; and as ports are sold, `400G`.
fn rate(text: &str) -> Option<GBps> {
    let sold = || text.ends_with(['G', 'T']).then(|| rate::parse(&format!("{text}b/s")).ok()).flatten();
    rate::parse(text).ok().or_else(sold)
}

impl WhatIf {
    /// How all changes are written, for help, shells and messages; the numbers are examples.
    pub const FORMS: [&str; 10] = [
        "rail-optimised",
        "adaptive-routing",
        "single-switch",
        "nics=8",
        "nic-rate=400Gbit/s",
        "qps=4",
        "links=8",
        "spines=16",
        "gpus-per-node=8",
        "nodes=16",
    ];

    /// The cluster with the change.
    pub fn apply(&self, cluster: &Cluster) -> Result<Cluster, WhatIfError> {
        let mut after = cluster.clone();
        match *self {
            WhatIf::Nodes(nodes) => set_nodes(&mut after, nodes),
            WhatIf::GpusPerNode(gpus) => set_gpus(&mut after, gpus),
            _ => self.change_network(&mut after)?,
        }
        if after == *cluster { Err(WhatIfError::Unchanged(*self)) } else { Ok(after) }
    }

    /// The flows after the change, where `before` were those of `cluster` without it: rings that a log shows stay as they
    /// are when cables, switches or queue pairs change, and stay on their rails when these get switches of their own. Other
    /// changes make NCCL build other rings.
    pub fn traffic(&self, before: &Traffic, after: &Cluster) -> Result<Traffic, crate::SimulationError> {
        match self {
            WhatIf::RailOptimised => Ok(before.on_rails()),
            WhatIf::Nics(_) | WhatIf::GpusPerNode(_) | WhatIf::Nodes(_) => before.rebuilt(after),
            _ => Ok(before.clone()),
        }
    }

    fn change_network(&self, after: &mut Cluster) -> Result<(), WhatIfError> {
        let Some(nics) = &mut after.nics else { return Err(WhatIfError::NoNetwork(*self)) };
        let one_link = one_link(nics);
        match *self {
            WhatIf::Nics(count) => nics.count = count,
            WhatIf::NicRate(rate) => nics.rate = rate,
            WhatIf::QueuePairs(_) if !matches!(nics.transport, NetTransport::InfiniBand | NetTransport::Roce) => {
                let instead = "set NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD in the description for TCP";
                return Err(self.inapplicable("only InfiniBand and RoCE have queue pairs", instead));
            }
            WhatIf::QueuePairs(count) => {
                after.environment.insert("NCCL_IB_QPS_PER_CONNECTION".to_string(), count.to_string());
            }
            WhatIf::AdaptiveRouting => after.fabric.routing = Routing::Adaptive,
            WhatIf::SingleSwitch => after.fabric.wiring = Wiring::SingleSwitch,
            WhatIf::RailOptimised => after.fabric.wiring = rails(after, one_link),
            WhatIf::Links(count) => self.set_links(&mut after.fabric.wiring, count)?,
            WhatIf::Spines(count) => self.set_spines(&mut after.fabric.wiring, count, one_link)?,
            WhatIf::Nodes(_) | WhatIf::GpusPerNode(_) => (),
        }
        Ok(())
    }

    fn set_links(&self, wiring: &mut Wiring, count: usize) -> Result<(), WhatIfError> {
        match wiring {
            Wiring::HostToSwitch { between: uplinks }
            | Wiring::LeafSpine { uplinks, .. }
            | Wiring::RailOptimised { uplinks, spines: 1.., .. } => uplinks.count = count,
            Wiring::Explicit { links, .. } => {
                links.iter_mut().filter(|cable| joins_switches(cable)).for_each(|cable| cable.uplinks.count = count);
            }
            Wiring::RailOptimised { .. } => {
                return Err(self.inapplicable("the rails are not joined", "write spines=N to join them"));
            }
            Wiring::SingleSwitch => {
                let instead = "describe the fabric's leaves and spines if it has several switches";
                return Err(self.inapplicable("a single switch has no links between switches", instead));
            }
        }
        Ok(())
    }

    /// Spines that join rails which did not meet before have `uplinks`.
    fn set_spines(&self, wiring: &mut Wiring, count: usize, uplinks: Uplinks) -> Result<(), WhatIfError> {
        match wiring {
            Wiring::RailOptimised { spines: spines @ 0, uplinks: none, .. } => (*spines, *none) = (count, uplinks),
            Wiring::LeafSpine { spines, .. } | Wiring::RailOptimised { spines, .. } => *spines = count,
            Wiring::HostToSwitch { .. } => {
                let why = "the switches of the hosts are joined directly, without spines";
                return Err(self.inapplicable(why, "write links=N for the links between them"));
            }
            Wiring::SingleSwitch => {
                let instead = "describe the fabric's leaves and spines if it has several switches";
                return Err(self.inapplicable("a single switch has no spines", instead));
            }
            Wiring::Explicit { .. } => {
                let instead = "add them to the description, or write links=N for more links between switches";
                return Err(self.inapplicable("the switches of this fabric are listed", instead));
            }
        }
        Ok(())
    }

    fn inapplicable(&self, why: &'static str, instead: &'static str) -> WhatIfError {
        WhatIfError::Inapplicable { change: *self, why, instead }
    }
}

/// Rails that never meet have all nodes on one switch each, as they had before.
fn set_nodes(cluster: &mut Cluster, nodes: usize) {
    if let Wiring::RailOptimised { nodes_per_group, spines: 0, .. } = &mut cluster.fabric.wiring {
        *nodes_per_group = nodes.max(*nodes_per_group);
    }
    cluster.nodes = nodes;
}

/// NVLink that ended at the host still does.
fn set_gpus(cluster: &mut Cluster, gpus: usize) {
    if let GpuLinks::NvSwitch { domain, .. } = &mut cluster.links
        && *domain <= cluster.gpus_per_node
    {
        *domain = gpus;
    }
    cluster.gpus_per_node = gpus;
}

fn joins_switches(cable: &Cable) -> bool {
    matches!((&cable.from, &cable.to), (CableEnd::Switch(_), CableEnd::Switch(_)))
}

/// A link as fast as a NIC: what is laid where nothing is described.
fn one_link(nics: &Nics) -> Uplinks {
    Uplinks { count: 1, rate: nics.rate }
}

/// The same switches with the cables moved: a leaf that took all NICs of some nodes takes one NIC of as many times more.
/// Switches that were not joined by spines are large enough for all nodes.
fn rails(cluster: &Cluster, uplinks: Uplinks) -> Wiring {
    let rails = cluster.nics.as_ref().map_or(1, |nics| nics.count);
    match &cluster.fabric.wiring {
        Wiring::LeafSpine { nodes_per_leaf, spines, uplinks, .. } => Wiring::RailOptimised {
            nodes_per_group: nodes_per_leaf.saturating_mul(rails),
            spines: *spines,
            uplinks: *uplinks,
        },
        wiring @ Wiring::RailOptimised { .. } => wiring.clone(),
        Wiring::SingleSwitch | Wiring::HostToSwitch { .. } | Wiring::Explicit { .. } => {
            Wiring::RailOptimised { nodes_per_group: cluster.nodes, spines: 0, uplinks }
        }
    }
}

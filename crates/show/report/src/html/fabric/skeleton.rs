//! The switches and cables of a fabric, as far as a picture of it stays legible.

use busbw_model::GBps;
use busbw_predict::Cluster;
use busbw_predict::cluster::{Cable, CableEnd, Cores, Uplinks, Wiring};

/// What stays legible.
const MAX_HOSTS: usize = 16;
const MAX_NICS: usize = 128;
const MAX_SWITCHES: usize = 40;
const MAX_BUNDLES: usize = 300;

/// The parts of a picture.
pub struct Skeleton {
    pub hosts: usize,
    pub nics: usize,
    pub switches: Vec<Switch>,
    pub bundles: Vec<Bundle>,
}

/// A switch, named as the simulation names it.
pub struct Switch {
    pub name: String,
    /// How far above the hosts it stands: 1 for those with NICs.
    pub level: usize,
}

/// Parallel cables between the same two ends.
pub struct Bundle {
    pub from: End,
    pub to: End,
    pub count: usize,
    pub rate: GBps,
}

/// An end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Nic { host: usize, nic: usize },
    Switch(usize),
}

impl Skeleton {
    /// The name of an end, if it is a switch.
    pub fn name(&self, end: End) -> Option<&str> {
        match end {
            End::Switch(index) => self.switches.get(index).map(|switch| switch.name.as_str()),
            End::Nic { .. } => None,
        }
    }

    /// Cables between switches.
    pub fn cables(&self) -> usize {
        self.bundles.iter().filter(|bundle| matches!(bundle.from, End::Switch(_))).map(|bundle| bundle.count).sum()
    }

    fn switch(&mut self, name: String, level: usize) -> usize {
        self.switches.push(Switch { name, level });
        self.switches.len() - 1
    }

    fn join(&mut self, from: usize, to: usize, uplinks: &Uplinks) {
        let (from, to) = (End::Switch(from), End::Switch(to));
        self.bundles.push(Bundle { from, to, count: uplinks.count, rate: uplinks.rate });
    }
}

/// The picture's parts; `None` where there is no fabric or it has too many of them.
pub fn of(cluster: &Cluster) -> Option<Skeleton> {
    let nics = cluster.nics.as_ref()?;
    let fits = (2..=MAX_HOSTS).contains(&cluster.nodes) && cluster.nodes.checked_mul(nics.count)? <= MAX_NICS;
    if !fits || switches(cluster)? > MAX_SWITCHES {
        return None;
    }
    let mut skeleton = Skeleton { hosts: cluster.nodes, nics: nics.count, switches: Vec::new(), bundles: Vec::new() };
    match &cluster.fabric.wiring {
        Wiring::Explicit { switches, links } => listed(&mut skeleton, switches, links),
        wiring => {
            let leaves = leaves(&mut skeleton, wiring);
            for (host, nic) in (0..skeleton.hosts).flat_map(|host| (0..nics.count).map(move |nic| (host, nic))) {
                let to = End::Switch(leaf(wiring, nics.count, host, nic));
                skeleton.bundles.push(Bundle { from: End::Nic { host, nic }, to, count: 1, rate: nics.rate });
            }
            above(&mut skeleton, wiring, leaves);
        }
    }
    (skeleton.bundles.len() <= MAX_BUNDLES).then_some(skeleton)
}

/// How many switches there are; `None` for a wiring that makes no sense.
fn switches(cluster: &Cluster) -> Option<usize> {
    let nics = cluster.nics.as_ref()?.count;
    Some(match &cluster.fabric.wiring {
        Wiring::SingleSwitch => 1,
        Wiring::HostToSwitch { .. } => cluster.nodes,
        Wiring::RailOptimised { nodes_per_group, spines, .. } => {
            divided(cluster.nodes, *nodes_per_group)?.checked_mul(nics)?.checked_add(*spines)?
        }
        Wiring::LeafSpine { nodes_per_leaf, spines, cores, .. } => {
            let leaves = divided(cluster.nodes, *nodes_per_leaf)?;
            let pods = cores.map_or(Some(1), |cores| divided(leaves, cores.leaves_per_pod))?;
            leaves.checked_add(pods.checked_mul(*spines)?)?.checked_add(cores.map_or(0, |cores| cores.switches))?
        }
        Wiring::Explicit { switches, .. } => switches.len(),
    })
}

/// `count` in groups of `each`.
fn divided(count: usize, each: usize) -> Option<usize> {
    (each > 0).then(|| count.div_ceil(each))
}

/// Adds the switches that NICs are on; how many they are.
fn leaves(skeleton: &mut Skeleton, wiring: &Wiring) -> usize {
    let name: Box<dyn Fn(usize) -> String> = match wiring {
        Wiring::SingleSwitch | Wiring::Explicit { .. } => Box::new(|_| "switch".into()),
        Wiring::HostToSwitch { .. } => Box::new(|index| format!("switch of node {index}")),
        Wiring::LeafSpine { .. } => Box::new(|index| format!("leaf {index}")),
        Wiring::RailOptimised { .. } => {
            let rails = skeleton.nics.max(1);
            Box::new(move |index| format!("rail switch {} of group {}", index % rails, index / rails))
        }
    };
    let count = match wiring {
        Wiring::SingleSwitch | Wiring::Explicit { .. } => 1,
        Wiring::HostToSwitch { .. } => skeleton.hosts,
        Wiring::LeafSpine { nodes_per_leaf, .. } => skeleton.hosts.div_ceil(*nodes_per_leaf),
        Wiring::RailOptimised { nodes_per_group, .. } => skeleton.hosts.div_ceil(*nodes_per_group) * skeleton.nics,
    };
    for index in 0..count {
        skeleton.switch(name(index), 1);
    }
    count
}

fn leaf(wiring: &Wiring, nics: usize, host: usize, nic: usize) -> usize {
    match wiring {
        Wiring::SingleSwitch | Wiring::Explicit { .. } => 0,
        Wiring::HostToSwitch { .. } => host,
        Wiring::LeafSpine { nodes_per_leaf, .. } => host / nodes_per_leaf,
        Wiring::RailOptimised { nodes_per_group, .. } => host / nodes_per_group * nics + nic,
    }
}

/// Adds what joins the leaves.
fn above(skeleton: &mut Skeleton, wiring: &Wiring, leaves: usize) {
    match wiring {
        Wiring::SingleSwitch | Wiring::Explicit { .. } => {}
        Wiring::HostToSwitch { between } => {
            for (from, to) in (0..leaves).flat_map(|from| (from + 1..leaves).map(move |to| (from, to))) {
                skeleton.join(from, to, between);
            }
        }
        Wiring::RailOptimised { spines, uplinks, .. } => {
            spine_level(skeleton, 0..leaves, (*spines, uplinks), None);
        }
        Wiring::LeafSpine { spines, uplinks, cores: None, .. } => {
            spine_level(skeleton, 0..leaves, (*spines, uplinks), None);
        }
        Wiring::LeafSpine { spines, uplinks, cores: Some(cores), .. } => {
            pods(skeleton, leaves, (*spines, uplinks), cores)
        }
    }
}

/// Adds spines above leaves; their indices.
fn spine_level(
    skeleton: &mut Skeleton,
    leaves: std::ops::Range<usize>,
    (count, uplinks): (usize, &Uplinks),
    pod: Option<usize>,
) -> Vec<usize> {
    let of_pod = pod.map(|pod| format!(" of pod {pod}")).unwrap_or_default();
    let spines: Vec<usize> = (0..count).map(|spine| skeleton.switch(format!("spine {spine}{of_pod}"), 2)).collect();
    for leaf in leaves {
        spines.iter().for_each(|spine| skeleton.join(leaf, *spine, uplinks));
    }
    spines
}

fn pods(skeleton: &mut Skeleton, leaves: usize, spines: (usize, &Uplinks), cores: &Cores) {
    let mut all = Vec::new();
    for (pod, first) in (0..leaves).step_by(cores.leaves_per_pod.max(1)).enumerate() {
        let end = (first + cores.leaves_per_pod.max(1)).min(leaves);
        all.extend(spine_level(skeleton, first..end, spines, Some(pod)));
    }
    for core in 0..cores.switches {
        let core = skeleton.switch(format!("core {core}"), 3);
        all.iter().for_each(|spine| skeleton.join(*spine, core, &cores.uplinks));
    }
}

/// The switches and cables of a list. A switch stands above those by which its nearest NIC is reached.
fn listed(skeleton: &mut Skeleton, switches: &[String], cables: &[Cable]) {
    let end = |end: &CableEnd| match *end {
        CableEnd::Switch(index) => End::Switch(index),
        CableEnd::Nic { node, nic } => End::Nic { host: node, nic },
    };
    for cable in cables {
        // NICs first, so that a bundle between switches is known by its first end.
        let (from, to) = match (end(&cable.from), end(&cable.to)) {
            (from @ End::Switch(_), to @ End::Nic { .. }) => (to, from),
            ends => ends,
        };
        skeleton.bundles.push(Bundle { from, to, count: cable.uplinks.count, rate: cable.uplinks.rate });
    }
    let mut levels = vec![usize::MAX; switches.len()];
    for _ in 0..switches.len() {
        for bundle in &skeleton.bundles {
            let level = |levels: &[usize], end| match end {
                End::Nic { .. } => 0,
                End::Switch(index) => levels.get(index).copied().unwrap_or(usize::MAX),
            };
            for (near, far) in [(bundle.from, bundle.to), (bundle.to, bundle.from)] {
                let above = level(&levels, near).saturating_add(1);
                if let End::Switch(index) = far
                    && let Some(found) = levels.get_mut(index)
                {
                    *found = above.min(*found);
                }
            }
        }
    }
    for (name, level) in switches.iter().zip(levels) {
        skeleton.switch(name.clone(), if level == usize::MAX { 1 } else { level });
    }
    let known = skeleton.switches.len();
    let (hosts, nics) = (skeleton.hosts, skeleton.nics);
    let is_there = |end: &End| match *end {
        End::Switch(index) => index < known,
        End::Nic { host, nic } => host < hosts && nic < nics,
    };
    skeleton.bundles.retain(|bundle| is_there(&bundle.from) && is_there(&bundle.to));
}

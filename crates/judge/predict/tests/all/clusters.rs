//! Clusters and flows that the tests of the simulation share.
#![allow(dead_code, reason = "not every test uses every cluster")]

use busbw_ingest::read_bytes;
use busbw_model::{GBps, PathType, Run};
use busbw_predict::Cluster;
use busbw_predict::cluster::{Cable, CableEnd, Cores, Fabric, Nics, Routing, Uplinks, Wiring, parse};
use std::collections::BTreeMap;

/// Hosts of 8 GPUs with NVLink and `nics` NICs of 400 Gbit/s.
pub fn cluster(nodes: usize, nics: usize, wiring: Wiring, routing: Routing) -> Cluster {
    let described = parse(include_str!("../../../../../examples/clusters/h20x8.toml")).unwrap();
    let own = described.nics.clone().map(|own| Nics { count: nics, place: PathType::Pxb, pcie: GBps(52.0), ..own });
    let fabric = Fabric { wiring, routing };
    Cluster { nodes, nics: own, fabric, nccl: Some((2, 27)), environment: BTreeMap::new(), ..described }
}

/// The first field report: each host on a switch of its own, four links of 400 Gbit/s between the switches.
pub fn field_report() -> Cluster {
    cluster(2, 4, Wiring::HostToSwitch { between: parallel(4) }, Routing::Hash)
}

/// Three levels: two nodes under a leaf, two leaves in a pod.
pub fn three_levels(nodes: usize, routing: Routing) -> Cluster {
    let cores = Some(Cores { leaves_per_pod: 2, switches: 4, uplinks: parallel(1) });
    let wiring = Wiring::LeafSpine { nodes_per_leaf: 2, spines: 4, uplinks: parallel(2), cores };
    cluster(nodes, 8, wiring, routing)
}

/// Links of 400 Gbit/s.
pub fn parallel(count: usize) -> Uplinks {
    Uplinks { count, rate: GBps(50.0) }
}

/// The log of the first field report.
pub fn field_report_log() -> Run {
    let text = include_bytes!("../../../../../tests/data/runs/h20-2x8-roce-cross-switch/run.log");
    read_bytes(&[("run.log", text)]).unwrap()
}

/// The same leaves, spines and cores with every cable listed.
pub fn listed(cluster: &Cluster) -> Cluster {
    let Wiring::LeafSpine { nodes_per_leaf, spines, uplinks, cores } = &cluster.fabric.wiring else {
        panic!("only leaves and spines can be listed");
    };
    let leaves = cluster.nodes.div_ceil(*nodes_per_leaf);
    let leaves_per_pod = cores.map_or(leaves, |cores| cores.leaves_per_pod);
    let mut list = Listing::default();
    for leaf in 0..leaves {
        for spine in 0..*spines {
            let pod = leaf / leaves_per_pod;
            list.join(format!("leaf {leaf:03}"), format!("spine {pod:03}.{spine:03}"), *uplinks);
        }
    }
    for (pod, spine) in (0..leaves.div_ceil(leaves_per_pod)).flat_map(|pod| (0..*spines).map(move |spine| (pod, spine)))
    {
        let Some(cores) = cores else { continue };
        for core in 0..cores.switches {
            list.join(format!("spine {pod:03}.{spine:03}"), format!("core {core:03}"), cores.uplinks);
        }
    }
    for node in 0..cluster.nodes {
        for nic in 0..cluster.nics.as_ref().map_or(0, |nics| nics.count) {
            let leaf = list.switch(format!("leaf {:03}", node / nodes_per_leaf));
            list.cables.push(Cable { from: CableEnd::Nic { node, nic }, to: leaf, uplinks: parallel(1) });
        }
    }
    let wiring = Wiring::Explicit { switches: list.switches, links: list.cables };
    Cluster { fabric: Fabric { wiring, routing: cluster.fabric.routing }, ..cluster.clone() }
}

#[derive(Default)]
struct Listing {
    switches: Vec<String>,
    cables: Vec<Cable>,
}

impl Listing {
    fn switch(&mut self, name: String) -> CableEnd {
        let known = self.switches.iter().position(|switch| *switch == name);
        CableEnd::Switch(known.unwrap_or_else(|| {
            self.switches.push(name);
            self.switches.len() - 1
        }))
    }

    fn join(&mut self, a: String, b: String, uplinks: Uplinks) {
        let (from, to) = (self.switch(a), self.switch(b));
        self.cables.push(Cable { from, to, uplinks });
    }
}

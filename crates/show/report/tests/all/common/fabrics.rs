//! Clusters with their predictions and simulations.

use busbw_model::{Algorithm, Bytes, Collective, GBps, Micros, PathType, Protocol};
use busbw_predict::cluster::{Cable, CableEnd, Cores, Fabric, Nics, Routing, Uplinks, Wiring, parse};
use busbw_predict::{
    Channels, Cluster, Crossing, Distribution, FabricEffect, Options, Prediction, PredictionRow, Traffic, simulate,
};
use busbw_report::{Comparison, Scenario};

pub fn uplinks(count: usize) -> Uplinks {
    Uplinks { count, rate: GBps(50.0) }
}

/// Hosts of eight H20 with four RoCE NICs of 400 Gbit/s.
pub fn cluster(nodes: usize, wiring: Wiring, routing: Routing) -> Cluster {
    let described = parse(include_str!("../../../../../../examples/clusters/h20x8.toml")).unwrap();
    let nics = described.nics.clone().map(|own| Nics { place: PathType::Pxb, pcie: GBps(52.0), ..own });
    let assumptions = vec!["2 Intel processors per host.".into()];
    let environment = [("NCCL_ALGO".to_string(), "Ring".to_string())].into();
    let fabric = Fabric { wiring, routing };
    Cluster { nodes, nics, fabric, nccl: Some((2, 27)), environment, assumptions, ..described }
}

/// The first field report: each host on a switch of its own, four links between the switches.
pub fn field_report() -> Cluster {
    cluster(2, Wiring::HostToSwitch { between: uplinks(4) }, Routing::Hash)
}

pub fn rail_optimised(nodes: usize, spines: usize) -> Cluster {
    let nodes_per_group = if spines == 0 { nodes } else { nodes.div_ceil(2) };
    cluster(nodes, Wiring::RailOptimised { nodes_per_group, spines, uplinks: uplinks(2) }, Routing::Hash)
}

pub fn leaf_spine(nodes: usize, cores: bool) -> Cluster {
    let cores = cores.then(|| Cores { leaves_per_pod: 2, switches: 2, uplinks: uplinks(2) });
    let wiring = Wiring::LeafSpine { nodes_per_leaf: 2, spines: 2, uplinks: uplinks(2), cores };
    cluster(nodes, wiring, Routing::Hash)
}

/// Two hosts on two switches, which a third joins. One switch has a name that is no good.
pub fn listed() -> Cluster {
    let nic = |node, nic| CableEnd::Nic { node, nic };
    let cable = |from, to| Cable { from, to, uplinks: uplinks(1) };
    let hosts = (0..2).flat_map(|node| (0..4).map(move |index| (node, index)));
    let mut links: Vec<Cable> = hosts.map(|(node, index)| cable(nic(node, index), CableEnd::Switch(node))).collect();
    links.extend([0, 1].map(|leaf| cable(CableEnd::Switch(2), CableEnd::Switch(leaf))));
    let switches = vec!["left".into(), "<script>\x1b[31m".into(), "top".into()];
    cluster(2, Wiring::Explicit { switches, links }, Routing::Hash)
}

/// A scenario with a simulation of 200 seeds.
pub fn scenario(name: &str, cluster: Cluster) -> Scenario {
    let options = Options { seeds: 200.try_into().unwrap(), ..Options::default() };
    let simulation = simulate(&cluster, &Traffic::of_cluster(&cluster).unwrap(), &options).unwrap();
    Scenario { name: name.into(), cluster, simulation }
}

/// The first field report as it was wired, beside two changes.
pub fn field_comparison() -> Comparison {
    let adaptive = Cluster { fabric: Fabric { routing: Routing::Adaptive, ..field_report().fabric }, ..field_report() };
    Comparison {
        base: scenario("as described", field_report()),
        alternatives: vec![scenario("rail-optimised", rail_optimised(2, 0)), scenario("adaptive-routing", adaptive)],
    }
}

/// Rows like those of a prediction: three choices and two bottlenecks.
pub fn prediction(collective: Collective, ranks: usize) -> Prediction {
    let row = |power: u32| {
        let size = Bytes(8 << power);
        let time = Micros(20.0 + size.0 as f64 / 100e3);
        let algbw = GBps::from_transfer(size, time);
        let (algorithm, protocol) = match power {
            ..13 => (Algorithm::Tree, Protocol::Ll),
            13..20 => (Algorithm::NvlsTree, Protocol::Simple),
            _ => (Algorithm::Ring, Protocol::Simple),
        };
        let bottleneck = if power < 18 { "latency of 30 hops" } else { "4 NICs of 50 GB/s" };
        PredictionRow {
            size,
            time,
            algbw,
            busbw: collective.busbw(algbw, ranks as u32),
            band: (GBps(algbw.0), GBps(2.0 * algbw.0)),
            over_seeds: (power > 20).then_some((GBps(algbw.0), GBps(1.9 * algbw.0))),
            limit: GBps(200.0),
            algorithm,
            protocol,
            bottleneck: bottleneck.into(),
        }
    };
    Prediction {
        collective,
        ranks,
        assumptions: vec!["2 Intel processors per host.".into(), "NICs carry 96.5 % of their rate.".into()],
        calibrated: None,
        fabric: Some(FabricEffect {
            busbw: Distribution {
                min: GBps(48.25),
                p5: GBps(64.33),
                p50: GBps(96.5),
                p95: GBps(96.5),
                max: GBps(192.0),
            },
            unshared: GBps(192.0),
            seeds: 1000,
            as_the_worst: 0.029,
        }),
        busiest: None,
        channels: vec![Channels {
            algorithm: Algorithm::Ring,
            found: 8,
            intra: GBps(48.0),
            inter: GBps(48.0),
            used: Some(16),
        }],
        rings: vec![Crossing { leaves_by: 1, enters_by: 1 }, Crossing { leaves_by: 0, enters_by: 0 }],
        rows: (0..31).step_by(3).map(row).collect(),
    }
}

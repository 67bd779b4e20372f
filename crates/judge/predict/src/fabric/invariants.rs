//! What holds of every simulation: rates, limits, and what must not matter.

use super::routes::flow_routes;
use crate::cluster::{Cable, CableEnd, Cluster, Cores, Routing, Uplinks, Wiring};
use crate::clusters::{self, cluster, field_report_log, listed, parallel, three_levels};
use crate::{FlowEntropy, Options, Port, Simulation, Traffic, WhatIf, simulate};
use busbw_model::GBps;
use proptest::prelude::*;
use std::collections::HashMap;
use std::num::NonZero;

fn options(seeds: u32) -> Options {
    Options { seeds: NonZero::new(seeds).unwrap(), ..Options::default() }
}

fn run(cluster: &Cluster, traffic: &Traffic) -> Simulation {
    simulate(cluster, traffic, &options(20)).unwrap()
}

fn any_uplinks() -> impl Strategy<Value = Uplinks> {
    (1..5usize, 5.0..120.0f64).prop_map(|(count, rate)| Uplinks { count, rate: GBps(rate) })
}

fn any_leaf_spine() -> impl Strategy<Value = Wiring> {
    let cores =
        prop::option::of((1..4usize, 1..5usize, any_uplinks()).prop_map(|(leaves_per_pod, switches, uplinks)| Cores {
            leaves_per_pod,
            switches,
            uplinks,
        }));
    (1..4usize, 1..6usize, any_uplinks(), cores).prop_map(|(nodes_per_leaf, spines, uplinks, cores)| {
        Wiring::LeafSpine { nodes_per_leaf, spines, uplinks, cores }
    })
}

fn any_wiring() -> impl Strategy<Value = Wiring> {
    prop_oneof![
        Just(Wiring::SingleSwitch),
        any_uplinks().prop_map(|between| Wiring::HostToSwitch { between }),
        (1..5usize, 1..5usize, any_uplinks()).prop_map(|(nodes_per_group, spines, uplinks)| Wiring::RailOptimised {
            nodes_per_group,
            spines,
            uplinks
        }),
        any_leaf_spine(),
    ]
}

fn any_routing() -> impl Strategy<Value = Routing> {
    prop_oneof![Just(Routing::Hash), Just(Routing::Adaptive)]
}

fn any_cluster() -> impl Strategy<Value = Cluster> {
    (1..9usize, 1..9usize, any_wiring(), any_routing())
        .prop_map(|(nodes, nics, wiring, routing)| cluster(nodes, nics, wiring, routing))
}

fn both_patterns(cluster: &Cluster) -> [Traffic; 2] {
    [Traffic::of_cluster(cluster).unwrap(), Traffic::trees_of_cluster(cluster).unwrap()]
}

/// The same fabric with its nodes numbered otherwise, its switches and cables listed in another order.
fn renumbered(cluster: &Cluster, places: &[u32], turn: usize) -> Cluster {
    let Wiring::Explicit { switches, links } = &cluster.fabric.wiring else { panic!("not listed") };
    let turned = |index: usize| (index + turn) % switches.len();
    let end = |end: &CableEnd| match *end {
        CableEnd::Switch(index) => CableEnd::Switch(turned(index)),
        CableEnd::Nic { node, nic } => CableEnd::Nic { node: places[node] as usize, nic },
    };
    let mut names = switches.clone();
    names.rotate_right(turn % switches.len());
    let mut links: Vec<Cable> = links
        .iter()
        .map(|cable| Cable { from: end(&cable.to), to: end(&cable.from), uplinks: cable.uplinks })
        .collect();
    let count = links.len();
    links.rotate_left(turn % count);
    let mut after = cluster.clone();
    after.fabric.wiring = Wiring::Explicit { switches: names, links };
    after
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn busbw_never_exceeds_what_nodes_can_do(cluster in any_cluster()) {
        let nics = cluster.nics.as_ref().unwrap();
        for traffic in both_patterns(&cluster) {
            let simulation = run(&cluster, &traffic);
            prop_assert!(simulation.busbw.max.0 <= simulation.unshared.0);
            // Of two nodes a tree carries each byte over a NIC once, of more up to twice as a ring does.
            let line = nics.rate.0 * nics.count as f64 * if traffic.flows.len() <= 2 * nics.count { 2.0 } else { 4.0 / 3.0 };
            prop_assert!(cluster.nodes == 1 || simulation.unshared.0 <= line);
            prop_assert!(simulation.unshared.0 <= 450.0 * 8.0 / 7.0);
            prop_assert!(simulation.busbw.min.0 > 0.0);
        }
    }

    #[test]
    fn links_carry_no_more_than_their_rate(cluster in any_cluster(), seed in 0..1000u32, by_channel: bool) {
        let entropy = if by_channel { FlowEntropy::QueuePair } else { FlowEntropy::NicPair };
        for traffic in both_patterns(&cluster) {
            let routes = flow_routes(&cluster, &traffic, entropy, seed).unwrap();
            let mut carried: HashMap<&str, (f64, f64)> = HashMap::new();
            let mut ports: HashMap<(Port, bool), f64> = HashMap::new();
            for route in &routes {
                for link in &route.links {
                    let (sum, rate) = carried.entry(&link.name).or_default();
                    *sum += route.rate.0 * link.part;
                    *rate = link.rate.0;
                }
                *ports.entry((route.from, true)).or_default() += route.rate.0;
                *ports.entry((route.to, false)).or_default() += route.rate.0;
            }
            for (name, (sum, rate)) in carried {
                prop_assert!(sum <= rate * (1.0 + 1e-9), "{name}: {sum} of {rate}");
            }
            prop_assert!(ports.values().all(|sum| *sum <= 50.0 * (1.0 + 1e-9)), "{ports:?}");
        }
    }

    /// The quick way of many seeds finds what filling all links finds.
    #[test]
    fn busbw_is_that_of_the_slowest_flow(cluster in any_cluster(), seed in 0..20u32) {
        for traffic in both_patterns(&cluster).iter().filter(|traffic| !traffic.flows.is_empty()) {
            let routes = flow_routes(&cluster, traffic, FlowEntropy::NicPair, seed).unwrap();
            let slowest = routes.iter().map(|route| route.rate.0 / route.share).fold(f64::INFINITY, f64::min);
            let busbw = run(&cluster, traffic).per_seed[seed as usize].0;
            prop_assert!((busbw / slowest - 1.0).abs() < 1e-9, "{busbw} and {slowest}");
        }
    }

    #[test]
    fn more_links_never_hurt_where_packets_are_spread(cluster in any_cluster(), more in 1..4usize) {
        let mut before = cluster;
        before.fabric.routing = Routing::Adaptive;
        let changes: Vec<Cluster> = (1..12)
            .flat_map(|count| [WhatIf::Links(count + more), WhatIf::Spines(count + more)])
            .filter(|change| is_more(change, &before.fabric.wiring))
            .filter_map(|change| change.apply(&before).ok())
            .collect();
        for traffic in both_patterns(&before) {
            let least = run(&before, &traffic).busbw.min.0;
            for after in &changes {
                prop_assert!(run(after, &traffic).busbw.min.0 >= least * (1.0 - 1e-9));
            }
        }
    }

    #[test]
    fn numbers_and_order_of_nodes_switches_and_cables_do_not_matter(
        (nodes, places) in (2..8usize).prop_flat_map(|nodes| {
            (Just(nodes), Just((0..nodes as u32).collect::<Vec<_>>()).prop_shuffle())
        }),
        wiring in any_leaf_spine(),
        routing in any_routing(),
        turn in 0..50usize,
    ) {
        let before = listed(&cluster(nodes, 2, wiring, routing));
        let after = renumbered(&before, &places, turn);
        for traffic in both_patterns(&before) {
            let (before, after) = (run(&before, &traffic), run(&after, &traffic.placed(&places)));
            for (a, b) in before.per_seed.iter().zip(&after.per_seed) {
                prop_assert!((a.0 / b.0 - 1.0).abs() < 1e-9, "{:?} and {:?}", before.per_seed, after.per_seed);
            }
        }
    }

    #[test]
    fn listed_cables_are_as_good_as_the_rule(nodes in 1..9usize, nics in 1..5usize, wiring in any_leaf_spine(), routing in any_routing()) {
        let ruled = cluster(nodes, nics, wiring, routing);
        for traffic in both_patterns(&ruled) {
            let (a, b) = (run(&ruled, &traffic), run(&listed(&ruled), &traffic));
            for (a, b) in a.per_seed.iter().zip(&b.per_seed) {
                prop_assert!((a.0 / b.0 - 1.0).abs() < 1e-9);
            }
        }
    }
}

/// Whether the wiring has fewer of what the change sets.
fn is_more(change: &WhatIf, wiring: &Wiring) -> bool {
    let (links, in_tiers) = match wiring {
        Wiring::HostToSwitch { between } => (between.count, 0),
        Wiring::RailOptimised { spines, uplinks, .. } | Wiring::LeafSpine { spines, uplinks, .. } => {
            (uplinks.count, *spines)
        }
        _ => (0, 0),
    };
    match change {
        WhatIf::Links(count) => *count > links,
        WhatIf::Spines(count) => *count > in_tiers,
        _ => false,
    }
}

#[test]
fn hosts_found_in_another_order_change_nothing() {
    let before = field_report_log().communicators.remove(0);
    let mut after = before.clone();
    for rank in after.ranks.values_mut() {
        rank.node = rank.node.map(|node| 1 - node);
    }
    let cluster = clusters::field_report();
    assert_eq!(Traffic::of_communicator(&before, &cluster), Traffic::of_communicator(&after, &cluster));
}

#[test]
fn more_links_help_on_average_where_flows_are_hashed() {
    let mean = |wiring: Wiring| {
        let cluster = cluster(8, 8, wiring, Routing::Hash);
        let traffic = Traffic::of_cluster(&cluster).unwrap();
        let per_seed = simulate(&cluster, &traffic, &options(4000)).unwrap().per_seed;
        per_seed.iter().map(|busbw| busbw.0).sum::<f64>() / per_seed.len() as f64
    };
    let more_spines = |spines| Wiring::LeafSpine { nodes_per_leaf: 2, spines, uplinks: parallel(1), cores: None };
    let more_links = |count| Wiring::LeafSpine { nodes_per_leaf: 2, spines: 4, uplinks: parallel(count), cores: None };
    let more_between = |count| Wiring::HostToSwitch { between: parallel(count) };
    let cases: [(&str, &dyn Fn(usize) -> Wiring); 3] =
        [("spines", &more_spines), ("links", &more_links), ("between", &more_between)];
    for (name, wiring) in cases {
        let means: Vec<f64> = [1, 2, 4, 8, 16].map(|count| mean(wiring(count))).to_vec();
        assert!(means.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {means:?}");
    }
}

#[test]
fn threads_do_not_matter() {
    let cluster = three_levels(32, Routing::Hash);
    let traffic = Traffic::of_cluster(&cluster).unwrap();
    let with =
        |threads| simulate(&cluster, &traffic, &Options { threads: NonZero::new(threads), ..options(12_000) }).unwrap();
    let alone = with(1);
    assert!([2, 3, 7].into_iter().all(|threads| with(threads) == alone));
}

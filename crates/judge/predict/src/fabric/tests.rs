//! Fabrics of all kinds: which links flows take, what they are called, and what is refused.

use super::routes::flow_routes;
use crate::cluster::{Cable, CableEnd, Cluster, Cores, NetTransport, Routing, Uplinks, Wiring};
use crate::clusters::{cluster, listed, parallel, three_levels};
use crate::{FlowEntropy, Options, Traffic, WhatIf, simulate};
use busbw_model::GBps;

/// The ways of the flows, as names of links.
fn ways(cluster: &Cluster) -> Vec<Vec<String>> {
    let traffic = Traffic::of_cluster(cluster).unwrap();
    let routes = flow_routes(cluster, &traffic, FlowEntropy::NicPair, 1).unwrap();
    routes.into_iter().map(|route| route.links.into_iter().map(|link| link.name).collect()).collect()
}

fn leaf_spine(nodes_per_leaf: usize, spines: usize, cores: Option<Cores>) -> Wiring {
    Wiring::LeafSpine { nodes_per_leaf, spines, uplinks: parallel(1), cores }
}

#[test]
fn links_are_named_by_their_ends() {
    let one_nic = |nodes, wiring| cluster(nodes, 1, wiring, Routing::Hash);
    let cores = Some(Cores { leaves_per_pod: 1, switches: 1, uplinks: parallel(1) });
    let rails = Wiring::RailOptimised { nodes_per_group: 1, spines: 1, uplinks: parallel(1) };
    let between = Wiring::HostToSwitch { between: parallel(1) };
    let cases: [(Cluster, &[&str]); 6] = [
        (one_nic(2, Wiring::SingleSwitch), &[]),
        (one_nic(2, between), &["switch of node 0 → switch of node 1"]),
        (one_nic(2, leaf_spine(1, 1, None)), &["leaf 0 → spine 0", "spine 0 → leaf 1"]),
        (
            one_nic(2, leaf_spine(1, 1, cores)),
            &[
                "leaf 0 → spine 0 of pod 0",
                "spine 0 of pod 0 → core 0",
                "core 0 → spine 0 of pod 1",
                "spine 0 of pod 1 → leaf 1",
            ],
        ),
        (one_nic(2, rails), &["rail switch 0 of group 0 → spine 0", "spine 0 → rail switch 0 of group 1"]),
        (
            listed(&one_nic(2, leaf_spine(1, 1, None))),
            &[
                "NIC 0 of node 0 → leaf 000",
                "leaf 000 → spine 000.000",
                "spine 000.000 → leaf 001",
                "leaf 001 → NIC 0 of node 1",
            ],
        ),
    ];
    for (cluster, expected) in cases {
        assert_eq!(ways(&cluster)[0], expected);
    }
}

#[test]
fn every_name_of_a_fabric_is_its_own() {
    let cluster = three_levels(16, Routing::Adaptive);
    let traffic =
        Traffic::of_cluster(&cluster).unwrap().placed(&[0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]);
    let routes = flow_routes(&cluster, &traffic, FlowEntropy::NicPair, 0).unwrap();
    let names: std::collections::HashSet<String> =
        routes.into_iter().flat_map(|route| route.links).map(|link| link.name).collect();
    // Up and down: 8 leaves with 4 spines of 2 links, 4 pods of 4 spines with 4 cores.
    assert_eq!(names.len(), 2 * (8 * 4 * 2 + 4 * 4 * 4));
}

#[test]
fn neighbours_share_a_leaf_or_a_pod() {
    let hops: Vec<usize> = ways(&three_levels(8, Routing::Hash)).chunks(8).map(|of_node| of_node[0].len()).collect();
    assert_eq!(hops, [0, 2, 0, 4, 0, 2, 0, 4]);
}

/// Two hosts of one NIC with cables between listed switches; a cable with `None` goes to the NIC of that host.
fn explicit(switches: &[&str], cables: &[(Option<usize>, Option<usize>, Uplinks)]) -> Cluster {
    let mut hosts = 0..2usize;
    let mut end = |end: Option<usize>| match end {
        Some(switch) => CableEnd::Switch(switch),
        None => CableEnd::Nic { node: hosts.next().unwrap_or(0), nic: 0 },
    };
    let links = cables.iter().map(|&(a, b, uplinks)| Cable { from: end(a), to: end(b), uplinks }).collect();
    let switches = switches.iter().map(|name| name.to_string()).collect();
    cluster(2, 1, Wiring::Explicit { switches, links }, Routing::Hash)
}

#[test]
fn listed_fabrics_go_the_shortest_way() {
    let back_to_back = explicit(&[], &[(None, None, parallel(1))]);
    assert_eq!(ways(&back_to_back), [["NIC 0 of node 0 → NIC 0 of node 1"], ["NIC 0 of node 1 → NIC 0 of node 0"]]);
    // a – b directly, and over c.
    let detour = [(None, Some(0), parallel(1)), (Some(1), None, parallel(1)), (Some(0), Some(1), parallel(1))];
    let round = [(Some(0), Some(2), parallel(1)), (Some(2), Some(1), parallel(1))];
    let both = explicit(&["a", "b", "c"], &[&detour[..], &round[..]].concat());
    assert_eq!(ways(&both)[0], ["NIC 0 of node 0 → a", "a → b", "b → NIC 0 of node 1"]);
    let only_round = explicit(&["a", "b", "c"], &[&detour[..2], &round[..]].concat());
    assert_eq!(ways(&only_round)[0], ["NIC 0 of node 0 → a", "a → c", "c → b", "b → NIC 0 of node 1"]);
    // A NIC with a port on each of two switches uses both.
    let dual = explicit(
        &["a", "b"],
        &[
            (None, Some(0), parallel(1)),
            (None, Some(0), parallel(1)),
            (None, Some(1), parallel(1)),
            (None, Some(1), parallel(1)),
        ],
    );
    assert_eq!(ways(&dual)[0].len(), 2);
}

#[test]
fn packets_are_spread_by_the_rates_of_links() {
    let slow = Uplinks { count: 1, rate: GBps(10.0) };
    let cables = [
        (None, Some(0), parallel(1)),
        (Some(1), None, parallel(1)),
        (Some(0), Some(1), slow),
        (Some(0), Some(1), parallel(1)),
    ];
    let mut fabric = explicit(&["a", "b"], &cables);
    fabric.fabric.routing = Routing::Adaptive;
    let traffic = Traffic::of_cluster(&fabric).unwrap();
    let simulation = simulate(&fabric, &traffic, &Options::default()).unwrap();
    assert!((simulation.busbw.min.0 - 48.25).abs() < 1e-9, "{:?}", simulation.busbw);
}

#[test]
fn what_cannot_be_simulated_says_why() {
    let fat = |cluster: Cluster, change: &dyn Fn(&mut Cluster)| {
        let mut cluster = cluster;
        change(&mut cluster);
        cluster
    };
    let two = |wiring| cluster(2, 2, wiring, Routing::Hash);
    let rails = |nodes_per_group| Wiring::RailOptimised { nodes_per_group, spines: 0, uplinks: parallel(1) };
    let no_rate = Uplinks { count: 1, rate: GBps(0.0) };
    let cores = |leaves_per_pod, switches, count| Some(Cores { leaves_per_pod, switches, uplinks: parallel(count) });
    let cases = [
        (two(leaf_spine(0, 1, None)), "nodes per leaf is zero"),
        (two(leaf_spine(1, 0, None)), "add spines"),
        (two(leaf_spine(1, 1, cores(0, 1, 1))), "leaves per pod is zero"),
        (two(leaf_spine(1, 1, cores(1, 0, 1))), "add spines"),
        (two(leaf_spine(1, 1, cores(1, 1, 0))), "parallel links between switches is zero"),
        (two(leaf_spine(1, usize::MAX, None)), "16 million links"),
        (two(leaf_spine(1, 1 << 12, cores(1, 1 << 12, 1))), "16 million links"),
        (two(rails(0)), "nodes per group is zero"),
        (two(rails(1)), "no links lead from NIC 1 of node 0 to NIC 1 of node 1"),
        (two(Wiring::HostToSwitch { between: no_rate }), "rate of links between switches"),
        (two(Wiring::HostToSwitch { between: Uplinks { count: 0, ..parallel(1) } }), "is zero"),
        (two(Wiring::Explicit { switches: Vec::new(), links: Vec::new() }), "no links lead from"),
        (explicit(&["a"], &[(None, Some(3), parallel(1))]), "switch number 3"),
        (explicit(&["a"], &[(None, Some(0), no_rate)]), "rate of a cable"),
        (explicit(&["a"], &[(None, Some(0), Uplinks { count: 0, ..parallel(1) })]), "parallel links of a cable"),
        (fat(two(Wiring::SingleSwitch), &|c| c.nics.as_mut().unwrap().rate = GBps(f64::NAN)), "rate of NICs"),
        (fat(two(Wiring::SingleSwitch), &|c| c.nics.as_mut().unwrap().pcie = GBps(-1.0)), "PCIe links of NICs"),
    ];
    for (cluster, wanted) in cases {
        let traffic = Traffic::of_cluster(&cluster).unwrap();
        let error = simulate(&cluster, &traffic, &Options::default()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}, expected {wanted}");
        assert_eq!(flow_routes(&cluster, &traffic, FlowEntropy::NicPair, 0).unwrap_err().to_string(), error);
    }
}

#[test]
fn rails_that_do_not_meet_carry_rings_that_stay_on_them() {
    let rails = Wiring::RailOptimised { nodes_per_group: 3, spines: 0, uplinks: parallel(1) };
    let rails = cluster(3, 2, rails, Routing::Hash);
    // With an odd number of nodes alternating rings cross rails between the last and the first.
    let crossing = Traffic::of_cluster(&rails).unwrap();
    let error = simulate(&rails, &crossing, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("NCCL_CROSS_NIC=0"), "{error}");
    assert!(simulate(&rails, &crossing.on_rails(), &Options::default()).is_ok());
}

#[test]
fn a_slow_slot_or_flow_holds_its_nic_back() {
    let mut cluster = cluster(2, 4, Wiring::SingleSwitch, Routing::Hash);
    let busbw = |cluster: &Cluster| {
        let traffic = Traffic::of_cluster(cluster).unwrap();
        simulate(cluster, &traffic, &Options::default()).unwrap().busbw.p50.0
    };
    assert!((busbw(&cluster) - 4.0 * 48.25).abs() < 1e-9);
    cluster.nics.as_mut().unwrap().pcie = GBps(12.0);
    assert!((busbw(&cluster) - 4.0 * 12.0).abs() < 1e-9);
    let nics = cluster.nics.as_mut().unwrap();
    (nics.pcie, nics.transport, nics.flow_limit) = (GBps(50.0), NetTransport::Tcp, Some(GBps(1.0)));
    // Four channels per NIC, a socket each.
    assert!((busbw(&cluster) - 16.0).abs() < 1e-9);
    cluster.environment.insert("NCCL_NSOCKS_PERTHREAD".to_string(), "4".to_string());
    assert!((busbw(&cluster) - 64.0).abs() < 1e-9);
}

#[test]
fn queue_pairs_and_channels_are_flows() {
    let fabric = cluster(2, 4, Wiring::HostToSwitch { between: parallel(4) }, Routing::Hash);
    let flows = |cluster: &Cluster, entropy| {
        let traffic = Traffic::of_cluster(cluster).unwrap();
        simulate(cluster, &traffic, &Options { entropy, ..Options::default() }).unwrap().flows
    };
    let with_qps = WhatIf::QueuePairs(4).apply(&fabric).unwrap();
    assert_eq!((flows(&fabric, FlowEntropy::NicPair), flows(&fabric, FlowEntropy::QueuePair)), (8, 32));
    assert_eq!((flows(&with_qps, FlowEntropy::NicPair), flows(&with_qps, FlowEntropy::QueuePair)), (32, 128));
}

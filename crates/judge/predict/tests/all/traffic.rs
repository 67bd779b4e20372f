//! The flows of clusters and logs.
use crate::clusters;

use busbw_model::{
    Channel, ChannelSet, Communicator, Edge, EdgeEnd, EdgeUse, GBps, Load, Place, Rank, Ring, Transport, TransportKind,
};
use busbw_predict::cluster::{Cluster, GpuLinks, Routing, Wiring};
use busbw_predict::{Options, SimulationError, Traffic, WhatIf, simulate};
use clusters::cluster;
use std::sync::Arc;

fn on_one_switch(nodes: usize, nics: usize) -> Cluster {
    cluster(nodes, nics, Wiring::SingleSwitch, Routing::Hash)
}

fn with(cluster: Cluster, name: &str, value: &str) -> Cluster {
    let mut cluster = cluster;
    cluster.environment.insert(name.to_string(), value.to_string());
    cluster
}

/// Flows as `node.nic>node.nic`.
fn arrows(traffic: &Traffic) -> Vec<String> {
    let arrow = |f: &busbw_predict::Flow| format!("{}.{}>{}.{}", f.from.node, f.from.nic, f.to.node, f.to.nic);
    traffic.flows.iter().map(arrow).collect()
}

#[test]
fn rings_pass_nodes_as_nccl_lets_them() {
    let cases: [(&str, Cluster, &[&str]); 5] = [
        ("rails", on_one_switch(2, 2), &["0.1>1.1", "0.0>1.0", "1.0>0.0", "1.1>0.1"]),
        ("one NIC", with(on_one_switch(2, 2), "NCCL_CROSS_NIC", "0"), &["0.0>1.0", "0.1>1.1", "1.0>0.0", "1.1>0.1"]),
        ("crossing", with(on_one_switch(2, 2), "NCCL_CROSS_NIC", "1"), &["0.1>1.0", "0.0>1.1", "1.1>0.0", "1.0>0.1"]),
        // With an odd number of nodes the last cannot alternate with the first.
        ("odd", on_one_switch(3, 2), &["0.1>1.1", "0.0>1.0", "1.0>2.0", "1.1>2.1", "2.1>0.0", "2.0>0.1"]),
        ("odd NICs", on_one_switch(2, 1), &["0.0>1.0", "1.0>0.0"]),
    ];
    for (name, cluster, expected) in cases {
        assert_eq!(arrows(&Traffic::of_cluster(&cluster).unwrap()), expected, "{name}");
    }
}

#[test]
fn a_ring_on_one_nic_takes_a_hop_more_over_nvlink() {
    let cases = [
        ("alternating", on_one_switch(2, 8), 7.0 / 8.0),
        ("one NIC per GPU, handed on", with(on_one_switch(2, 8), "NCCL_CROSS_NIC", "0"), 1.0),
        ("two GPUs per NIC", with(on_one_switch(2, 4), "NCCL_CROSS_NIC", "0"), 7.0 / 8.0),
        ("without PXN", with(with(on_one_switch(2, 8), "NCCL_CROSS_NIC", "0"), "NCCL_PXN_DISABLE", "1"), 7.0 / 8.0),
        ("one node", on_one_switch(1, 8), 1.0),
    ];
    for (name, cluster, load) in cases {
        assert_eq!(Traffic::of_cluster(&cluster).unwrap().gpu_load, load, "{name}");
    }
}

fn load(name: &str, ranks: usize) -> Arc<Load> {
    Arc::new(Load::shape(name, ranks).unwrap().unwrap())
}

/// A rank of two nodes with two GPUs each sends a quarter to each: half crosses, by the NIC on the receiver's rail.
#[test]
fn an_exchange_leaves_by_the_rail_of_the_receiver() {
    let mut cluster = on_one_switch(2, 2);
    cluster.gpus_per_node = 2;
    cluster.links = GpuLinks::NvSwitch { per_gpu: GBps(450.0), domain: 2, nvls: true };
    let even = Traffic::of_load(&load("W0", 4), &cluster).unwrap();
    assert_eq!(arrows(&even), ["0.0>1.0", "0.1>1.1", "1.0>0.0", "1.1>0.1"]);
    // Two ranks send a quarter each, of a busbw of three quarters.
    assert!(even.flows.iter().all(|flow| (flow.share - 2.0 / 3.0).abs() < 1e-9), "{:?}", even.flows);
    let hot = Traffic::of_load(&load("W1", 4), &cluster).unwrap();
    let into_hot = hot.flows.iter().find(|flow| (flow.to.node, flow.to.nic) == (0, 0)).unwrap();
    assert!((into_hot.share / (2.0 / 3.0) - 3.25).abs() < 1e-9, "{:?}", hot.flows);
    let other = Traffic::of_load(&load("W1", 8), &cluster).unwrap_err();
    assert_eq!(other, SimulationError::LoadOfOthers { load: 8, ranks: 4 });
}

/// Where all senders meet at one NIC, that decides, whatever the hash: it takes as many times as long as its share says.
#[test]
fn senders_that_meet_at_a_receiver_are_named() {
    let cluster = on_one_switch(4, 8);
    let ranks = cluster.ranks();
    let run = |name: &str| {
        let traffic = Traffic::of_load(&load(name, ranks), &cluster).unwrap();
        simulate(&cluster, &traffic, &Options::default()).unwrap()
    };
    let (even, hot) = (run("W0"), run("W2"));
    assert!((even.busbw.p50.0 / hot.busbw.p50.0 - 3.25).abs() < 0.01, "{:?} {:?}", even.busbw, hot.busbw);
    assert!(hot.links[0].name.starts_with("NIC 0 of node 0, receiving"), "{:?}", hot.links);
    assert_eq!(hot.busiest.unwrap().rank.at, 0);
    // A shape holds for other numbers of ranks too.
    let change: WhatIf = "nodes=8".parse().unwrap();
    let traffic = Traffic::of_load(&load("W2", ranks), &cluster).unwrap();
    let larger = change.apply(&cluster).unwrap();
    assert_eq!(change.traffic(&traffic, &larger).unwrap().load.map(|load| load.ranks()), Some(larger.ranks()));
}

#[test]
fn nodes_joined_by_nvlink_are_one() {
    let mut racks = on_one_switch(8, 1);
    racks.gpus_per_node = 4;
    racks.links = GpuLinks::NvSwitch { per_gpu: GBps(900.0), domain: 16, nvls: true };
    let racks = with(racks, "NCCL_CROSS_NIC", "0");
    let expected = ["0.0>4.0", "1.0>5.0", "2.0>6.0", "3.0>7.0", "4.0>0.0", "5.0>1.0", "6.0>2.0", "7.0>3.0"];
    assert_eq!(arrows(&Traffic::of_cluster(&racks).unwrap()), expected);
}

#[test]
fn every_nic_sends_its_part() {
    for (nodes, nics) in [(2, 1), (2, 8), (3, 4), (9, 2), (16, 8)] {
        let cluster = on_one_switch(nodes, nics);
        let rings = Traffic::of_cluster(&cluster).unwrap();
        let trees = Traffic::trees_of_cluster(&cluster).unwrap();
        let sent = |traffic: &Traffic, node, nic| {
            let own = traffic.flows.iter().filter(move |f| (f.from.node, f.from.nic) == (node, nic));
            own.map(|f| f.share).sum::<f64>()
        };
        let ranks = cluster.ranks() as f64;
        for (node, nic) in (0..nodes as u32).flat_map(|node| (0..nics as u32).map(move |nic| (node, nic))) {
            assert!((sent(&rings, node, nic) - 1.0 / nics as f64).abs() < 1e-12);
        }
        // Up and down each edge of both trees: 2 x 2 (nodes - 1) times half a message.
        let total: f64 = trees.flows.iter().map(|f| f.share).sum();
        let message = ranks / (2.0 * (ranks - 1.0));
        assert!((total - 2.0 * (nodes as f64 - 1.0) * message).abs() < 1e-9, "{nodes} nodes: {total}");
    }
}

#[test]
fn trees_of_two_nodes_are_nearly_twice_as_fast_as_rings() {
    // A tree of two nodes carries each byte over a NIC once, a ring 2(n-1)/n times.
    let cluster = on_one_switch(2, 2);
    let busbw = |traffic| simulate(&cluster, &traffic, &Options::default()).unwrap().busbw.p50.0;
    let (ring, tree) =
        (busbw(Traffic::of_cluster(&cluster).unwrap()), busbw(Traffic::trees_of_cluster(&cluster).unwrap()));
    assert!((ring - 2.0 * 48.25).abs() < 1e-9);
    assert!((tree / ring - 2.0 * 15.0 / 16.0).abs() < 1e-9);
}

/// Four ranks, two nodes; the ring 0 1 2 3 on two channels.
fn small_log() -> Communicator {
    let mut comm = Communicator { nranks: Some(4), ..Communicator::default() };
    for rank in 0..4 {
        let rank_of = Rank { node: Some(rank / 2), device: Some(rank % 2), ..Rank::default() };
        comm.ranks.insert(rank, rank_of);
    }
    let ring = Ring { ranks: vec![0, 1, 2, 3], complete: true, place: Place::default() };
    for channel in 0..2 {
        comm.channels.insert(channel, Channel { ring: Some(ring.clone()) });
    }
    comm
}

fn small_cluster() -> Cluster {
    WhatIf::GpusPerNode(2).apply(&on_one_switch(2, 2)).unwrap()
}

#[test]
fn the_log_names_nics_or_they_are_divided() {
    let mut comm = small_log();
    let divided = Traffic::of_communicator(&comm, &small_cluster()).unwrap();
    assert_eq!(arrows(&divided), ["0.1>1.0", "1.1>0.0"]);
    assert_eq!((divided.flows[0].connections, divided.flows[0].share, divided.gpu_load), (2, 1.0, 1.0));
    assert!(divided.assumptions.iter().any(|text| text.contains("divided evenly")), "{:?}", divided.assumptions);
    let net = |nic| Transport {
        kind: TransportKind::Net("IB".to_string()),
        via: format!("NET/IB/{nic}/GDRDMA"),
        nic: Some(nic),
        pxn: false,
        gdr: true,
        first: Place::default(),
    };
    comm.transports = vec![net(0), net(1)];
    for (from, to) in [(1, 2), (3, 0)] {
        for (channel, transport) in [(0, 0), (1, 1)] {
            for end in [EdgeEnd::Send, EdgeEnd::Receive] {
                let channels = ChannelSet::of(channel);
                comm.edges.push(Edge { from, to, transport, end, use_: EdgeUse::Collective, channels });
            }
        }
    }
    let named = Traffic::of_communicator(&comm, &small_cluster()).unwrap();
    assert_eq!(arrows(&named), ["0.0>1.0", "0.1>1.1", "1.0>0.0", "1.1>0.1"]);
    assert!(!named.assumptions.iter().any(|text| text.contains("divided evenly")), "{:?}", named.assumptions);
}

#[test]
fn a_run_that_does_not_fit_the_cluster_is_refused() {
    let comm = small_log();
    let mut without = small_cluster();
    without.nics = None;
    assert_eq!(Traffic::of_communicator(&comm, &without), Err(SimulationError::NoNics));
    assert_eq!(Traffic::of_cluster(&without), Err(SimulationError::NoNics));
    let mut one_node = small_cluster();
    one_node.nodes = 1;
    let traffic = Traffic::of_communicator(&comm, &one_node).unwrap();
    let error = simulate(&one_node, &traffic, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("NIC 0 of node 1") && error.contains("1 nodes of 2 NICs"), "{error}");
    let none = on_one_switch(0, 8);
    assert_eq!(Traffic::of_cluster(&none), Err(SimulationError::Zero { of: "nodes" }));
    let huge = on_one_switch(1 << 40, 8);
    assert_eq!(Traffic::of_cluster(&huge), Err(SimulationError::TooManyFlows));
}

#[test]
fn one_node_needs_no_network() {
    let mut alone = on_one_switch(1, 8);
    alone.nics = None;
    for traffic in [Traffic::of_cluster(&alone).unwrap(), Traffic::trees_of_cluster(&alone).unwrap()] {
        let simulation = simulate(&alone, &traffic, &Options::default()).unwrap();
        assert!(simulation.busbw.min.0 > 300.0 && simulation.busbw.max.0 <= 450.0, "{simulation:?}");
        assert_eq!((simulation.flows, simulation.links.len()), (0, 0));
    }
}

//! Changes: how they are written, what they change, what they gain.
use crate::clusters;

use busbw_model::GBps;
use busbw_predict::cluster::{GpuLinks, NetTransport, Routing, Uplinks, Wiring, parse};
use busbw_predict::{Options, Traffic, WhatIf, WhatIfError, simulate};
use clusters::{cluster, field_report, field_report_log, listed, parallel, three_levels};

#[test]
fn changes_are_read_and_written() {
    let cases = [
        ("rail-optimised", WhatIf::RailOptimised),
        ("adaptive-routing", WhatIf::AdaptiveRouting),
        ("single-switch", WhatIf::SingleSwitch),
        ("nics=8", WhatIf::Nics(8)),
        ("nic-rate=400Gbit/s", WhatIf::NicRate(GBps(50.0))),
        ("qps=4", WhatIf::QueuePairs(4)),
        ("links=8", WhatIf::Links(8)),
        ("spines=16", WhatIf::Spines(16)),
        ("gpus-per-node=4", WhatIf::GpusPerNode(4)),
        ("nodes=32", WhatIf::Nodes(32)),
    ];
    for (text, change) in cases {
        assert_eq!(text.parse(), Ok(change));
        assert_eq!(change.to_string(), text);
    }
    let also = [
        ("Rail-Optimized", WhatIf::RailOptimised),
        (" nics = 8 ", WhatIf::Nics(8)),
        ("gpus_per_node=4", WhatIf::GpusPerNode(4)),
        ("nic-rate=50 GB/s", WhatIf::NicRate(GBps(50.0))),
        ("nic-rate=0.8Tb/s", WhatIf::NicRate(GBps(100.0))),
        ("nic-rate=200G", WhatIf::NicRate(GBps(25.0))),
        ("nic-rate=1.6T", WhatIf::NicRate(GBps(200.0))),
        ("nic-rate=1000 MB/s", WhatIf::NicRate(GBps(1.0))),
    ];
    for (text, change) in also {
        assert_eq!(text.parse(), Ok(change), "{text}");
    }
}

#[test]
fn what_is_no_change_is_answered_with_what_to_write() {
    let cases = [
        ("", "rail-optimised, adaptive-routing"),
        ("faster", "'faster' is no change that busbw knows"),
        ("rail-optimised=8", "rail-optimised, adaptive-routing"),
        ("nics", "write nics=8"),
        ("nics=0", "from 1"),
        ("nodes=many", "write nodes=16"),
        ("nodes=18446744073709551615", "to 16777216"),
        ("links=-1", "write links=8"),
        ("nic-rate=400", "nic-rate=400Gbit/s"),
        ("nic-rate=fast", "nic-rate=400Gbit/s"),
        ("nic-rate=0Gbit/s", "nic-rate=400Gbit/s"),
        ("nic-rate", "nic-rate=400Gbit/s"),
        (&format!("nic-rate={}Gbit/s", "9".repeat(400)), "nic-rate=400Gbit/s"),
    ];
    for (text, wanted) in cases {
        let error = text.parse::<WhatIf>().unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn what_a_fabric_has_not_cannot_be_changed() {
    let single = cluster(4, 8, Wiring::SingleSwitch, Routing::Hash);
    let rails = Wiring::RailOptimised { nodes_per_group: 4, spines: 0, uplinks: parallel(1) };
    let rails = cluster(4, 8, rails, Routing::Hash);
    let mut tcp = single.clone();
    tcp.nics.as_mut().unwrap().transport = NetTransport::Tcp;
    let mut alone = single.clone();
    alone.nics = None;
    let cases = [
        ("links=8", &single, "a single switch has no links"),
        ("spines=8", &single, "a single switch has no spines"),
        ("spines=8", &field_report(), "links=N"),
        ("spines=8", &listed(&three_levels(4, Routing::Hash)), "links=N"),
        ("links=8", &rails, "spines=N"),
        ("qps=4", &tcp, "NCCL_SOCKET_NTHREADS"),
        ("nics=4", &alone, "no NICs"),
        ("single-switch", &single, "changes nothing"),
        ("nodes=4", &single, "changes nothing"),
    ];
    for (change, cluster, wanted) in cases {
        let error: WhatIfError = change.parse::<WhatIf>().unwrap().apply(cluster).unwrap_err();
        assert!(error.to_string().contains(wanted), "{change}: {error}");
    }
}

#[test]
fn gains_on_the_first_field_report() {
    let before = field_report();
    let rings = Traffic::of_communicator(&field_report_log().communicators[0], &before).unwrap();
    let median = |change: &str| {
        let change: WhatIf = change.parse().unwrap();
        let after = change.apply(&before).unwrap();
        let traffic = change.traffic(&rings, &after).unwrap();
        simulate(&after, &traffic, &Options::default()).unwrap().busbw.p50.0
    };
    let (link, hashed) = (48.25, simulate(&before, &rings, &Options::default()).unwrap().busbw.p50.0);
    assert!((hashed - 2.0 * link).abs() < 1e-9);
    for change in ["rail-optimised", "adaptive-routing", "single-switch"] {
        assert!((median(change) - 4.0 * link).abs() < 1e-9, "{change}: {}", median(change));
    }
    for change in ["links=32", "qps=8"] {
        assert!(median(change) > hashed, "{change}: {}", median(change));
    }
    // Twice the NICs send twice as much into the same four links.
    assert!(median("nics=8") <= 4.0 * link);
    assert!(median("nic-rate=800Gbit/s") <= hashed + 1e-9);
}

#[test]
fn rails_take_the_switches_that_leaves_were() {
    let after = WhatIf::RailOptimised.apply(&three_levels(64, Routing::Hash)).unwrap();
    let Wiring::RailOptimised { nodes_per_group, spines, .. } = after.fabric.wiring else { panic!("{after:?}") };
    assert_eq!((nodes_per_group, spines), (16, 4));
}

#[test]
fn spines_join_rails_that_did_not_meet() {
    // As a description has it that says nothing of uplinks.
    let none = Uplinks { count: 0, rate: GBps(0.0) };
    let apart = cluster(3, 2, Wiring::RailOptimised { nodes_per_group: 3, spines: 0, uplinks: none }, Routing::Hash);
    let joined = WhatIf::Spines(2).apply(&apart).unwrap();
    // With an odd number of nodes rings change rails between the last and the first.
    let crossing = Traffic::of_cluster(&apart).unwrap();
    assert!(simulate(&apart, &crossing, &Options::default()).is_err());
    let simulation = simulate(&joined, &crossing, &Options::default()).unwrap();
    assert!((simulation.busbw.max.0 - 2.0 * 48.25).abs() < 1e-9, "{:?}", simulation.busbw);
}

#[test]
fn more_nodes_find_room_on_the_switches_there_are() {
    let text = |fabric: &str| {
        let nodes = "[cluster]\nnodes = 4\n[node]\nmachine = \"DGX H100\"\n";
        format!("{nodes}[fabric]\nrouting = \"adaptive\"\n{fabric}")
    };
    let busbw = |fabric: &str| {
        let after = WhatIf::Nodes(32).apply(&parse(&text(fabric)).unwrap()).unwrap();
        simulate(&after, &Traffic::of_cluster(&after).unwrap(), &Options::default()).unwrap().busbw.min.0
    };
    // What PCIe 5.0 carries to each of eight NICs.
    assert!((busbw("wiring = \"rail-optimised\"\n") - 8.0 * 48.0).abs() < 1e-9);
    // A leaf has room for 16 nodes, though four were described: one node of each leaf sends to the next.
    let leaves =
        "wiring = \"leaf-spine\"\nnodes_per_leaf = 16\nspines = 1\nuplinks = { count = 4, rate = \"400 Gbit/s\" }\n";
    assert!((busbw(leaves) - 4.0 * 48.25).abs() < 1e-9);
    let small = leaves.replace("16", "4").replace("count = 4", "count = 2");
    assert!((busbw(&small) - 2.0 * 48.25).abs() < 1e-9);
}

#[test]
fn fewer_gpus_leave_nvlink_in_the_host() {
    let after = WhatIf::GpusPerNode(4).apply(&three_levels(4, Routing::Hash)).unwrap();
    assert!(matches!(after.links, GpuLinks::NvSwitch { domain: 4, .. }));
    assert_eq!((after.domains(), after.ranks()), (4, 16));
}

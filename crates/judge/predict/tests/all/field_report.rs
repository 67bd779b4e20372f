//! The first field report: two hosts of 8 H20, each on a switch of its own, four links between the switches.
use crate::clusters;

use busbw_model::{Bytes, Collective, GBps};
use busbw_predict::cluster::{Routing, Wiring};
use busbw_predict::{FlowEntropy, Options, Simulation, Traffic, predict, simulate};
use clusters::{field_report, field_report_log};
use std::num::NonZero;

/// What a link of 400 Gbit/s carries.
const LINK: f64 = 50.0 * 0.965;

fn options(seeds: u32) -> Options {
    Options { seeds: NonZero::new(seeds).unwrap(), ..Options::default() }
}

fn traffic() -> Traffic {
    Traffic::of_communicator(&field_report_log().communicators[0], &field_report()).unwrap()
}

fn as_wired(seeds: u32) -> Simulation {
    simulate(&field_report(), &traffic(), &options(seeds)).unwrap()
}

#[test]
fn the_log_shows_four_flows_each_way() {
    let traffic = traffic();
    let mut flows: Vec<_> = traffic
        .flows
        .iter()
        .map(|f| ((f.from.node, f.from.nic), (f.to.node, f.to.nic), f.connections, f.share))
        .collect();
    flows.sort_by_key(|flow| (flow.0, flow.1));
    // The report's pairs 2→8, 1→10, 6→12, 5→14 and 10→0, 9→2, 14→4, 13→6, with two GPUs per NIC.
    let pairs = [(0, 1), (1, 0), (2, 3), (3, 2)];
    let expected: Vec<_> =
        (0..2).flat_map(|node| pairs.map(|(from, to)| ((node, from), (1 - node, to), 4, 0.25))).collect();
    assert_eq!(flows, expected);
}

#[test]
fn busbw_over_seeds_is_as_a_uniform_hash_makes_it() {
    let simulation = as_wired(20_000);
    assert_eq!((simulation.flows, simulation.per_seed.len()), (8, 20_000));
    // Of the 256 ways to put four flows on four links: all on one 4, three on one 52 or fewer links, all apart 24.
    // The slower direction decides.
    let worse_of_two = |ways: f64| 1.0 - (1.0 - ways / 256.0).powi(2);
    let cases = [(LINK, 4.0), (4.0 / 3.0 * LINK, 52.0), (2.0 * LINK, 232.0), (4.0 * LINK, 256.0)];
    for (busbw, ways) in cases {
        let (share, expected) = (simulation.share_at_most(GBps(busbw)), worse_of_two(ways));
        let deviation = (expected * (1.0 - expected) / 20_000.0).sqrt();
        assert!((share - expected).abs() <= 4.0 * deviation, "{busbw}: {share}, expected {expected}");
    }
    assert!((simulation.busbw.min.0 - LINK).abs() < 1e-9, "{:?}", simulation.busbw);
    assert!((simulation.busbw.max.0 - 4.0 * LINK).abs() < 1e-9, "{:?}", simulation.busbw);
    assert!((simulation.busbw.p50.0 - 2.0 * LINK).abs() < 1e-9, "{:?}", simulation.busbw);
}

#[test]
fn the_measured_peak_is_all_flows_on_one_link() {
    let measured = GBps(48.2);
    let simulation = as_wired(20_000);
    assert!((simulation.busbw.min.0 / measured.0 - 1.0).abs() < 0.01);
    // 1/64 in each direction.
    let share = simulation.share_at_most(GBps(measured.0 * 1.01));
    assert!((share - 2.0 / 64.0).abs() < 0.005, "{share}");
}

#[test]
fn the_links_between_the_switches_are_named() {
    let simulation = as_wired(20_000);
    let mut names: Vec<&str> = simulation.links.iter().map(|link| link.name.as_str()).collect();
    names.sort_unstable();
    let between = |a, b| (0..4).map(move |n| format!("switch of node {a} → switch of node {b}, link {n}"));
    let expected: Vec<String> = between(0, 1).chain(between(1, 0)).collect();
    // Now and then every flow has a link of its own, and then the NICs decide.
    assert_eq!(names[1..], expected);
    assert!(names[0].starts_with("NIC 0 of node 0, sending and 15 NIC ports"), "{}", names[0]);
    for link in &simulation.links[..8] {
        assert!((link.flows_mean - 1.0).abs() < 0.05 && link.flows_max == 4, "{link:?}");
        assert!(link.decides > 0.1 && link.decides < 0.5, "{link:?}");
    }
}

#[test]
fn rail_optimised_reaches_what_was_reported() {
    let mut after = field_report();
    let spines = 0;
    after.fabric.wiring = Wiring::RailOptimised { nodes_per_group: 2, spines, uplinks: clusters::parallel(4) };
    for traffic in [traffic().on_rails(), Traffic::of_cluster(&after).unwrap()] {
        let simulation = simulate(&after, &traffic, &options(100)).unwrap();
        assert!((simulation.busbw.min.0 / 195.0 - 1.0).abs() < 0.05, "{:?}", simulation.busbw);
        assert_eq!(simulation.busbw.min, simulation.busbw.max);
    }
}

#[test]
fn adaptive_routing_and_entropy_help() {
    let mut adaptive = field_report();
    adaptive.fabric.routing = Routing::Adaptive;
    let spread = simulate(&adaptive, &traffic(), &options(10)).unwrap();
    assert!((spread.busbw.min.0 - 4.0 * LINK).abs() < 1e-9);
    let by_channel = Options { entropy: FlowEntropy::QueuePair, ..options(4000) };
    let by_channel = simulate(&field_report(), &traffic(), &by_channel).unwrap();
    let by_nic = as_wired(4000);
    assert_eq!(by_channel.flows, 32);
    assert!(by_channel.busbw.p50.0 > by_nic.busbw.p50.0 && by_channel.busbw.min.0 > by_nic.busbw.min.0);
}

/// As it was wired, the prediction is what hashes give, and says what a polarised one leaves: what was measured.
#[test]
fn the_prediction_knows_the_links_between_the_switches() {
    let cluster = crate::described("examples/clusters").remove("h20x8").unwrap();
    let prediction = predict(&cluster, Collective::AllReduce, &[Bytes(8 << 30)]);
    let effect = prediction.fabric.unwrap();
    assert!((effect.busbw.min.0 / 48.2 - 1.0).abs() < 0.01 && effect.as_the_worst < 0.05, "{effect:?}");
    let row = &prediction.rows[0];
    let (low, high) = row.band;
    assert!(low.0 < 64.0 && (90.0..100.0).contains(&row.busbw.0) && high.0 < 130.0, "{row:?}");
}

//! `busbw accelerate` from end to end, without Python: the fifth field report, other networks, bad usage.

use crate::support::command::typed;
use crate::support::process::Ended;

/// On two hosts of eight, with VGG16's gradients, where the flags do not say otherwise.
fn accelerate(flags: &str) -> Ended {
    let needed = [("--nodes", "2"), ("--ranks-per-host", "8"), ("--gradients", "528M")];
    let more = needed.into_iter().filter(|(name, _)| !flags.contains(name));
    let more: String = more.map(|(name, value)| format!(" {name} {value}")).collect();
    typed(&format!("accelerate{more} {flags}"))
}

#[test]
fn the_fifth_field_report_as_text() {
    insta::assert_snapshot!(accelerate("--network-gbit 25 --compute-ms 510 --batch-size 128 --width 100").printed());
}

#[test]
fn the_all_reduce_alone_over_a_fast_network() {
    insta::assert_snapshot!(accelerate("--network-gbit 3200 --transport rdma --width 80").printed());
}

/// Images per second and scaling as measured: plain, with the plugin, with both (docs/synthetic.md).
#[test]
fn the_fifth_field_report_as_json() {
    let answer = accelerate("--network-gbit 25 --compute-ms 510 --batch-size 128 --json").json();
    assert_eq!(answer["schema"], "busbw.accelerate/1");
    for (transport, way, images, scaling) in
        [("tcp", "plain", 847.0, 21.0), ("plugin", "plain", 1644.0, 40.0), ("plugin", "both", 3562.0, 88.0)]
    {
        let ways = answer["ways"].as_array().unwrap();
        let found = ways.iter().find(|found| found["transport"] == transport && found["way"] == way).unwrap();
        let said = found["samples_per_s"].as_f64().unwrap();
        assert!((said / images - 1.0).abs() < 0.01, "{found}");
        assert_eq!(found["scaling_pct"].as_f64().unwrap().floor(), scaling, "{found}");
    }
}

#[test]
fn what_was_measured_stands_for_the_line() {
    let ended = accelerate("--measured-gbit 10");
    let text = ended.printed();
    assert!(text.contains("Measured: 10.0 Gbit/s between hosts") && !text.contains("of the line"), "{text}");
}

/// docs/when-not.md promises it.
#[test]
fn one_host_has_no_network_to_save_bytes_on() {
    let [slow, fast] = ["10", "400"]
        .map(|gbit| accelerate(&format!("--nodes 1 --network-gbit {gbit} --host-gbs 200 --compute-ms 510")));
    let slow = slow.printed();
    assert_eq!(slow, fast.printed());
    assert!(slow.contains("Within the host: 200 GB/s a rank") && slow.contains("Plain all-reduce: "), "{slow}");
    for other in ["Kernel TCP", "topk", "busbw link"] {
        assert!(!slow.contains(other), "{other}: {slow}");
    }
    // 528 MiB, 14/8 of it at 200 GB/s.
    assert!(slow.contains("plain            4.8 ms"), "{slow}");
}

#[test]
fn figures_that_make_no_sense_are_refused() {
    for (flags, says) in [
        ("", "--network-gbit <GBIT>"),
        ("--network-gbit 0", "give a number above 0"),
        ("--network-gbit 25 --nodes 0", "0 is not in 1.."),
        ("--network-gbit 25 --ratio 2", "give a share above 0 and up to 1"),
        ("--network-gbit 25 --gradients 0", "give the bytes of all gradients, such as 528M"),
        ("--network-gbit 25 --gradients none", "'none' is not a size"),
        ("--network-gbit 25 --measured-gbit 9", "cannot be used with"),
        ("--network-gbit 25 --batch-size 128", "--compute-ms <MS>"),
        ("--network-gbit 25 --transport pigeons", "[possible values: tcp, plugin, rdma]"),
    ] {
        accelerate(flags).refused(says);
    }
}

//! The examples parse, and say what their names promise.

use busbw_model::GBps;
use busbw_predict::Cluster;
use busbw_predict::cluster::{self, GpuLinks, NetTransport, Routing, Uplinks, Wiring};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn examples() -> BTreeMap<String, Cluster> {
    crate::described("examples/clusters")
}

#[test]
fn all_parse_as_drawn() {
    let clusters = examples();
    let facts: Vec<_> = clusters
        .iter()
        .map(|(name, c)| (name.as_str(), c.ranks(), c.domains(), c.nics.as_ref().map_or(0, |nics| nics.count)))
        .collect();
    assert_eq!(
        facts,
        [
            ("aws-p5-efa", 128, 16, 32),
            ("dgx-a100", 16, 2, 8),
            ("dgx-b200", 64, 8, 8),
            ("dgx-h100", 1024, 128, 8),
            ("h20x8", 16, 2, 4),
            ("nvl72", 288, 4, 4),
            ("pcie-4x-l40s", 4, 1, 0),
            ("tcp-cloud", 4, 4, 1),
            ("v100x8", 32, 4, 4),
        ]
    );
}

#[test]
fn the_first_field_report_is_described() {
    let clusters = examples();
    let h20 = &clusters["h20x8"];
    assert_eq!(h20.fabric.wiring, Wiring::HostToSwitch { between: Uplinks { count: 4, rate: GBps(50.0) } });
    assert_eq!(h20.fabric.routing, Routing::Hash);
    assert_eq!(h20.links, GpuLinks::NvSwitch { per_gpu: GBps(450.0), domain: 8, nvls: true });
    let nics = h20.nics.as_ref().unwrap();
    assert_eq!((nics.rate, nics.transport, nics.gpu_direct), (GBps(50.0), NetTransport::Roce, true));
}

#[test]
fn stars_stand_for_all_nics() {
    let clusters = examples();
    let Wiring::Explicit { switches, links } = &clusters["v100x8"].fabric.wiring else { panic!("not explicit") };
    assert_eq!((switches.len(), links.len()), (4, 20));
}

#[test]
fn a_full_description_leaves_little_to_assume() {
    let clusters = examples();
    let assumptions = |name: &str| clusters[name].assumptions.clone();
    assert_eq!(assumptions("dgx-a100"), Vec::<String>::new());
    assert_eq!(assumptions("v100x8"), Vec::<String>::new());
    assert_eq!(assumptions("pcie-4x-l40s"), Vec::<String>::new());
    assert!(assumptions("aws-p5-efa").iter().any(|text| text.contains("NVSwitch")), "{:?}", assumptions("aws-p5-efa"));
}

#[test]
fn the_example_of_the_documentation_parses() {
    let guide =
        std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/clusters.md")).unwrap();
    let example = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let cluster = cluster::parse(example).unwrap();
    assert_eq!((cluster.ranks(), cluster.nics.unwrap().count, cluster.nccl), (16, 32, Some((2, 18))));
}

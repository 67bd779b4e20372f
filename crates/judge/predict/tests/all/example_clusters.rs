//! The examples parse, and say what their names promise.

use busbw_model::{Bytes, Collective, GBps};
use busbw_predict::cluster::{self, GpuLinks, NetTransport, Routing, Uplinks, Wiring};
use busbw_predict::{Cluster, Options, Traffic, predict, simulate};
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

/// Rings of 8 GiB, as `predict` and `simulate` see them: the simulation knows links alone, so it may allow more, never less,
/// and where links of the fabric hold the run back, both say the same.
#[test]
fn predictions_and_simulations_agree() {
    let mut held_back = Vec::new();
    for (name, mut cluster) in examples() {
        cluster.environment.insert("NCCL_ALGO".into(), "ring".into());
        let predicted = predict(&cluster, Collective::AllReduce, &[Bytes(8 << 30)]);
        let traffic = Traffic::of_cluster(&cluster).unwrap();
        let simulated = simulate(&cluster, &traffic, &Options::default()).unwrap();
        let row = &predicted.rows[0];
        let share = row.busbw.0 / simulated.busbw.p50.0;
        assert!(share < 1.02, "{name}: {} predicted, {} simulated", row.busbw, simulated.busbw.p50);
        let Some(effect) = predicted.fabric else { continue };
        assert_eq!(effect.busbw, simulated.busbw, "{name}");
        assert!(share > 0.95, "{name}: {row:?}");
        let is_held_back = simulated.busbw.p50.0 < simulated.unshared.0;
        assert_eq!(row.bottleneck.starts_with("the fabric"), is_held_back, "{name}: {row:?}");
        let (slow, fast) = row.over_seeds.unwrap();
        assert!((slow.0 / simulated.busbw.p5.0 - share).abs() < 0.01, "{name}: {slow}");
        assert!((fast.0 / simulated.busbw.p95.0 - share).abs() < 0.01, "{name}: {fast}");
        held_back.push(name);
    }
    assert_eq!(held_back, ["dgx-b200", "h20x8", "v100x8"]);
}

/// With adaptive routing a fabric that is wide enough costs nothing; one with an eighth of the rate halves busbw.
#[test]
fn a_narrow_fabric_is_narrow_for_predictions_too() {
    let mut cluster = examples().remove("dgx-b200").unwrap();
    cluster.environment.insert("NCCL_ALGO".into(), "ring".into());
    cluster.fabric.routing = Routing::Adaptive;
    let largest = |cluster: &Cluster| predict(cluster, Collective::AllReduce, &[Bytes(8 << 30)]).rows.remove(0);
    let wide = largest(&cluster);
    assert!(!wide.bottleneck.contains("fabric"), "{wide:?}");
    let Wiring::LeafSpine { uplinks, .. } = &mut cluster.fabric.wiring else { panic!("not leaf and spine") };
    uplinks.rate = GBps(uplinks.rate.0 / 8.0);
    let narrow = largest(&cluster);
    assert!(narrow.bottleneck.starts_with("the fabric: leaf"), "{narrow:?}");
    assert!(narrow.busbw.0 < 0.6 * wide.busbw.0, "{narrow:?} beside {wide:?}");
}

#[test]
fn bands_hold_what_is_predicted_and_stay_below_the_limit() {
    for (name, cluster) in examples() {
        let sizes: Vec<Bytes> = (3..34).map(|power| Bytes(1 << power)).collect();
        for row in predict(&cluster, Collective::AllReduce, &sizes).rows {
            let (low, high) = row.band;
            assert!(low.0 > 0.0 && low.0 < row.busbw.0 && row.busbw.0 <= high.0, "{name}: {row:?}");
            assert!(high.0 <= row.limit.0 * 1.000_001, "{name}: {row:?}");
        }
    }
}

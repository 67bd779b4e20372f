//! Samples made by hand: a RoCE node with a bond of two ports, and an InfiniBand port.

use busbw_probe::counters::{Bond, Counters, GpuCounters, HostCounters, Interface, Job, Port, QueuePairs, Sample};
use std::sync::Arc;

/// 2026-03-31 16:36:04 UTC.
pub const BEGIN_US: u64 = 1_774_974_964_000_000;

/// Counters by name, read at a time.
pub fn counters(time_us: u64, values: &[(&str, u64)]) -> Counters {
    let mut values = values.to_vec();
    values.sort_unstable();
    let names: Arc<[Arc<str>]> = values.iter().map(|(name, _)| Arc::from(*name)).collect();
    Counters { time_us, names, values: values.into_iter().map(|(_, value)| value).collect() }
}

/// The node at second `t`: the bond carries 80 Gbit/s out (half on each member), the InfiniBand port 8 Gbit/s in. From
/// second 3 on packets come out of order.
pub fn node(t: u64) -> Sample {
    node_that_did(t, t)
}

/// The node at second `second`, after what takes it `t` seconds at an even rate.
pub fn node_that_did(second: u64, t: u64) -> Sample {
    let time_us = BEGIN_US + second * 1_000_000;
    let at = |values: &[(&str, u64)]| counters(time_us, values);
    let bond = Port {
        device: "mlx5_bond_0".into(),
        port: 1,
        state: "ACTIVE".into(),
        physical_state: "LinkUp".into(),
        rate_gbit_s: Some(100.0),
        link_layer: "Ethernet".into(),
        interface: Some("bond0".into()),
        counters: at(&[
            ("port_xmit_data", 2_500_000_000 * t),
            ("port_rcv_data", 3_000_000 * t),
            ("port_xmit_packets", 2_400_000 * t),
            ("np_cnp_sent", 0),
            ("rp_cnp_handled", 700 + 4632 * t),
            ("out_of_sequence", 40 + 25 * t.saturating_sub(2)),
            ("out_of_buffer", 0),
        ]),
    };
    let ib = Port {
        device: "mlx5_4".into(),
        port: 1,
        state: "ACTIVE".into(),
        physical_state: "LinkUp".into(),
        rate_gbit_s: Some(400.0),
        link_layer: "InfiniBand".into(),
        interface: None,
        counters: at(&[("port_xmit_data", 7), ("port_rcv_data", 250_000_000 * t), ("symbol_error", 3)]),
    };
    let member = |name: &str, share: u64| Interface {
        name: name.into(),
        state: "up".into(),
        rate_gbit_s: Some(100.0),
        bond: Some(Bond::Member("bond0".into())),
        counters: at(&[("tx_bytes", 1000 * t), ("rx_bytes", 2000 * t), ("carrier_down_count", 1)]),
        driver: at(&[
            ("tx_bytes_phy", (5_000_000_000 + share) * t),
            ("rx_bytes_phy", 6_000_000 * t),
            ("rx_prio3_pause", 2 * t),
            ("tx_prio0_bytes", 1_250_000 * t),
        ]),
    };
    let bond0 = Interface {
        name: "bond0".into(),
        state: "up".into(),
        rate_gbit_s: Some(200.0),
        bond: Some(Bond::Master),
        counters: at(&[("tx_bytes", 2000 * t), ("rx_bytes", 4000 * t)]),
        ..Interface::default()
    };
    let management = Interface {
        name: "mgmt0".into(),
        state: "up".into(),
        rate_gbit_s: Some(1.0),
        counters: at(&[("tx_bytes", 125_000 * t), ("rx_bytes", 0)]),
        ..Interface::default()
    };
    Sample {
        time_us,
        ports: vec![ib, bond],
        interfaces: vec![bond0, member("eth0", 0), member("eth1", 250_000_000), management],
        host: HostCounters {
            name: "node7".into(),
            cpu_busy_ticks: 64 * t,
            cpu_total_ticks: 6400 * t,
            cores: 64,
            memory_total_kib: 1_056_000_000,
            memory_free_kib: 1_049_633_300,
            memory_available_kib: 1_050_000_000,
            tcp: at(&[("OutSegs", 1000 * t), ("RetransSegs", 2 * t)]),
        },
        gpus: vec![GpuCounters {
            name: "NVIDIA H100 80GB HBM3".into(),
            uuid: Some("GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52".into()),
            pci_bus_id: Some("00000000:1B:00.0".into()),
            busy_pct: Some(97),
            memory_used_bytes: Some(40 << 30),
            memory_total_bytes: Some(80 << 30),
            power_mw: Some(612_000),
        }],
        queue_pairs: vec![
            QueuePairs {
                device: "mlx5_bond_0".into(),
                pid: Some(4242),
                owner: "all_reduce_perf -b 8 -e 8G -f 2".into(),
                user: Some("ada".into()),
                count: 20,
                ready: 18,
                failed: 0,
                memory_kib: 2_345_678,
                cpu_ticks: 99 * t,
            },
            QueuePairs {
                device: "mlx5_4".into(),
                owner: "ib_core".into(),
                count: 2,
                ready: 2,
                ..QueuePairs::default()
            },
        ],
        jobs: vec![Job { what: "all_reduce".into(), command: "all_reduce_perf -b 8 -e 8G -f 2".into(), processes: 8 }],
    }
}

/// What a document has against a schema; a field that the schema does not describe is an error here, though readers are told
/// to bear it.
pub fn schema_errors(schema: &str, document: &str) -> Vec<String> {
    let mut schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    forbid_others(&mut schema);
    let document = serde_json::from_str(document).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn forbid_others(schema: &mut serde_json::Value) {
    if let Some(object) = schema.as_object_mut() {
        if object.contains_key("properties") {
            object.entry("additionalProperties").or_insert(false.into());
        }
        object.values_mut().for_each(forbid_others);
    }
}

/// The node with a GPU more, in front, that tells nothing of itself: in MIG mode, lost, or of a kind that cannot.
pub fn node_with_a_silent_gpu(seconds: u64) -> Sample {
    let mut sample = node(seconds);
    sample.gpus.insert(0, GpuCounters::default());
    sample
}

//! Samples told: rates, resets, devices that come and go, alerts; as text, JSON and recordings.

use crate::common;

use busbw_ingest::{TextLine, rdma_monitor::MonitorReader};
use busbw_model::{Code, Place as LinePlace};
use busbw_monitor::known::Quantity;
use busbw_monitor::{Device, Moment, Recorder, Recording, RecordingError, Row, Thresholds, Tracker, json, text};
use busbw_probe::counters::{Counters, Sample};
use common::{BEGIN_US, counters, node, node_with_a_silent_gpu};

fn told(samples: impl IntoIterator<Item = Sample>) -> Moment {
    let mut tracker = Tracker::default();
    samples.into_iter().map(|sample| tracker.feed(&sample)).last().unwrap()
}

fn row<'a>(moment: &'a Moment, name: &str) -> &'a Row {
    moment.rows.iter().find(|row| row.device.to_string() == name).unwrap()
}

#[test]
fn rows_are_ports_with_their_interfaces_and_rates_are_of_the_interval() {
    let moment = told([node(0), node(2)]);
    let names: Vec<String> = moment.rows.iter().map(|row| row.device.to_string()).collect();
    assert_eq!(names, ["mlx5_4/1", "mlx5_bond_0/1", "bond0", "eth0", "eth1", "mgmt0"]);
    let bond = row(&moment, "mlx5_bond_0/1");
    assert_eq!((bond.tx_gbit_s(), bond.rate(Quantity::CnpHandled)), (Some(80.0), Some(4632.0)));
    // What only the members count: pauses of both.
    assert_eq!((bond.rate(Quantity::RxPause), bond.queue_pairs), (Some(4.0), 20));
    // A member shows its wire, the bond itself what TCP sent.
    assert_eq!((row(&moment, "eth1").tx_gbit_s(), row(&moment, "bond0").tx_gbit_s()), (Some(42.0), Some(16e-6)));
    assert_eq!(row(&moment, "eth0").below, Some(bond.device.clone()));
    assert_eq!(row(&moment, "mgmt0").below, None);
    assert_eq!((moment.host.cpu_pct, moment.host.tcp_retransmitted_pct), (Some(1.0), Some(0.2)));
    assert_eq!((moment.owners[0].cpu_pct, moment.owners[1].cpu_pct), (Some(99.0), None));
}

#[test]
fn the_first_sample_has_no_rates_and_neither_has_a_reset_counter() {
    let first = told([node(5)]);
    assert_eq!((first.interval_us, row(&first, "mlx5_4/1").rx_gbit_s()), (None, None));
    let reset = told([node(5), Sample { time_us: BEGIN_US + 6_000_000, ..node(1) }]);
    assert_eq!(row(&reset, "mlx5_4/1").rx_gbit_s(), None);
}

#[test]
fn a_device_that_comes_back_begins_anew() {
    let mut gone = node(3);
    gone.ports.remove(1);
    let mut tracker = Tracker::default();
    for sample in [node(1), node(2), gone] {
        tracker.feed(&sample);
    }
    let back = tracker.feed(&node(4));
    assert_eq!(row(&back, "mlx5_bond_0/1").tx_gbit_s(), Some(80.0));
}

#[test]
fn a_port_that_counts_no_bytes_shows_those_of_its_interface() {
    let soft = |t: u64| {
        let mut sample = node(t);
        sample.ports.truncate(2);
        sample.ports[1].counters = counters(sample.time_us, &[("sent_pkts", 10 * t)]);
        sample
    };
    let moment = told([soft(1), soft(2)]);
    let port = row(&moment, "mlx5_bond_0/1");
    assert_eq!((port.bytes_of.as_deref(), port.tx_gbit_s()), (Some("bond0"), Some(16e-6)));
    assert_eq!(port.rate(Quantity::TxPackets), Some(10.0));
}

#[test]
fn counters_that_were_not_read_again_keep_their_rate() {
    let mut late = node(3);
    let before = node(2);
    for (now, then) in late.interfaces.iter_mut().zip(before.interfaces) {
        now.driver = then.driver;
    }
    let moment = told([node(1), node(2), late]);
    assert_eq!(row(&moment, "eth0").rate(Quantity::RxPause), Some(2.0));
}

#[test]
fn a_counter_that_should_not_move_raises_an_alert_with_a_code_and_a_cure() {
    let mut tracker = Tracker::default();
    let alerts: Vec<usize> = (0..6).map(|t| tracker.feed(&node(t)).alerts.len()).collect();
    // Congestion notifications stand from the first interval; loss begins with the third second.
    assert_eq!(alerts, [0, 1, 1, 2, 2, 2]);
    let moment = tracker.feed(&node(6));
    let loss = moment.alerts.iter().find(|alert| alert.counter == "out_of_sequence").unwrap();
    assert_eq!((loss.code, loss.moved, loss.per_second), (Code::RoceConfig, 100, 25.0));
    assert_eq!(loss.since_us, BEGIN_US + 3_000_000);
    assert!(loss.remedy.contains("PFC"));
    // A port that goes down is an error, the first of the list; an alert that is quiet for ten seconds is over.
    let mut down = node(7);
    down.ports[1].state = "DOWN".into();
    let moment = tracker.feed(&down);
    assert_eq!((moment.alerts[0].code, moment.alerts[0].counter.as_str()), (Code::NetUnreachable, "state"));
    let mut later = node(8);
    later.time_us += 60_000_000;
    later.ports.clear();
    later.interfaces.clear();
    assert_eq!(tracker.feed(&later).alerts, []);
    assert_eq!(tracker.alerts().count(), 3);
}

#[test]
fn thresholds_come_from_a_file() {
    let cases = [
        ("rdma.rp_cnp_handled.per_second = 5000", 1),
        ("rdma.rp_cnp_handled.per_second = 4000", 2),
        ("rdma.rp_cnp_handled.alert = false\nrdma.out_of_sequence.alert = false", 0),
        ("[rdma]\nout_of_sequence = { per_second = 24.0 }", 2),
    ];
    for (text, alerts) in cases {
        let mut tracker = Tracker::new(Thresholds::parse(text).unwrap());
        let last = (0..6).map(|t| tracker.feed(&node(t))).last().unwrap();
        assert_eq!(last.alerts.len(), alerts, "{text}");
    }
    // A pattern is a name too, and the list of all alerts a file.
    assert!(Thresholds::parse("driver.\"rx_prio#_pause\".alert = false").is_ok());
    assert!(Thresholds::parse(&busbw_monitor::list_alerts()).is_ok());
    let errors = [
        ("rdma.port_xmit_data.per_second = 1", "no alert for rdma.port_xmit_data"),
        ("wifi.noise.per_second = 1", "no alert for wifi.noise"),
        ("rdma.out_of_sequence = 3", "did not match"),
        ("[[", "TOML parse error"),
    ];
    for (text, message) in errors {
        let error = Thresholds::parse(text).unwrap_err().to_string();
        assert!(error.contains(message) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn text_is_what_monitors_print_and_explain_reads_it_back() {
    let moment = told([node(0), node(2)]);
    let block = text::block(&moment);
    insta::assert_snapshot!(format!("{}{block}", text::legend(&moment)));
    let mut reader = MonitorReader::default();
    let unread: Vec<&str> = block
        .lines()
        .zip(1..)
        .filter(|(text, line)| {
            let place = LinePlace { input: 0, line: *line };
            // A rule is claimed only behind a sample.
            !reader.feed(&TextLine { place, stream: "", text }) && *text != "------"
        })
        .map(|(text, _)| text)
        .collect();
    assert_eq!(unread, Vec::<&str>::new());
    let samples = reader.finish();
    assert_eq!(samples.len(), 1);
    let all =
        ["tx_rate", "num_of_qp", "rp_cnp_handled", "rx_pause", "cpu_usage", "free_mem"].map(|n| samples[0].get(n));
    assert_eq!(all, [82.0, 22.0, 9264.0, 8.0, 1.0, 1_049_633_300.0].map(Some));
    assert_eq!(samples[0].values[0].per_port, [0.0, 40.0, 42.0]);
}

#[test]
fn text_without_rdma_shows_the_interfaces() {
    let without = |t| Sample { ports: vec![], ..node(t) };
    let moment = told([without(1), without(2)]);
    assert!(text::legend(&moment).starts_with("node7: eth0 / eth1 / mgmt0; rates in Gbit/s"));
    assert!(text::block(&moment).contains("tx_rate: 82.001 (40.000/42.000/0.001)\n"));
    let nothing = told([Sample::default(), Sample { time_us: 1, ..Sample::default() }]);
    assert!(text::block(&nothing).contains("tx_rate: 0.000\n"));
}

#[test]
fn json_follows_its_schema() {
    let schema = format!("{:#}\n", json::schema().as_value());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/schema/monitor-1.schema.json");
    if std::env::var_os("BUSBW_BLESS").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), schema, "write it anew with BUSBW_BLESS=1");
    let mut tracker = Tracker::default();
    let mut samples: Vec<Sample> = (0..6).map(node).collect();
    samples.extend([node_with_a_silent_gpu(6), Sample::default()]);
    for sample in samples {
        let line = json::line(&tracker.feed(&sample));
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(common::schema_errors(&schema, &line), Vec::<String>::new());
    }
    insta::assert_json_snapshot!(
        serde_json::from_str::<serde_json::Value>(&json::line(&told([node(2), node(3)]))).unwrap()
    );
}

#[test]
fn recordings_give_back_what_was_recorded_and_what_is_left_of_them() {
    let mut samples: Vec<Sample> = (0..5).map(node).collect();
    samples.push(Sample { interfaces: vec![], ..node(5) });
    samples.push(node(6));
    // A reset goes back; a counter may pass any distance.
    samples.push(Sample { time_us: node(7).time_us, ..node(0) });
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes).unwrap();
    for sample in &samples {
        recorder.add(sample).unwrap();
    }
    assert_eq!(read(&bytes).unwrap(), samples);
    for length in 0..bytes.len() {
        match read(&bytes[..length]) {
            Ok(read) => assert_eq!(read[..], samples[..read.len()]),
            Err(RecordingError::NoRecording | RecordingError::Version(_)) => assert!(length < 26),
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
    // A damaged byte gives other values, fewer samples or an error, never a panic.
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        let _ = read(&damaged);
    }
    assert!(matches!(read(b"busbw monitor recording 9\n"), Err(RecordingError::Version(v)) if v == "9"));
    assert!(matches!(read(b"rx_rate: 1\n"), Err(RecordingError::NoRecording)));
}

#[test]
fn an_idle_second_takes_little_room() {
    let mut sample = node(1);
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes).unwrap();
    recorder.add(&sample).unwrap();
    sample.time_us += 1_000_000;
    recorder.add(&sample).unwrap();
    let both = bytes.len();
    let mut first = Vec::new();
    Recorder::new(&mut first).unwrap().add(&node(1)).unwrap();
    assert!((both - first.len()) * 4 < first.len(), "{both} {}", first.len());
}

fn read(bytes: &[u8]) -> Result<Vec<Sample>, RecordingError> {
    let mut recording = Recording::open(bytes)?;
    std::iter::from_fn(|| recording.next_sample().transpose()).collect()
}

#[test]
fn traffic_is_what_moved_since_the_first_sample() {
    let port = Device::Port { device: "mlx5_bond_0".into(), port: 1 };
    let traffic = |samples: Vec<Sample>| {
        let mut tracker = Tracker::default();
        samples.iter().for_each(|sample| drop(tracker.feed(sample)));
        tracker.traffic()
    };
    assert_eq!(traffic((1..=4).map(node).collect()).get(&port), Some(&(30_000_000_000, 36_000_000)));
    // A device that counts its bytes twice (bnxt_re) sent them once.
    let twice = |t| {
        let mut sample = node(t);
        let all = [("port_xmit_data", 2_500_000_000 * t), ("tx_bytes", 10_000_000_000 * t)];
        sample.ports[1].counters = counters(sample.time_us, &all);
        sample
    };
    assert_eq!(traffic((1..=4).map(twice).collect()).get(&port), Some(&(30_000_000_000, 0)));
}

#[test]
fn a_member_is_shown_without_its_bond() {
    let lone = |t| {
        let mut sample = node(t);
        sample.ports.clear();
        sample.interfaces.retain(|interface| interface.name == "eth1");
        sample
    };
    let moment = told([lone(1), lone(2)]);
    let names: Vec<String> = moment.rows.iter().map(|row| row.device.to_string()).collect();
    assert_eq!((names, row(&moment, "eth1").tx_gbit_s()), (vec!["eth1".to_owned()], Some(42.0)));
}

#[test]
fn names_without_values_are_no_sample() {
    let mut sample = node(1);
    sample.host.tcp = Counters { values: vec![], ..sample.host.tcp };
    let mut bytes = Vec::new();
    Recorder::new(&mut bytes).unwrap().add(&sample).unwrap();
    assert!(matches!(read(&bytes), Err(RecordingError::Damaged(0))));
}

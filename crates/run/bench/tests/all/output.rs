//! The text, character by character.

use busbw_bench::flags::Flags;
use busbw_bench::repetition::{Repetitions, nic_lines};
use busbw_bench::row::{Half, NicTraffic, PerIteration, Row};
use busbw_bench::statistics::Iterations;
use busbw_bench::table::{Footer, MemoryUse, Table};
use busbw_bench::{Device, Test};
use busbw_model::{Datatype, RedOp};
use std::time::SystemTime;

fn half(time_us: f64, busbw_gbs: f64, wrong: Option<u64>) -> Half {
    Half { time_us, algbw_gbs: busbw_gbs / 1.5, busbw_gbs, wrong, iterations: None, nics: Vec::new() }
}

fn rows() -> Vec<Row> {
    let test = Test { datatype: Datatype::Float, redop: Some(RedOp::Sum), redop_cell: "sum", root: None };
    let rooted = Test { datatype: Datatype::Bfloat16, redop: None, redop_cell: "none", root: Some(3) };
    let nameless = Test { datatype: Datatype::F8e4m3, redop: None, redop_cell: "", root: None };
    vec![
        Row {
            size: 8,
            count: 2,
            test,
            out_of_place: half(1.234, 0.01, Some(0)),
            in_place: half(12.3, 0.0, Some(1)),
            skew: None,
        },
        Row {
            size: 1 << 20,
            count: 1 << 18,
            test: rooted,
            out_of_place: half(12_345.678, 1234.567, None),
            in_place: half(123_456.7, 12_345.67, None),
            skew: None,
        },
        Row {
            size: 16 << 30,
            count: 4 << 30,
            test: nameless,
            out_of_place: half(12_345_678.9, 1_234_567.0, Some(131_072_000)),
            in_place: half(f64::NAN, f64::INFINITY, Some(1_234_567)),
            skew: None,
        },
    ]
}

fn devices() -> Vec<Device> {
    let device = |rank, host: &str, device, bus_id: &str, name: &str| Device {
        rank,
        group: 0,
        pid: 4711 + rank as u32,
        host: host.into(),
        device,
        bus_id: bus_id.into(),
        name: name.into(),
    };
    vec![
        device(0, "hosta", 0, "0000:00:00", "AMD EPYC 9654"),
        device(12, "a-rather-long-host-name", 11, "0000:4e:00", "NVIDIA H200"),
    ]
}

/// The text of a whole run with these flags and rows.
fn text(flags: &str, rows: &[Row], is_enough: Option<bool>, reduced: Option<u64>) -> String {
    let flags = Flags::parse("p", std::iter::once("p").chain(flags.split_ascii_whitespace())).unwrap();
    let mut out = Vec::new();
    let mut table = Table::new(Box::new(&mut out), &flags);
    table.preamble(&flags, "all_reduce_perf", "cpu: 2 ranks on 2 hosts", &[]).unwrap();
    table.devices(&devices()).unwrap();
    reduced.into_iter().for_each(|bytes| table.reduced(bytes).unwrap());
    table.header().unwrap();
    rows.iter().for_each(|row| table.row(row, SystemTime::UNIX_EPOCH).unwrap());
    let memory = MemoryUse { is_gpu: false, initialization: 1 << 30, buffers: 96 << 20, collective: -2048 };
    let footer = Footer {
        program: "all_reduce_perf",
        failed_checks: u64::from(is_enough.is_some()),
        checks: 1 + u32::from(is_enough.is_some()),
        has_checksums: is_enough.is_some(),
        average_gbs: 95.300_94,
        is_enough,
        memory: is_enough.map(|_| memory),
    };
    table.footer(&footer).unwrap();
    drop(table);
    let version = format!("# busbw {} ", env!("CARGO_PKG_VERSION"));
    let text = String::from_utf8(out).unwrap().replace(&version, "# busbw VERSION ");
    // Ends of lines count: nccl-tests has spaces there.
    text.lines().map(|line| format!("{line}|\n")).collect()
}

#[test]
fn plain() {
    insta::assert_snapshot!(text("-b 8 -e 16G -f 2 -n 5", &rows(), None, None));
}

#[test]
fn failed_and_reduced() {
    insta::assert_snapshot!(text("-b 8 -z 3 -C 1 -p 1 -M 1", &rows()[..1], Some(false), Some(1 << 24)));
}

#[test]
fn with_iterations() {
    let mut rows = rows();
    rows.truncate(1);
    let times_us = vec![9.0, 1.5, 1.25];
    let stats = Iterations::of(&times_us[1..]).unwrap();
    rows[0].out_of_place.iterations =
        Some(PerIteration { skipped: 1, stats, times_us: times_us.clone(), processes_us: Vec::new() });
    rows[0].in_place.iterations = rows[0].out_of_place.iterations.clone();
    insta::assert_snapshot!(text("-b 8 -I 1 -K 1 -z 1", &rows, None, None));
}

#[test]
fn with_time_stamps() {
    // The hour is that of the host's time zone.
    let stamp = busbw_bench::clock::stamp(SystemTime::UNIX_EPOCH);
    let text = text("-b 8 -S 1 -z 2", &rows()[..1], None, None);
    assert!(text.contains(&format!("       1  {stamp}|\n")), "{text}");
    insta::assert_snapshot!(text.replace(&stamp, "YYYY-MM-DD hh:mm:ss"));
}

#[test]
fn repetitions_and_nics() {
    let mut rows: Vec<Row> = [1.0, 1.2, 1.1].iter().flat_map(|_| rows()[..2].to_vec()).collect();
    for (index, row) in rows.iter_mut().enumerate() {
        row.out_of_place.busbw_gbs = 10.0 + index as f64;
    }
    rows[0].in_place.nics =
        vec![NicTraffic { host: "hosta".into(), name: "eth0".into(), sent_bytes: 170, received_bytes: 80 }];
    let lines = [Repetitions::of(3, &rows).lines(), nic_lines(&rows, 20)].concat();
    insta::assert_snapshot!(lines.join("\n"));
}

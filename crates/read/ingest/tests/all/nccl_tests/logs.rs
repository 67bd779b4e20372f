//! Real logs: every table with its rows, collective, ranks and average.

use super::{cells, data, one, read};
use busbw_model::BenchTable;

/// A line per file says what the tables in it are.
#[test]
fn real_logs() {
    for expected in data("tables.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, _) = expected.split_once(' ').expect("a name");
        let tables = read(&data(name));
        let rows: Vec<_> = tables.iter().map(|table| table.rows.len()).collect();
        let BenchTable { collective, nranks, printed_avg_busbw, finished, .. } = &tables[0];
        let (last, average) = (tables[0].rows.last().expect("a row"), printed_avg_busbw.map(|average| average.0));
        let [out_of_place, in_place] = cells(last);
        let half = format!("{} {:?} {out_of_place} {in_place}", last.size.0, last.root);
        assert_eq!(format!("{name} {rows:?} {collective:?} {nranks:?}: {half}: {average:?}"), expected);
        assert_eq!(*finished, average.is_some(), "{name}");
        if let Some(average) = average {
            let mean = tables[0].mean_busbw().expect("a mean").0;
            assert!((mean - average).abs() < 0.005 + average * 1e-4, "{name}: {mean} is not {average}");
        }
    }
}

#[test]
fn a_row_torn_by_nccl_lines_is_whole_again() {
    let table = one(&data("torn-row.log"));
    let torn = table.rows.iter().find(|row| row.size.0 == 2_097_152).expect("the torn row");
    assert_eq!(cells(torn), ["87.18/24.05/42.1/0", "85.11/24.64/43.12/0"]);
    assert!(torn.source.text.contains("2097152") && torn.source.place.line > 0);
    assert_eq!(table.settings.program.as_deref(), Some("all_reduce"));
    assert!(table.finished);
}

#[test]
fn settings_devices_and_versions() {
    let table = one(&data("current.log"));
    let settings = &table.settings;
    assert_eq!(settings.nccl_tests_version.as_deref(), Some("2.18.3"));
    assert_eq!(settings.nccl_version.as_deref(), Some("2.29.7"));
    assert_eq!(settings.min_bytes.map(|b| b.0), Some(1024));
    assert_eq!((settings.threads, settings.gpus_per_thread, settings.step_factor), (Some(1), Some(1), Some(2)));
    assert_eq!((settings.warmup_iters, settings.iters, settings.validation), (Some(1), Some(20), Some(true)));
    assert_eq!((settings.graph, settings.step_bytes), (Some(0), None));
    let device = &table.devices[9];
    assert_eq!((device.rank, device.group, device.pid, device.device), (9, Some(0), 90951, 1));
    assert_eq!(
        (&*device.host, &*device.bus_id, &*device.name),
        ("R6KD-CX8aaS-GPU-12", "0000:09:00", "NVIDIA RTX 6000D")
    );
    assert_eq!(table.place.line, 18);

    let stepped = one(&data("step-bytes.log")).settings;
    assert_eq!(stepped.step_bytes.map(|b| b.0), Some(524_288_000));
    assert_eq!(stepped.max_bytes.map(|b| b.0), Some(12_703_629_312), "after 'Reducing maxBytes'");

    let old = &read(&data("one-half.log"))[0];
    let device = &old.devices[31];
    assert_eq!((device.group, &*device.host, &*device.bus_id), (None, "oneflow-28", "0x9e"));
    assert_eq!(old.settings.validation, Some(false));
}

//! Real logs: every table with its rows, collective, ranks and average.

use crate::{cells, data, one, read};
use busbw_model::Collective;

struct File {
    name: &'static str,
    /// Rows of each table.
    rows: &'static [usize],
    collective: Option<Collective>,
    nranks: Option<u32>,
    /// The last row of the first table: size, root, halves.
    last: (u64, Option<i64>, [&'static str; 2]),
    average: Option<f64>,
}

#[test]
fn real_logs() {
    use Collective::*;
    let files = [
        // 2.16.7, white space collapsed by a web page.
        File {
            name: "h20-collapsed.log",
            rows: &[31],
            collective: Some(AllReduce),
            nranks: Some(16),
            last: (8_589_934_592, None, ["33561/255.95/479.91/0", "33569/255.89/479.79/0"]),
            average: Some(127.235),
        },
        // Begins at the device list, ends before the average, NCCL lines above the header.
        File {
            name: "h20-no-average.log",
            rows: &[26],
            collective: Some(AllReduce),
            nranks: Some(16),
            last: (17_179_869_184, None, ["949191/18.1/33.94/0", "965703/17.79/33.36/0"]),
            average: None,
        },
        // A script's tag before each row, counts of wrong elements as %5g, equal sizes.
        File {
            name: "stat-tag.log",
            rows: &[5, 5],
            collective: Some(AllReduce),
            nranks: Some(2),
            last: (524_288_000, None, ["2008.5/261.04/261.04/131072000", "2007.6/261.15/261.15/N/A"]),
            average: Some(261.041),
        },
        // The out-of-place half only, no validation.
        File {
            name: "one-half.log",
            rows: &[1, 1],
            collective: Some(AllReduce),
            nranks: Some(32),
            last: (64, None, ["753.6/0/0/N/A", "-"]),
            average: Some(0.000164539),
        },
        // The same, torn by NCCL lines, the first of which sticks to the cell `sum`; the next run has only begun.
        File {
            name: "torn-one-half.log",
            rows: &[1, 0],
            collective: Some(AllReduce),
            nranks: Some(32),
            last: (64, None, ["413.6/0/0/2e-7", "-"]),
            average: Some(0.000299816),
        },
        // The `error` column of 2.11 and before, inside markdown.
        File {
            name: "error-column.md",
            rows: &[28],
            collective: Some(AllReduce),
            nranks: Some(16),
            last: (1 << 30, None, ["61556/17.44/32.71/5e-7", "61303/17.52/32.84/5e-7"]),
            average: Some(7.80081),
        },
        // 2.17.6, `redop` printed as `none`, sizes in steps of bytes.
        File {
            name: "step-bytes.log",
            rows: &[23],
            collective: Some(AllToAll),
            nranks: Some(2),
            last: (12_608_077_824, None, ["397785/31.7/15.85/0", "394032/32/16/N/A"]),
            average: Some(15.8877),
        },
        // 2.18.3 with its version line.
        File {
            name: "current.log",
            rows: &[24],
            collective: Some(AllReduce),
            nranks: Some(16),
            last: (8_589_934_592, None, ["324031/26.51/49.71/0", "324236/26.49/49.67/0"]),
            average: Some(21.9708),
        },
        // A table, and below it an excerpt of the same table: header, some rows, average.
        File {
            name: "excerpt-in-markdown.md",
            rows: &[31, 5],
            collective: Some(AllReduce),
            nranks: Some(2),
            last: (1 << 30, None, ["344981/3.11/3.11/0", "344454/3.12/3.12/0"]),
            average: Some(1.15327),
        },
    ];
    for file in files {
        let tables = read(&data(file.name));
        let name = file.name;
        assert_eq!(tables.iter().map(|t| t.rows.len()).collect::<Vec<_>>(), file.rows, "{name}");
        let table = &tables[0];
        assert_eq!((table.collective, table.nranks), (file.collective, file.nranks), "{name}");
        let last = table.rows.last().expect("a row");
        let (size, root, halves) = file.last;
        assert_eq!((last.size.0, last.root, cells(last)), (size, root, halves.map(String::from)), "{name}");
        assert_eq!(table.printed_avg_busbw.map(|avg| avg.0), file.average, "{name}");
        assert_eq!(table.finished, file.average.is_some(), "{name}");
        if let Some(average) = file.average {
            let mean = table.mean_busbw().expect("a mean").0;
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

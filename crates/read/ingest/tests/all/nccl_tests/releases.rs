//! Formats for which there is no recorded sample, as the releases print them.

use super::{cells, data, one};

/// Formats for which there is no recorded sample: header and row as the `PRINT` calls of that release write them
/// (`print_header` in `src/<collective>.cu` up to 2.11, `src/common.cu` up to 2.17.2, `writeResultHeader` and
/// `writeBenchmarkLineBody` in `src/util.cu` since). Below the row stand collective, root and both halves.
#[test]
fn formats_of_every_release() {
    for case in data("releases.txt").split("\n\n") {
        let [name, header, row, expected] = case.lines().collect::<Vec<_>>()[..] else { panic!("{case}") };
        for text in [format!("{header}\n{row}\n"), format!("    {header}  \r\n    {row}\r\n"), format!("{row}\n")] {
            let table = one(&text);
            assert_eq!(table.rows.len(), 1, "{name}");
            let halves = format!("{:?} {}", table.rows[0].root, cells(&table.rows[0]).join(" "));
            assert!(expected.ends_with(&halves), "{name}: {halves}");
            if text.contains('#') {
                assert_eq!(format!("{:?} {halves}", table.collective), expected, "{name}");
            }
        }
    }
}

#[test]
fn per_iteration_statistics() {
    let row = "1073741824 268435456 float sum -1 12234.0 87.77 153.60 0 12100.5 12999.1 12990.2 1.25 12227.0 87.82 153.68 0 12101.5 13999.1 13990.2 2.50";
    let table = one(row);
    let statistics = table.rows[0].in_place.as_ref().and_then(|m| m.iterations).expect("statistics");
    assert_eq!(
        (statistics.min.0, statistics.max.0, statistics.p99.0, statistics.cv_pct),
        (12101.5, 13999.1, 13990.2, 2.5)
    );
}

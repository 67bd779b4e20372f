//! Formats for which there is no recorded sample, as the releases print them.

use crate::{HEADER, cells, one};
use busbw_model::Collective;

/// Release and trait, header, row, collective, root, both halves.
type Case = (&'static str, &'static str, &'static str, Option<Collective>, Option<i64>, [&'static str; 2]);

/// Formats for which there is no recorded sample: header and row as the `PRINT` calls of that release write them
/// (`print_header` in `src/<collective>.cu` up to 2.11, `src/common.cu` up to 2.17.2, `writeResultHeader` and
/// `writeBenchmarkLineBody` in `src/util.cu` since).
#[test]
fn formats_of_every_release() {
    use Collective::*;
    let cases: [Case; 10] = [
        (
            "2.0.0 all_gather: 11 cells; all_gather, or sendrecv had it busbw equal to algbw",
            "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error",
            "     1048576         65536   float   120.50    8.70    6.53  0e+00   119.80    8.75    6.56  0e+00",
            None,
            None,
            ["120.5/8.7/6.53/0e0", "119.8/8.75/6.56/0e0"],
        ),
        (
            "2.0.0 broadcast: root in place of redop",
            "#       size         count    type    root     time   algbw   busbw  error     time   algbw   busbw  error",
            "     1048576       1048576    char       0   120.50    8.70    8.70    N/A   119.80    8.75    8.75    N/A",
            Some(Broadcast),
            Some(0),
            ["120.5/8.7/8.7/N/A", "119.8/8.75/8.75/N/A"],
        ),
        (
            "2.0.0 reduce: 13 cells, and yet an error column",
            "#       size         count    type   redop    root     time   algbw   busbw  error     time   algbw   busbw  error",
            "     1048576        262144   float     sum       2   120.50    8.70    8.70  5e-07   119.80    8.75    8.75  1e+00",
            Some(Reduce),
            Some(2),
            ["120.5/8.7/8.7/5e-7", "119.8/8.75/8.75/1e0"],
        ),
        (
            "2.11.0 alltoall: a redop column that is always empty",
            "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
            "     1048576         65536     float           120.50    8.70    6.53  0e+00   119.80    8.75    6.56    N/A",
            Some(AllToAll),
            None,
            ["120.5/8.7/6.53/0e0", "119.8/8.75/6.56/N/A"],
        ),
        (
            "2.13.0 without reduction: the redop cell is empty",
            "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
            "     1048576         65536  bfloat16              -1   120.50    8.70    6.53      0   119.80    8.75    6.56      7",
            None,
            None,
            ["120.5/8.7/6.53/0", "119.8/8.75/6.56/7"],
        ),
        (
            "2.17.6 -S: date and time of day; numbers lose decimals to fit",
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong            timestamp",
            "  8589934592    2147483648     float     sum      -1   100000   85.90  150.32       0  1234568    6.96   12.18  1.31072e+08  2025-11-20 13:45:10",
            Some(AllReduce),
            None,
            ["100000/85.9/150.32/0", "1234568/6.96/12.18/131072000"],
        ),
        (
            "2.19.2 -I -S",
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%           timestamp",
            "  1073741824     268435456     float     sum      -1  12234.0   87.77  153.60       0  12100.5  12999.1  12990.2     1.25  12227.0   87.82  153.68       0  12101.5  13999.1  13990.2     2.50  2025-11-20 13:45:10",
            Some(AllReduce),
            None,
            ["12234/87.77/153.6/0", "12227/87.82/153.68/0"],
        ),
        (
            "2.19.6 -I",
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv% ",
            "  1073741824     134217728     float    none      -1  33298.6   32.25   16.12       0  33100.5  33999.1  33990.2     1.25  33298.6   32.25   16.12    N/A  33101.5  33999.1  33990.2     2.50",
            None,
            None,
            ["33298.6/32.25/16.12/0", "33298.6/32.25/16.12/N/A"],
        ),
        (
            "2.17.3 -C",
            "#       size         count      type   redop    root  cputime   algbw   busbw  #wrong  cputime   algbw   busbw  #wrong",
            "     1048576        262144     float     sum      -1     5.25  199.73  349.53       0     5.00  209.72  367.00       0",
            Some(AllReduce),
            None,
            ["5.25/199.73/349.53/0", "5/209.72/367/0"],
        ),
        (
            "2.17.3: times over 9999999 us",
            HEADER,
            " 17179869184    4294967296     float     sum      -1  1.7e+07    1.01    1.77       0    1e+05  171.80  300.65       0",
            Some(AllReduce),
            None,
            ["17000000/1.01/1.77/0", "100000/171.8/300.65/0"],
        ),
    ];
    for (name, header, row, collective, root, halves) in cases {
        for text in [format!("{header}\n{row}\n"), format!("    {header}  \r\n    {row}\r\n"), format!("{row}\n")] {
            let table = one(&text);
            assert_eq!(table.rows.len(), 1, "{name}");
            assert_eq!((table.rows[0].root, cells(&table.rows[0])), (root, halves.map(String::from)), "{name}");
            if text.contains('#') {
                assert_eq!(table.collective, collective, "{name}");
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

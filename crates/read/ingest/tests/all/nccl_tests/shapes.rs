//! Tables in pieces, in excerpts, of several processes, and what must not be taken for a table.

use super::{HEADER, cells, data, one, read, read_lines};
use crate::cases;
use busbw_ingest::nccl_tests::TableReader;
use busbw_model::{Collective, RedOp};

#[test]
fn rows_without_a_header() {
    let table = one("looks slow to me:\n\
           127926280      31981570     float     sum      -1   2560.7   49.96   95.75      0    2556.2   50.05   95.92      0\n\
         ...\n\
           133169160      33292290     float     sum      -1   2666.0   49.95   95.74      0    2660.4   50.06   95.94      0\n");
    assert_eq!((table.rows.len(), table.place.line), (2, 2));
    assert_eq!((table.collective, table.nranks), (Some(Collective::AllReduce), Some(24)));
    assert_eq!((table.rows[1].redop, table.rows[1].source.place.line), (Some(RedOp::Sum), 4));
}

#[test]
fn processes_without_mpi_give_a_table_each() {
    // Footers only: two runs, the first of two processes.
    let tables = read(
        "$ mpirun -H nodeA,nodeB -np 2 ./all_reduce_perf -b 8 -e 128M -f 128 -g 2\n\
         # Out of bounds values : 0 OK\n\
         # Avg bus bandwidth    : 3.94145\n\
         #\n\
         # Out of bounds values : 4 FAILED\n\
         # Avg bus bandwidth    : 3.94156\n\
         $ mpirun -H nodeA ./all_reduce_perf -b 8 -e 128M -f 128 -g 2\n\
         # Out of bounds values : 0 OK\n\
         # Avg bus bandwidth    : 3.95192\n",
    );
    let averages: Vec<_> = tables.iter().map(|t| t.printed_avg_busbw.map(|avg| avg.0)).collect();
    assert_eq!(averages, [Some(3.94145), Some(3.94156), Some(3.95192)]);
    assert!(tables.iter().all(|t| t.finished && t.rows.is_empty() && t.collective == Some(Collective::AllReduce)));
    let bounds: Vec<_> = tables.iter().filter_map(|t| t.out_of_bounds.as_ref()).map(|o| (o.count, o.ok)).collect();
    assert_eq!(bounds, [(0, true), (4, false), (0, true)]);

    // Two processes at once, each line twice.
    let run = data("stat-tag.log");
    let run: Vec<&str> = run.lines().take(26).collect();
    let twice = run.iter().flat_map(|line| [*line, *line]).map(|line| ("", line));
    let (tables, _) = read_lines(twice);
    assert_eq!(tables.len(), 2);
    for table in &tables {
        assert_eq!((table.rows.len(), table.devices.len(), table.finished), (5, 2, true));
        assert_eq!(table.settings.gpus_per_thread, Some(2));
    }
}

#[test]
fn streams_do_not_share_a_table() {
    let row = "1048576 262144 float sum -1 120.50 8.70 15.22 0";
    let half = "119.80 8.75 15.32 0";
    let (tables, taken) = read_lines([
        ("0", HEADER),
        ("1", HEADER),
        ("0", row),
        ("1", row),
        ("1", half),
        ("2", "5"),
        ("0", "119.80 8.75"),
    ]);
    assert_eq!(taken, [true, true, true, true, true, false, true]);
    let halves: Vec<_> = tables.iter().map(|t| t.rows[0].halves().count()).collect();
    assert_eq!(halves, [1, 2], "stream 0 was interrupted in its second half");
}

#[test]
fn interrupted_rows() {
    let whole = "8 2 float sum -1 30.00 0.00 0.00 0 31.00 0.00 0.00 0";
    let cases = [
        ("16 4 float sum -1", 1),
        ("16 4", 1),
        ("16 4 float sum -1 30.00 0.00", 1),
        ("16 4 float sum -1 30.00 0.00 0.00 0", 2),
        ("16 4 float sum -1 30.00 0.00 0.00 0 31.00", 2),
    ];
    for (torn, rows) in cases {
        assert_eq!(one(&format!("{HEADER}\n{whole}\n{torn}")).rows.len(), rows, "{torn}");
        let next = format!("{HEADER}\n{torn}\n{whole}");
        assert_eq!(one(&next).rows.len(), rows, "{torn}");
    }
}

#[test]
fn halves_that_are_no_numbers_are_left_out() {
    let table = one(&format!(
        "{HEADER}\n\
         8 2 float sum -1 0.00 inf inf 0 31.00 0.00 0.01 0\n\
         16 4 float sum -1 30.00 0.00 0.03 0 -nan nan nan N/A\n\
         32 8 float sum -1 nan nan nan 0 nan nan nan 0\n"
    ));
    let halves: Vec<_> = table.rows.iter().map(|row| row.halves().count()).collect();
    assert_eq!(halves, [1, 1, 0]);
    assert_eq!(table.mean_busbw().map(|mean| mean.0), Some(0.02));
}

#[test]
fn alltoallv_prints_its_summary_inside_the_row() {
    // NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY, src/alltoallv.cu of 2.19.6: printed after the start of the row.
    let summary = "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=2 total_bytes=1048576 spread=0.500 time_usec=120.50";
    let rank = "#   rank=0 send_bytes=1048576 recv_bytes=1048576 alg_bw=8.70 bus_bw=4.35";
    let table = one(&format!(
        "{HEADER}\n1048576 131072 float none -1{summary}\n{rank}\n  120.50    8.70    4.35       0{summary}\n{rank}\n  119.80    8.75    4.38     N/A\n"
    ));
    assert_eq!(cells(&table.rows[0]), ["120.5/8.7/4.35/0", "119.8/8.75/4.38/N/A"]);
}

#[test]
fn skew_belongs_to_the_row_of_its_size() {
    let row = |size: u64| format!("{size} {} float none -1 100.00 0.01 0.01 0 100.00 0.01 0.01 N/A\n", size / 16);
    let said = "even 50.00 us, bound 162.50 us; rank 3 on node1 receives 3.25 times an even share; host node1 receives 1.75 times an even share; load my tokens.txt";
    let table = one(&format!(
        "{HEADER}\n{}{}#\n# Skew: out of place, against an even exchange\n# Skew {:>12} {:>8}: 0.62 of the bound; {said}\n\
         # Skew at 2048 bytes, to and from others (ranks, the busiest first):\n# Skew rank 3: sends 1 bytes, receives 2 bytes\n\
         # Skew         1024    float: nonsense\n# Out of bounds values : 0 OK\n",
        row(1024),
        row(2048),
        2048,
        "float"
    ));
    assert_eq!((table.rows.len(), &table.rows[0].skew), (2, &None));
    assert_eq!(table.rows[1].skew.as_ref().map(ToString::to_string).as_deref(), Some(said));
}

#[test]
fn other_numbers_are_no_rows() {
    let lines: Vec<String> = cases("no_rows");
    for line in &lines {
        let (tables, _) = read_lines([("", line.as_str())]);
        assert!(tables.iter().all(|t| t.rows.is_empty()) && tables.is_empty(), "{line}: {tables:?}");
    }
    // Nor below a header and a row.
    let row = "8 2 float sum -1 30.00 0.00 0.00 0 31.00 0.00 0.00 0";
    for line in &lines {
        let (tables, _) = read_lines([("", HEADER), ("", row), ("", line.as_str())]);
        assert!(tables[0].rows.len() == 1 || line.contains(" float sum -1"), "{line}: {tables:?}");
    }
}

#[test]
fn most_lines_of_a_log_are_sorted_out_at_once() {
    for line in cases::<String>("no_table") {
        assert!(!TableReader::may_belong(line.as_bytes()), "{line:?}");
    }
    for line in
        ["  N/A", "-1 117.8", "  0.00", "[STAT]:524288000 1", "$ ./all_reduce_perf", "nan", "Avg bus bandwidth : 1"]
    {
        assert!(TableReader::may_belong(line.as_bytes()), "{line:?}");
    }
}

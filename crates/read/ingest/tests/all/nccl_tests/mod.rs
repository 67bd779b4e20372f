//! Tables of nccl-tests: every release's format, real logs, torn rows, and what must not be taken for a table.

mod inference;
mod logs;
mod properties;
mod releases;
mod shapes;

use busbw_ingest::TextLine;
use busbw_ingest::nccl_tests::TableReader;
use busbw_model::{BenchRow, BenchTable, Check, Place};

/// Columns of current releases.
const HEADER: &str = "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong";

fn read_lines<'a>(lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Vec<BenchTable>, Vec<bool>) {
    let mut reader = TableReader::default();
    let mut taken = Vec::new();
    for (line, (stream, text)) in (1..).zip(lines) {
        let belongs = reader.feed(&TextLine { place: Place { input: 0, line }, stream, text });
        assert!(!belongs || TableReader::may_belong(text.as_bytes()), "may_belong refuses {text:?}");
        taken.push(belongs);
    }
    (reader.finish(), taken)
}

fn read(text: &str) -> Vec<BenchTable> {
    read_lines(text.lines().map(|line| ("", line))).0
}

/// The only table of a text.
fn one(text: &str) -> BenchTable {
    let mut tables = read(text);
    assert_eq!(tables.len(), 1, "{text}");
    tables.remove(0)
}

fn data(name: &str) -> String {
    let path = format!("{}/tests/data/nccl_tests/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// `time/algbw/busbw/check` of both halves.
fn cells(row: &BenchRow) -> [String; 2] {
    [&row.out_of_place, &row.in_place].map(|half| match half {
        None => "-".to_string(),
        Some(m) => {
            let check = match m.check {
                Check::NotDone => "N/A".to_string(),
                Check::Wrong(count) => count.to_string(),
                Check::MaxError(error) => format!("{error:e}"),
            };
            format!("{}/{}/{}/{check}", m.time.0, m.algbw.0, m.busbw.0)
        }
    })
}

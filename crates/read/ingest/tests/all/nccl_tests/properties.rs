//! What holds for any text and for any way of tearing a table.

use super::{HEADER, data, read, read_lines};
use busbw_model::{BenchTable, Place, SourceLine};
use proptest::prelude::*;

/// Tables without the lines of their rows and devices, which differ when a row came in pieces.
fn without_evidence(mut tables: Vec<BenchTable>) -> Vec<BenchTable> {
    for row in tables.iter_mut().flat_map(|table| &mut table.rows) {
        row.source = SourceLine::default();
    }
    for table in &mut tables {
        table.devices.iter_mut().for_each(|device| device.source = SourceLine::default());
        table.place = Place::default();
        table.out_of_bounds = None;
    }
    tables
}

/// A piece of text that lies near what the reader looks for.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("#".to_string()),
        Just(HEADER.to_string()),
        Just("# Avg bus bandwidth    :".to_string()),
        Just("# Out of bounds values :".to_string()),
        Just("#  Rank  0 Group  0 Pid 1 on h device  0 [".to_string()),
        Just("# nThread 1 step: 2(factor) iters:".to_string()),
        Just("nccl-library=".to_string()),
        Just("_perf".to_string()),
        Just("[STAT]:".to_string()),
        "(float|half|sum|none|N/A|nan|inf|-1|-nan|1e999|é)",
        "-?[0-9]{1,20}",
        "[0-9]{1,4}\\.[0-9]{2}",
        "\\PC{0,6}",
    ]
}

fn line() -> impl Strategy<Value = String> {
    (prop::collection::vec(word(), 0..18), "( |\t|)")
        .prop_map(|(words, space)| words.join(if space.is_empty() { " " } else { &space }))
}

proptest! {
    #[test]
    fn no_text_panics(lines in prop::collection::vec((0..3usize, line()), 0..40)) {
        let streams = ["", "0", "1"];
        read_lines(lines.iter().map(|(stream, text)| (streams[*stream], text.as_str())));
    }

    #[test]
    fn rows_in_pieces_give_the_same_table(
        file in prop::sample::select(vec!["h20-collapsed.log", "stat-tag.log", "one-half.log", "error-column.md", "step-bytes.log", "current.log"]),
        cuts in prop::collection::vec((0..13usize, 0..13usize), 1..40),
        noise in prop::sample::select(vec!["", "NCCL version 2.18.5+cuda12.2", "step 12 loss 0.3", "# heading"]),
    ) {
        let text = data(file);
        let mut pieces: Vec<&str> = Vec::new();
        let mut cuts = cuts.iter().cycle();
        for line in text.lines() {
            let row = line.trim_start().starts_with(|c: char| c.is_ascii_digit()) || line.starts_with("[STAT]");
            let (first, second) = cuts.next().copied().unwrap_or_default();
            let mut ends: Vec<usize> = if row { word_ends(line) } else { Vec::new() };
            ends = [first.min(second), first.max(second)].iter().filter_map(|at| ends.get(*at).copied()).collect();
            ends.push(line.len());
            let mut start = 0;
            for end in ends {
                pieces.extend([&line[start..end], noise]);
                start = end;
            }
        }
        let (tables, _) = read_lines(pieces.iter().map(|piece| ("", *piece)));
        prop_assert_eq!(without_evidence(tables), without_evidence(read(&text)));
    }
}

/// Where the words of a line end.
fn word_ends(line: &str) -> Vec<usize> {
    let ends = line.char_indices().zip(line.chars().skip(1));
    ends.filter(|((_, c), next)| !c.is_whitespace() && next.is_whitespace())
        .map(|((at, c), _)| at + c.len_utf8())
        .collect()
}

//! Reads the tables of nvbandwidth: `memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)`, a line with the numbers of the columns, and a row per device.
//! Forms: `output.cpp` and `testcase*.cpp` of NVIDIA/nvbandwidth, v0.1 to v0.10. And those of p2pBandwidthLatencyTest (NVIDIA/cuda-samples):
//! `Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)`, with `D\D` before the numbers of the columns.

use crate::TextLine;
use busbw_model::{CopyRate, CopyTable, Place, SourceLine};
use rustc_hash::FxHashMap;

/// Collects tables from lines.
///
/// ```
/// use busbw_ingest::{TextLine, nvbandwidth::CopyReader};
/// use busbw_model::Place;
/// let mut reader = CopyReader::default();
/// let table = ["memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", "           0         1", " 0       N/A    276.07", " 1    274.41       N/A"];
/// for text in table {
///     assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// }
/// assert_eq!(reader.finish()[0].copies[1].gb_s, 274.41);
/// ```
#[derive(Debug, Default)]
pub struct CopyReader {
    found: Vec<CopyTable>,
    /// Streams inside a table.
    open: FxHashMap<Box<str>, OpenTable>,
}

#[derive(Debug)]
struct OpenTable {
    /// Which it is among those found.
    table: usize,
    columns: Vec<u32>,
    /// Its last line.
    last: Place,
}

/// What p2pBandwidthLatencyTest prints where the columns meet the rows.
const CORNER: &str = "D\\D";
/// Lines of other streams that may stand between two of a table.
const BETWEEN: u64 = 4;

impl CopyReader {
    /// False only when the text cannot belong to a table; looks at the first bytes only.
    pub fn may_belong(text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        const STARTS: [&[u8]; 4] = [b"memcpy ", b"Unidirectional P2P=", b"Bidirectional P2P=", CORNER.as_bytes()];
        STARTS.iter().any(|start| text.starts_with(start)) || text.first().is_some_and(u8::is_ascii_digit)
    }

    /// Takes a line; true when it belongs to a table.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim();
        if let Some(what) = heading(text) {
            let open = OpenTable { table: self.found.len(), columns: Vec::new(), last: line.place };
            self.open.insert(line.stream.into(), open);
            self.found.push(CopyTable { place: line.place, what: what.into(), copies: Vec::new() });
            return true;
        }
        let Some(OpenTable { table, columns, last }) = self.open.get_mut(line.stream) else { return false };
        let table = &mut self.found[*table];
        let cells: Vec<&str> = text.strip_prefix(CORNER).unwrap_or(text).split_whitespace().collect();
        let is_near = line.place.line.saturating_sub(last.line) <= BETWEEN;
        let taken = match columns.is_empty() {
            _ if !is_near => false,
            true => read_columns(&cells).map(|read| *columns = read).is_some(),
            false => read_row(line, &cells, columns).map(|copies| table.extend(copies)).is_some(),
        };
        *last = line.place;
        if !taken {
            self.open.remove(line.stream);
        }
        taken
    }

    /// The tables that have a figure, in the order printed.
    pub fn finish(mut self) -> Vec<CopyTable> {
        self.found.retain(|table| !table.copies.is_empty());
        self.found
    }
}

fn heading(text: &str) -> Option<&str> {
    let what = text.strip_suffix(" (GB/s)")?;
    let is_of_nvbandwidth = what.starts_with("memcpy ") && what.contains("(row) ") && what.contains("(column)");
    let is_of_p2p = what.ends_with(" Matrix") && what.contains("directional P2P=");
    (is_of_nvbandwidth || is_of_p2p).then_some(what)
}

/// The numbers of the devices, one after the other.
fn read_columns(cells: &[&str]) -> Option<Vec<u32>> {
    let numbers: Vec<u32> = cells.iter().map(|cell| cell.parse().ok()).collect::<Option<_>>()?;
    (!numbers.is_empty() && numbers.is_sorted_by(|a, b| a < b)).then_some(numbers)
}

/// The copies of a row; what was not measured is `N/A`, and 0.00 in the first versions.
fn read_row(line: &TextLine, cells: &[&str], columns: &[u32]) -> Option<Vec<CopyRate>> {
    let (row, cells) = cells.split_first().filter(|(_, cells)| cells.len() == columns.len())?;
    let row = row.parse().ok().filter(|row| columns.last().is_some_and(|last| row <= last))?;
    let mut copies = Vec::new();
    for (cell, column) in cells.iter().zip(columns) {
        if *cell == "N/A" {
            continue;
        }
        let gb_s: f64 = cell.parse().ok().filter(|gb_s: &f64| gb_s.is_finite() && *gb_s >= 0.0)?;
        let source = SourceLine::new(line.place, line.text.trim());
        copies.extend((gb_s > 0.0).then_some(CopyRate { row, column: *column, gb_s, source }));
    }
    Some(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_the_samples_is_a_table() {
        let text = "\
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 2573.14 742.21
     1 744.49 2578.12
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   2.12   2.73
";
        let mut reader = CopyReader::default();
        let claimed = text.lines().filter(|text| reader.feed(&TextLine { place: Place::default(), stream: "", text }));
        assert_eq!(claimed.count(), 4);
        let tables = reader.finish();
        let [table] = &tables[..] else { panic!("{tables:?}") };
        let cells: Vec<_> = table.copies.iter().map(|copy| (copy.row, copy.column, copy.gb_s)).collect();
        assert_eq!((table.is_between_gpus(), cells), (true, vec![(0, 1, 742.21), (1, 0, 744.49)]));
    }

    #[test]
    fn a_table_ends_with_its_rows() {
        let mut reader = CopyReader::default();
        let text = "\
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.32     55.31

SUM host_to_device_memcpy_ce 110.63
 0     11.00     12.00
memory latency SM CPU(row) <-> GPU(column) (ns)
           0         1
 0    772.58    772.96
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
          0         1
0      0.00    276.07
1    274.41      0.00
";
        let claimed = text.lines().filter(|text| reader.feed(&TextLine { place: Place::default(), stream: "", text }));
        assert_eq!(claimed.count(), 7);
        let cells = |table: &CopyTable| -> Vec<(u32, u32, f64)> {
            table.copies.iter().map(|copy| (copy.row, copy.column, copy.gb_s)).collect()
        };
        let tables = reader.finish();
        let found: Vec<_> = tables.iter().map(|table| (table.is_between_gpus(), cells(table))).collect();
        let expected = [(false, vec![(0, 0, 55.32), (0, 1, 55.31)]), (true, vec![(0, 1, 276.07), (1, 0, 274.41)])];
        assert_eq!(found, expected);
    }
}

//! Tables of busbw that programs other than nccl-tests print: `all_reduce_bench.py` of stas00/ml-engineering (2024 to 2026) and the communication
//! benchmarks of deepspeedai/DeepSpeedExamples (2022 to 2025).
//!
//! ```text
//! The average bandwidth of all_reduce over 16 ranks (5 warmups / 20 trials):
//! | payload |    busbw   |    algbw   |
//! |   64MiB | 197.77GBps | 105.48GBps |
//!
//! The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):
//!  algbw: 176.590 GBps (1412.7 Gbps)
//!  busbw: 331.106 GBps (2648.8 Gbps)
//!
//! ---- Performance of all_reduce on 8 devices ---------------------------------------------------------
//! Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)
//! 31.67 GB             8501054668x4              3176.620 ms          171.272              149.863
//! ```
//!
//! Their throughput is not always size over time, so algbw follows from busbw. Small messages are left out: what a call from Python costs is in their
//! times, which nccl-tests' are held to be without.

use crate::TextLine;
use crate::nccl_tests::infer;
use crate::text::leading;
use busbw_model::{BenchRow, BenchTable, Bytes, Check, Collective, GBps, Measure, Micros, SourceLine};
use rustc_hash::FxHashMap;

/// Smaller messages show what calls cost.
const LEAST: f64 = (1 << 20) as f64;

/// Collects tables from lines.
#[derive(Debug, Default)]
pub(crate) struct OtherTables {
    found: Vec<BenchTable>,
    open: FxHashMap<Box<str>, Open>,
}

/// A table whose rows may follow.
#[derive(Debug, Default)]
struct Open {
    table: BenchTable,
    /// The bytes of the only row, where its title tells them.
    payload: Option<f64>,
    columns: Option<Columns>,
}

/// Where a row has what.
#[derive(Debug, Clone, Copy)]
struct Columns {
    size: usize,
    busbw: usize,
    count: usize,
    /// GB/s in one of the column's unit; the cells of some tables have a unit each.
    unit: Option<f64>,
}

impl OtherTables {
    /// False only when the text cannot belong to such a table.
    pub fn may_belong(text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        const STARTS: [&[u8]; 6] =
            [b"|", b"The average bandwidth", b"---- Performance of ", b"Size (Bytes)", b"algbw: ", b"busbw: "];
        STARTS.iter().any(|start| text.starts_with(start)) || text.first().is_some_and(u8::is_ascii_digit)
    }

    /// Takes a line; true when it belongs to a table.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim();
        if let Some((collective, nranks, payload)) = title(text) {
            self.close(line.stream);
            let table = BenchTable {
                place: line.place,
                label: line.stream.into(),
                collective,
                nranks,
                ..BenchTable::default()
            };
            self.open.insert(line.stream.into(), Open { table, payload, columns: None });
            return true;
        }
        if let Some(columns) = columns(text) {
            let has_rows = self.open.get(line.stream).is_some_and(|open| !open.table.rows.is_empty());
            if has_rows {
                self.close(line.stream);
            }
            let open = self.open.entry(line.stream.into()).or_insert_with(|| Open {
                table: BenchTable { place: line.place, label: line.stream.into(), ..BenchTable::default() },
                ..Open::default()
            });
            // Without a title it is the script that measures nothing else.
            open.table.collective.get_or_insert(Collective::AllReduce);
            open.columns = Some(columns);
            return true;
        }
        self.open.get_mut(line.stream).is_some_and(|open| open.row(line, text))
    }

    /// The tables in the order of their first lines.
    pub fn finish(mut self) -> Vec<BenchTable> {
        let streams: Vec<Box<str>> = self.open.keys().cloned().collect();
        streams.iter().for_each(|stream| self.close(stream));
        self.found.sort_by_key(|table| table.place);
        self.found
    }

    fn close(&mut self, stream: &str) {
        let Some(Open { mut table, .. }) = self.open.remove(stream) else { return };
        if !table.rows.is_empty() {
            table.finished = true;
            infer::complete(&mut table, None, false);
            table.rows.iter_mut().for_each(|row| complete(row, table.collective, table.nranks));
            self.found.push(table);
        }
    }
}

impl Open {
    fn row(&mut self, line: &TextLine, text: &str) -> bool {
        if let (Some(payload), Some(busbw)) = (self.payload, text.strip_prefix("busbw: ")) {
            self.payload = None;
            return busbw.split(" (").next().and_then(rate).is_some_and(|busbw| self.push(line, payload, busbw, None));
        }
        let Some(columns) = self.columns else { return false };
        let cells = cells(text);
        if cells.len() != columns.count {
            return false;
        }
        let (size, busbw) = (cells[columns.size], cells[columns.busbw]);
        let busbw = match columns.unit {
            Some(unit) => busbw.parse::<f64>().ok().map(|figure| figure * unit),
            None => rate(busbw),
        };
        // The ratio of the two tells the number of ranks where no title does.
        let algbw = cells.get(columns.busbw + 1).copied().and_then(rate).filter(|_| columns.unit.is_none());
        let (Some(size), Some(busbw)) = (bytes(size), busbw) else { return false };
        self.push(line, size, busbw, algbw)
    }

    fn push(&mut self, line: &TextLine, size: f64, busbw: f64, algbw: Option<f64>) -> bool {
        let is_sound = busbw.is_finite() && busbw > 0.0 && size.is_finite();
        if is_sound && size >= LEAST {
            let measure = Measure {
                time: Micros(0.0),
                algbw: GBps(algbw.unwrap_or_default()),
                busbw: GBps(busbw),
                check: Check::NotDone,
                iterations: None,
            };
            let source = SourceLine::new(line.place, line.text.trim());
            let row = BenchRow { size: Bytes(size as u64), out_of_place: Some(measure), source, ..BenchRow::default() };
            self.table.rows.push(row);
        }
        is_sound
    }
}

/// Fills in algbw and time.
fn complete(row: &mut BenchRow, collective: Option<Collective>, nranks: Option<u32>) {
    let factor = collective.zip(nranks).map(|(collective, nranks)| collective.busbw_factor(nranks));
    let Some(measure) = &mut row.out_of_place else { return };
    if let Some(factor) = factor.filter(|factor| *factor > 0.0) {
        measure.algbw = GBps(measure.busbw.0 / factor);
    }
    if measure.algbw.0 > 0.0 {
        measure.time = Micros(row.size.0 as f64 / measure.algbw.0 / 1e3);
    }
}

/// What a title says: the operation, the ranks, and the size of the only row.
fn title(text: &str) -> Option<(Option<Collective>, Option<u32>, Option<f64>)> {
    if let Some(rest) = text.strip_prefix("---- Performance of ") {
        let (name, rest) = rest.split_once(" on ")?;
        return Some((Collective::from_name(name), leading(rest), None));
    }
    let rest = text.strip_prefix("The average bandwidth ")?;
    let rest = rest.split_once("of ").map(|(_, rest)| rest)?;
    let (name, rest) = rest.split_once(' ')?;
    let ranks = rest.split_once(" ranks").and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    let payload = rest.split_once("with a ").and_then(|(_, rest)| decimal_bytes(rest.split_once(" payload")?.0));
    Some((Collective::from_name(name), ranks, payload))
}

/// The columns of a header that names a size and busbw.
fn columns(text: &str) -> Option<Columns> {
    let cells = cells(text);
    let at = |names: [&str; 2]| cells.iter().position(|cell| names.contains(&cell.split(" (").next().unwrap_or(cell)));
    let (size, busbw) = (at(["payload", "Size"])?, at(["busbw", "BusBW"])?);
    let unit = match cells[busbw].split_once(" (").map(|(_, unit)| unit.trim_end_matches(')')) {
        Some(unit) => Some(rate(&format!("1 {unit}"))?),
        None => None,
    };
    Some(Columns { size, busbw, count: cells.len(), unit })
}

/// The cells of a row, between bars or two blanks and more.
fn cells(text: &str) -> Vec<&str> {
    let separator = if text.starts_with('|') { "|" } else { "  " };
    text.split(separator).map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// `331.106 GBps`, `0.92GBps`, `2648.8 Gbps` in GB/s.
fn rate(text: &str) -> Option<f64> {
    let (figure, unit) = quantity(text)?;
    let (prefix, in_bytes) = match (unit.strip_suffix("Bps"), unit.strip_suffix("bps")) {
        (Some(prefix), _) => (prefix, 1.0),
        (_, Some(prefix)) => (prefix, 0.125),
        _ => return None,
    };
    let gigas = ["M", "G", "T"].iter().position(|known| *known == prefix)? as i32 - 1;
    Some(figure * in_bytes * 1e3_f64.powi(gigas))
}

/// `64MiB`, `31.67 GB`, `1048576`: also where no `i` says so, the programs count in powers of 1024.
fn bytes(text: &str) -> Option<f64> {
    in_bytes(text, 1024.0)
}

/// `4.0GB` of the title that tells a payload in powers of 1000.
fn decimal_bytes(text: &str) -> Option<f64> {
    in_bytes(text, 1000.0)
}

fn in_bytes(text: &str, step: f64) -> Option<f64> {
    let (figure, unit) = quantity(text)?;
    let prefix = if unit.is_empty() { "" } else { unit.strip_suffix('B')?.trim_end_matches('i') };
    let power = ["", "K", "M", "G", "T"].iter().position(|known| *known == prefix)?;
    Some(figure * step.powi(power as i32))
}

/// A figure and its unit.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (figure, unit) = text.split_at(end);
    Some((figure.parse().ok()?, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Place;

    fn read(text: &str) -> Vec<BenchTable> {
        let mut reader = OtherTables::default();
        for (line, text) in (1..).zip(text.lines()) {
            if OtherTables::may_belong(text.as_bytes()) {
                reader.feed(&TextLine { place: Place { input: 0, line }, stream: "", text });
            }
        }
        reader.finish()
    }

    fn row(table: &BenchTable, at: usize) -> (u64, f64, f64) {
        let measure = table.rows[at].out_of_place.as_ref().unwrap();
        (table.rows[at].size.0, measure.busbw.0, (measure.time.0 * 10.0).round() / 10.0)
    }

    #[test]
    fn a_table_between_bars() {
        let rows = "| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n|   32KiB |   1.44GBps |   0.82GBps |\n\
                    |    1MiB |  39.93GBps |  22.82GBps |\n|    1GiB | 463.58GBps | 264.90GBps |\n";
        let tables = read(rows);
        assert_eq!((tables[0].collective, tables[0].nranks), (Some(Collective::AllReduce), Some(8)));
        assert_eq!((tables[0].rows.len(), row(&tables[0], 1)), (2, (1 << 30, 463.58, 4053.3)));
        let title =
            "The average bandwidth and the per-call latency of reduce_scatter over 32 ranks (5 warmups / 20 trials):\n";
        let tables = read(&format!("{title}\n{rows}"));
        assert_eq!((tables[0].collective, tables[0].nranks), (Some(Collective::ReduceScatter), Some(32)));
    }

    #[test]
    fn one_payload() {
        let text = "The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):\n algbw: 176.590 GBps (1412.7 Gbps)\n \
                    busbw: 331.106 GBps (2648.8 Gbps)\n";
        let tables = read(text);
        assert_eq!((tables[0].collective, tables[0].nranks), (Some(Collective::AllReduce), Some(16)));
        assert_eq!(row(&tables[0], 0), (4_000_000_000, 331.106, 22651.4));
    }

    #[test]
    fn tables_of_deepspeed() {
        let text = "---- Performance of all_gather on 8 devices ---------------------------------------------------------\n\
            Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)\n\
            ----------------------------------------------------------------------------------------------------\n\
            1.0 GB               8501054668x4              3176.620 ms          171.272              160.0\n\
            16.0 KB              16x256                    97.54 us             1.376                1.2\n";
        let tables = read(text);
        assert_eq!(
            (tables[0].collective, tables[0].nranks, tables[0].rows.len()),
            (Some(Collective::AllGather), Some(8), 1)
        );
        assert_eq!(row(&tables[0], 0).1, 20.0);
    }

    #[test]
    fn other_tables_are_none() {
        for text in
            ["| a | b |\n| 1 | 2 |\n", "1.0 GB  2  3\n", "The average bandwidth of the link\n", "busbw: 3.2 GBps\n"]
        {
            assert!(read(text).is_empty(), "{text}");
        }
    }
}

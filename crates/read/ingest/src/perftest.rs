//! Reads what the perftest programs (`ib_write_bw`, `ib_read_lat` …) print: header, table and JSON; the tables of OSU's benchmarks and of
//! `ucx_perftest`; the results of DeepEP's tests and of `iperf3`. Titles and columns are those of `src/perftest_parameters.h` in linux-rdma/perftest, from its first
//! version to v4.5-0.20, of `c/util/osu_util.h` in the OSU micro-benchmarks, 5.0 to 7.5, and of `src/tools/perf/perftest.c` in UCX, 1.4 to 1.20.

use crate::{TextLine, deepep, iperf};
use busbw_model::{Bytes, Micros, PerfRow, PerfTest, Place, SourceLine};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

/// Gbit/s in one MiB/s. `MB/sec`, the unit until 2024, was the same: perftest divides by 0x100000.
const GBIT_PER_MIB: f64 = (1 << 20) as f64 * 8.0 / 1e9;
/// Gbit/s in one MB/s of OSU's, which divides by 10^6.
const GBIT_PER_MB: f64 = 8e-3;

/// How much of a text is looked at to recognise a report, in bytes; the key stands in its first line.
const JSON_HEAD: usize = 4096;

/// Collects tests from lines.
///
/// ```
/// use busbw_ingest::{TextLine, perftest::PerftestReader};
/// use busbw_model::{PerfRow, Place};
/// let mut reader = PerftestReader::default();
/// let table = [
///     " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
///     " 8388608    5000             197.10             196.92               0.002934",
/// ];
/// for text in table {
///     assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// }
/// let test = reader.finish().remove(0);
/// assert!(matches!(test.rows[0], PerfRow::Bandwidth { average_gbit_s: 196.92, .. }));
/// ```
#[derive(Debug, Default)]
pub struct PerftestReader {
    found: Vec<PerfTest>,
    open: FxHashMap<Box<str>, OpenTest>,
}

#[derive(Debug, Default)]
struct OpenTest {
    test: PerfTest,
    columns: Vec<Column>,
    /// Gbit/s in one unit of its bandwidths.
    unit: f64,
}

impl PerftestReader {
    /// False only when the text cannot belong to a test; looks at the first bytes only, except for titles.
    pub fn may_belong(text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        match text.first() {
            Some(b'0'..=b'9' | b'#') => true,
            Some(b'-') => text.starts_with(b"--------"),
            Some(b'|') => text.trim_ascii_end().ends_with(b"(msg/s) |"),
            Some(b'F') => text.starts_with(UCX_RESULT.as_bytes()),
            Some(b'[' | b'D') if deepep::may_belong(text) || iperf::may_belong(text.trim_ascii_end()) => true,
            Some(b'A' | b'R' | b'S') if text.trim_ascii_end().ends_with(b" Test") => true,
            _ => is_known_line(text),
        }
    }

    /// Takes a line; true when it belongs to a test.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim_ascii();
        if let Some((name, row)) = deepep::read(text) {
            let source = SourceLine::new(line.place, text);
            self.found.push(PerfTest { source, test: Some(name), rows: vec![row], ..PerfTest::default() });
            return true;
        }
        if let Some(test) = iperf::read(text).filter(|_| iperf::may_belong(text.as_bytes())) {
            self.found.push(PerfTest { source: SourceLine::new(line.place, text), ..test });
            return true;
        }
        if is_ucx_header(text) {
            let open = self.start(line);
            open.test.test = Some("ucx_perftest".to_string());
            (open.columns, open.unit) = (UCX_COLUMNS.into(), GBIT_PER_MIB);
            return true;
        }
        if is_title(text) || is_osu_title(text) {
            self.start(line).test.test = Some(text.trim_start_matches(['#', ' ']).to_string());
            return true;
        }
        if let Some((columns, unit)) = read_columns(text).or_else(|| self.osu_columns(line.stream, text)) {
            let continues = self.open.get(line.stream).is_some_and(|open| open.test.rows.is_empty());
            let open = if continues { self.open.get_mut(line.stream) } else { Some(self.start(line)) };
            if let Some(open) = open {
                (open.columns, open.unit) = (columns, unit);
            }
            return true;
        }
        let Some(open) = self.open.get_mut(line.stream) else { return false };
        if text.len() > 40 && text.bytes().all(|b| b == b'-') {
            if !open.test.rows.is_empty() {
                self.close(line.stream);
            }
            return true;
        }
        if is_known_line(text.as_bytes()) {
            open.header_line(line.place, text);
            return true;
        }
        // Below a table of OSU's stands another of their programs', in columns that look alike.
        let is_row = open.row(text);
        let is_over = !is_row && open.is_osu() && !open.test.rows.is_empty();
        if is_over {
            self.close(line.stream);
        }
        is_row
    }

    /// The tests in the order of their first lines. A header without a row is left out: nothing was measured.
    pub fn finish(mut self) -> Vec<PerfTest> {
        self.found.extend(self.open.into_values().map(|open| open.test).filter(|test| !test.rows.is_empty()));
        self.found.sort_by_key(|test| test.source.place);
        self.found
    }

    /// `# Size      Bandwidth (MB/s)`, which others head tables with as well: below a title of OSU's. Two blanks and more part titles. The least and the
    /// most of a collective are of ranks, not of calls.
    fn osu_columns(&self, stream: &str, text: &str) -> Option<(Vec<Column>, f64)> {
        let titles = text.strip_prefix('#')?.trim_start().strip_prefix("Size")?;
        self.open.get(stream).filter(|open| open.is_osu())?;
        let titles = titles.split("  ").map(str::trim).filter(|title| !title.is_empty());
        let column = |title| match title {
            "Bandwidth (MB/s)" => Column::Average,
            "Latency (us)" | "Avg Latency(us)" => Column::AverageTime,
            _ => Column::Other,
        };
        let columns: Vec<Column> = [Column::Size].into_iter().chain(titles.map(column)).collect();
        columns[1..].iter().any(|column| *column != Column::Other).then_some((columns, GBIT_PER_MB))
    }

    fn start(&mut self, line: &TextLine) -> &mut OpenTest {
        self.close(line.stream);
        let source = SourceLine::new(line.place, line.text.trim());
        let test = PerfTest { source, ..PerfTest::default() };
        self.open.entry(line.stream.into()).or_insert(OpenTest { test, ..OpenTest::default() })
    }

    fn close(&mut self, stream: &str) {
        let test = self.open.remove(stream).map(|open| open.test);
        self.found.extend(test.filter(|test| !test.rows.is_empty()));
    }
}

impl OpenTest {
    fn is_osu(&self) -> bool {
        self.test.test.as_deref().is_some_and(is_osu_title)
    }

    /// `Number of qps   : 20    Transport type : IB`: pairs of which both may matter.
    fn header_line(&mut self, place: Place, text: &str) {
        let test = &mut self.test;
        let word = |key: &str| value_of(text, key).map(str::to_string);
        let number = |key: &str| value_of(text, key).and_then(|value| value.trim_end_matches("[B]").parse().ok());
        test.device = test.device.take().or_else(|| word("Device"));
        test.queue_pairs = test.queue_pairs.or_else(|| number("Number of qps"));
        test.connection = test.connection.take().or_else(|| word("Connection type"));
        test.link_type = test.link_type.take().or_else(|| word("Link type"));
        if let Some(mtu) = number("Mtu").filter(|_| test.mtu.is_none()) {
            (test.mtu, test.mtu_line) = (Some(mtu), Some(SourceLine::new(place, text)));
        }
        test.gid_index = test.gid_index.or_else(|| number("GID index"));
        if let Some(end) = end_of(text).filter(|end| !test.ends.contains(end)) {
            test.ends.push(end);
        }
    }

    fn row(&mut self, text: &str) -> bool {
        // A table that was copied into a shell comment has `#` before its rows, as before its header.
        let cells: Vec<&str> = text.trim_start_matches("# ").split_whitespace().collect();
        if self.columns.is_empty() || cells.len() != self.columns.len() {
            return false;
        }
        let is_due = |(cell, column): (&&str, &Column)| match column {
            Column::Size | Column::Iterations => cell.parse::<u64>().is_ok(),
            Column::Final => *cell == UCX_RESULT,
            // OSU says in one whether the data were right: `Pass`.
            Column::Other => true,
            _ => cell.parse::<f64>().is_ok(),
        };
        if !cells.iter().zip(&self.columns).all(is_due) {
            return false;
        }
        let value = |column| self.cell(column, &cells)?.parse().ok().filter(|number: &f64| number.is_finite());
        // UCX tells how many bytes and how many messages went in a second, the latter without decimals.
        let per_message = || {
            let bytes = value(Column::Average)? * f64::from(1 << 20) / value(Column::MessagesPerSecond)?;
            bytes.is_finite().then(|| bytes.round() as u64)
        };
        let told = self.cell(Column::Size, &cells).and_then(|cell| cell.parse().ok());
        let Some(size) = told.or_else(per_message) else { return false };
        let row = read_row(Some(Bytes(size)), value, self.unit);
        self.test.rows.extend(row);
        true
    }

    fn cell<T: Copy>(&self, wanted: Column, cells: &[T]) -> Option<T> {
        self.columns.iter().position(|column| *column == wanted).and_then(|at| cells.get(at)).copied()
    }
}

/// What stands in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Size,
    Iterations,
    Peak,
    Average,
    MessageRate,
    MessagesPerSecond,
    Min,
    Max,
    Typical,
    AverageTime,
    P99,
    P999,
    /// The word `Final:`.
    Final,
    /// Service level, ports of a dual-port test, standard deviation, transactions per second, CPU load.
    Other,
}

/// What is held by columns of this title, and by members of JSON of this name.
const COLUMNS: [(&str, &str, Column); 11] = [
    ("#bytes", "MsgSize", Column::Size),
    ("#iterations", "n_iterations", Column::Iterations),
    ("BW peak", "BW_peak", Column::Peak),
    ("BW average", "BW_average", Column::Average),
    ("MsgRate", "MsgRate", Column::MessageRate),
    ("t min", "t_min", Column::Min),
    ("t max", "t_max", Column::Max),
    ("t typical", "t_typical", Column::Typical),
    ("t avg", "t_avg", Column::AverageTime),
    ("99% percentile", "percentile_99", Column::P99),
    ("99.9% percentile", "percentile_99.9", Column::P999),
];

/// What the last row of `ucx_perftest` begins with; no launcher's label.
pub(crate) const UCX_RESULT: &str = "Final:";

/// `Final: 1000  0.240  1675.942  1671.351  46615.58  46743.62  597  598`: iterations, three of the overhead, the last and all of a rate. A row of a thread begins otherwise.
const UCX_COLUMNS: [Column; 9] = [
    Column::Final,
    Column::Iterations,
    Column::Other,
    Column::Other,
    Column::Other,
    Column::Other,
    Column::Average,
    Column::Other,
    Column::MessagesPerSecond,
];

impl Column {
    fn read(title: &str) -> Self {
        let name = title.split('[').next().unwrap_or_default().replace('_', " ");
        COLUMNS.iter().find(|(title, ..)| *title == name).map_or(Column::Other, |(_, _, column)| *column)
    }
}

/// A row of the kind that its columns say; `None` when the average, which every table has, is no number.
fn read_row(size: Option<Bytes>, value: impl Fn(Column) -> Option<f64>, gbit_per_unit: f64) -> Option<PerfRow> {
    let time = |column| value(column).map(Micros);
    if let Some(average) = value(Column::Average) {
        return Some(PerfRow::Bandwidth {
            size,
            peak_gbit_s: value(Column::Peak).unwrap_or_default() * gbit_per_unit,
            average_gbit_s: average * gbit_per_unit,
            message_rate_mpps: value(Column::MessageRate),
        });
    }
    let (typical, average) = (time(Column::Typical), time(Column::AverageTime));
    typical.or(average)?;
    Some(PerfRow::Latency {
        size,
        min: time(Column::Min),
        max: time(Column::Max),
        typical,
        average,
        p99: time(Column::P99),
        p999: time(Column::P999),
    })
}

/// Whether a line begins as those between title and table do, or as a message that perftest prints on its way.
fn is_known_line(text: &[u8]) -> bool {
    // By initial, because this runs on every line of a log.
    let known: &[&str] = match text.first() {
        Some(b'B') => &["Buffer size"],
        Some(b'C') => &["CPU freq", "CQ Moderation", "CQE Poll Batch", "Conflicting CPU frequency", "Connection type"],
        Some(b'D') => &["DC key", "DCS ", "Data ex. method", "Device ", "Dual-port"],
        Some(b'G') => &["GID"],
        Some(b'L') => &["Link type"],
        Some(b'M') => &["MAC attached", "Max inline data", "Mtu", "MultiCast runs"],
        Some(b'N') => &["NUMA node  ", "Number of "],
        Some(b'O') => &["Outstand reads"],
        Some(b'P') => &["PCIe relax order", "Please run the same command", "Post List"],
        Some(b'R') => &["RX depth", "Recv Post List"],
        Some(b'T') => &["TX depth", "Test with events", "Transport type"],
        Some(b'U') => &["Use MUSA memory", "Use ROCm memory"],
        Some(b'W') => &["WARNING: BW peak", "Waiting for client"],
        Some(b'i') => &["ibv_wr* API"],
        Some(b'l') => &["local address: LID"],
        Some(b'r') => &["rdma_cm QPs", "remote address: LID"],
        _ => &[],
    };
    known.iter().any(|start| text.starts_with(start.as_bytes()))
}

/// The port that a line names: ` local address: LID 0x06 QPN 0x0127 PSN …` and, where ports have no LID, ` GID: 254:128:…` below it.
fn end_of(text: &str) -> Option<Box<str>> {
    if let Some(gid) = text.strip_prefix("GID: ") {
        return Some(format!("GID {}", gid.trim()).into());
    }
    let (side, rest) = text.split_once(" address: LID ")?;
    Some(format!("{side} LID {}", rest.split(' ').next()?).into())
}

/// `RDMA_Write BW Test`, `Send Bidirectional Post List BW Test`, `Atomic FETCH_AND_ADD Latency Test`.
fn is_title(text: &str) -> bool {
    let verb = ["Send", "RDMA_Write", "RDMA_Read", "RDMA Write", "RDMA Read", "Atomic"];
    text.ends_with(" Test")
        && verb.iter().any(|verb| text.starts_with(verb))
        && (text.contains(" BW ") || text.contains(" Latency "))
}

/// `# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.3`.
fn is_osu_title(text: &str) -> bool {
    let text = text.trim_start_matches(['#', ' ']);
    text.starts_with("OSU ") && (text.contains("Bandwidth Test") || text.contains("Latency Test"))
}

/// `|   |   |   overhead (usec)   |  bandwidth (MB/s)  | message rate (msg/s) |` of `ucx_perftest`; of latencies, that word stands there.
fn is_ucx_header(text: &str) -> bool {
    let titles = text.split('|').map(str::trim).filter(|title| !title.is_empty());
    titles.eq(["overhead (usec)", "bandwidth (MB/s)", "message rate (msg/s)"])
}

/// Reads a header of a table, with the Gbit/s in one unit of its bandwidths. Titles of two words end in a unit or are one of the known pairs.
fn read_columns(text: &str) -> Option<(Vec<Column>, f64)> {
    if !text.starts_with('#') || !text.contains("#bytes") || !text.contains("#iterations") {
        return None;
    }
    let mut columns = Vec::new();
    let mut words = text.split_whitespace().skip_while(|word| *word == "#");
    while let Some(word) = words.next() {
        let is_first_of_two = matches!(word, "BW" | "MsgRate" | "99%" | "99.9%" | "tps");
        let second = if is_first_of_two { words.next() } else { None };
        columns.push(match second {
            Some(second) => Column::read(&format!("{word} {second}")),
            None => Column::read(word),
        });
    }
    let has_value = columns.iter().any(|c| matches!(c, Column::Average | Column::AverageTime | Column::Typical));
    let is_gbit = text.split_whitespace().any(|word| word.starts_with("average[Gb/"));
    let unit = if is_gbit { 1.0 } else { GBIT_PER_MIB };
    (columns.first() == Some(&Column::Size) && has_value).then_some((columns, unit))
}

/// The word after `key :`.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (before, after) = text.split_once(key)?;
    if before.ends_with(|c: char| !c.is_whitespace()) {
        return None;
    }
    after.trim_start().strip_prefix(':')?.split_whitespace().next()
}

/// Whether a text is a JSON report of perftest (`--out_json`), by its outermost key: in quotes since 2024 (linux-rdma/perftest#216,
/// #239).
pub fn looks_like_json(text: &str) -> bool {
    let text = text.trim_start();
    let head = &text[..text.floor_char_boundary(JSON_HEAD)];
    head.strip_prefix('{').is_some_and(|rest| rest.trim_start().trim_start_matches('"').starts_with("test_info"))
}

/// Reads a JSON report (`write_test_info_to_file` in perftest's `src/perftest_parameters.c`). It names no unit of bandwidth; the message rate in it tells whether `--report_gbits` was given.
/// Without one the unit is MiB/s, the default.
///
/// # Errors
/// The text is no JSON even after perftest's own mistakes were repaired, or it has no result with a message size.
pub fn read_json(text: &str, input: u32) -> Result<PerfTest, String> {
    let parsed = serde_json::from_str(text).or_else(|_| serde_json::from_str(&repair(text)));
    let report: Value = parsed.map_err(|error| format!("this is no JSON report of perftest: {error}"))?;
    let part = |key: &str| report.get(key).and_then(Value::as_object);
    let info = part("test_info").ok_or("the report has no 'test_info'; is it written by perftest --out_json?")?;
    let results = part("results").ok_or("the report has no 'results'; perftest ended before it measured")?;
    let word = |key: &str| info.get(key).and_then(Value::as_str).map(str::to_string);
    let number = |key: &str| info.get(key).and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
    Ok(PerfTest {
        source: SourceLine::new(Place { input, line: 0 }, &word("test").unwrap_or_default()),
        test: word("test"),
        device: word("Device"),
        queue_pairs: number("Number_of_qps"),
        connection: word("Connection_type"),
        link_type: word("Link_type"),
        mtu: number("Mtu"),
        mtu_line: None,
        gid_index: number("GID_index"),
        ends: Vec::new(),
        lost: None,
        rows: vec![read_results(results)?],
    })
}

fn read_results(results: &Map<String, Value>) -> Result<PerfRow, String> {
    let Some(size) = results.get("MsgSize").and_then(Value::as_u64) else {
        return Err(
            "'results' has no message size; run perftest without --output=bandwidth|message_rate|latency".into()
        );
    };
    let value = |wanted| {
        let (_, key, _) = COLUMNS.iter().find(|(_, _, column)| *column == wanted)?;
        results.get(*key).and_then(Value::as_f64)
    };
    let unit = gbit_per_unit(size, value(Column::Average), value(Column::MessageRate));
    read_row(Some(Bytes(size)), value, unit).ok_or_else(|| "'results' has no average".to_string())
}

/// Size times rate is the bandwidth; the two units differ by a factor of 119, the printed rate by far less.
fn gbit_per_unit(size: u64, average: Option<f64>, rate_mpps: Option<f64>) -> f64 {
    let (Some(average), Some(rate)) = (average, rate_mpps) else { return GBIT_PER_MIB };
    let gbit_s = size as f64 * rate * 8e-3;
    let mib_s = gbit_s / GBIT_PER_MIB;
    if gbit_s > 0.0 && average > 0.0 && average < (gbit_s * mib_s).sqrt() { 1.0 } else { GBIT_PER_MIB }
}

/// Repairs what perftest itself writes wrong: words without quotes (all of them before 2024, later the key `sl`), `nan` and `inf`
/// as numbers, and the comma before a closing brace (before 2024, and with `--output`).
fn repair(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len() + 16);
    for (i, piece) in text.split('"').enumerate() {
        if i > 0 {
            repaired.push('"');
        }
        let inside_string = i % 2 == 1;
        if inside_string {
            repaired.push_str(piece);
        } else {
            repair_outside_strings(piece, &mut repaired);
        }
    }
    repaired
}

fn repair_outside_strings(text: &str, repaired: &mut String) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
        let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        match word {
            "" if first == '}' => {
                repaired.truncate(repaired.trim_end_matches(|c: char| c == ',' || c.is_whitespace()).len());
                repaired.push('}');
            }
            "" => repaired.push(first),
            "nan" | "-nan" | "inf" | "-inf" => repaired.push_str("null"),
            // A number may have a letter in it: 1e5.
            _ if word.starts_with(|c: char| c.is_ascii_alphabetic()) && !matches!(word, "true" | "false" | "null") => {
                repaired.extend(["\"", word, "\""]);
            }
            _ => repaired.push_str(word),
        }
        rest = &rest[word.len().max(first.len_utf8() * usize::from(word.is_empty()))..];
    }
}

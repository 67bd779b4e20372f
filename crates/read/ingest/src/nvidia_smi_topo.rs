//! Reads the matrix of `nvidia-smi topo -m` (and `-mp`) with its legends, as printed or pasted into a Markdown table.

use crate::TextLine;
use busbw_model::{DeviceKind, PathType, TopoDevice, TopoMatrix};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// More GPUs and NICs than any machine has. It bounds the memory that a hostile header can ask for.
const MAX_DEVICES: usize = 256;

/// The titles after the device columns. They were added one by one, always in this order.
const AFFINITY_TITLES: &str = "CPU Affinity NUMA Affinity GPU NUMA ID";

/// How the names of RDMA devices begin; drivers before R470 put them into the matrix instead of `NIC0`.
const HCA_PREFIXES: [&str; 18] = [
    "bnxt_re", "cxgb", "cxi", "efa", "erdma", "hfi", "hns", "hsn", "ib", "ionic", "irdma", "mana", "mlx", "opa", "qed",
    "rdma", "roce", "rxe",
];

/// What a line of the path legend explains; the second row is the legend of `nvidia-smi topo -p2p`.
const LEGEND_KEYS: [&str; 14] =
    ["X", "SYS", "SOC", "NODE", "PHB", "PXB", "PIX", "NV#", "OK", "CNS", "GNS", "TNS", "NS", "U"];

/// Cells of `nvidia-smi topo -p2p`, whose tables have the same header but say nothing about paths.
const PEER_CELLS: [&str; 6] = ["OK", "CNS", "GNS", "TNS", "NS", "U"];

/// Collects matrices from lines. See [`busbw_model::TopoMatrix`] for what is kept.
///
/// ```
/// use busbw_ingest::{TextLine, nvidia_smi_topo::TopoReader};
/// use busbw_model::{PathType, Place};
/// let mut reader = TopoReader::default();
/// for text in ["\tGPU0\tNIC0\tCPU Affinity", "GPU0\t X \tPIX\t0-63", "NIC0\tPIX\t X \t"] {
///     assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// }
/// assert_eq!(reader.finish()[0].path("GPU0", "NIC0"), Some(PathType::Pix));
/// ```
#[derive(Debug, Default)]
pub struct TopoReader {
    found: Vec<TopoMatrix>,
    open: FxHashMap<Box<str>, OpenMatrix>,
}

impl TopoReader {
    /// False only when the text cannot belong to a matrix or its legends; looks at the first bytes only.
    pub fn may_belong(text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        match text.first() {
            Some(b'|') => text.split(|b| *b == b'|').map(<[u8]>::trim_ascii).any(may_be_cell),
            Some(0x1b) => true,
            Some(b'[') => text.starts_with(b"[4m") || text.starts_with(b"[0m"),
            Some(b'A'..=b'Z') => {
                let starts = |known: &[&str]| known.iter().any(|start| text.starts_with(start.as_bytes()));
                starts(&["GPU", "NIC", "Legend"]) || starts(&LEGEND_KEYS)
            }
            Some(b'a'..=b'z') => HCA_PREFIXES.iter().any(|prefix| text.starts_with(prefix.as_bytes())),
            _ => false,
        }
    }

    /// Takes a line; true when it belongs to a matrix.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = without_underline(line.text);
        if let Some((devices, columns)) = read_header(&text) {
            if let Some(before) = self.open.remove(line.stream) {
                self.found.extend(before.finish());
            }
            let paths = vec![vec![None; devices.len()]; devices.len()];
            let matrix = TopoMatrix { place: line.place, paths, devices };
            self.open.insert(line.stream.into(), OpenMatrix { matrix, columns, ..OpenMatrix::default() });
            return true;
        }
        self.open.get_mut(line.stream).is_some_and(|open| open.row(&text) || open.legend(&text))
    }

    /// The matrices in the order of their headers. A header without rows gives none.
    pub fn finish(mut self) -> Vec<TopoMatrix> {
        self.found.extend(self.open.into_values().filter_map(OpenMatrix::finish));
        self.found.sort_by_key(|matrix| matrix.place);
        self.found
    }
}

/// Whether a cell of a Markdown table may be of a matrix: a device, a path, or a part of the rule below the header.
fn may_be_cell(cell: &[u8]) -> bool {
    ["GPU", "NIC", "NV", "--", ":-"].iter().any(|start| cell.starts_with(start.as_bytes()))
        || LEGEND_KEYS.iter().any(|key| cell == key.as_bytes())
}

/// What stands in a cell of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Label,
    Device(usize),
    CpuAffinity,
    NumaAffinity,
    GpuNumaId,
}

#[derive(Debug, Default)]
struct OpenMatrix {
    matrix: TopoMatrix,
    columns: Vec<Column>,
    rows_seen: Vec<usize>,
    /// It is a table of `nvidia-smi topo -p2p`.
    is_peer_table: bool,
}

impl OpenMatrix {
    fn row(&mut self, text: &str) -> bool {
        let cells = match text.trim_ascii_start().starts_with('|') {
            true => bar_cells(text),
            false => plain_cells(text, self.matrix.devices.len()),
        };
        if cells.len() > 1 && cells.iter().all(|cell| cell.len() > 1 && cell.bytes().all(|b| matches!(b, b'-' | b':')))
        {
            return true; // the rule below a Markdown header
        }
        let row: Vec<(Column, &str)> = self.columns.iter().copied().zip(cells).collect();
        let in_devices = |wanted: fn(&str) -> bool| {
            row.iter().any(|(column, cell)| matches!(column, Column::Device(_)) && wanted(cell))
        };
        let is_peer_row = in_devices(|cell| PEER_CELLS.contains(&cell));
        let label = row.iter().find(|(column, _)| *column == Column::Label).map_or("", |(_, cell)| cell);
        if kind_of(label).is_none() || !(is_peer_row || in_devices(|cell| PathType::from_cell(cell).is_some())) {
            return false;
        }
        let Some(index) = self.matrix.devices.iter().position(|device| device.name == label) else {
            return true; // its column was cut off
        };
        if self.rows_seen.contains(&index) {
            return false;
        }
        self.is_peer_table |= is_peer_row;
        self.rows_seen.push(index);
        self.keep(index, &row);
        true
    }

    fn keep(&mut self, index: usize, row: &[(Column, &str)]) {
        let device = &mut self.matrix.devices[index];
        for &(column, cell) in row {
            match column {
                Column::Device(other) => self.matrix.paths[index][other] = PathType::from_cell(cell),
                Column::CpuAffinity => device.cpu_affinity = affinity(cell),
                Column::NumaAffinity => device.numa_affinity = affinity(cell),
                Column::Label | Column::GpuNumaId => {}
            }
        }
    }

    fn legend(&mut self, text: &str) -> bool {
        let text = text.trim_ascii();
        if let Some((name, hca)) = text.split_once(':') {
            let (name, hca) = (name.trim(), hca.trim());
            if matches!(name, "Legend" | "NIC Legend") {
                return hca.is_empty();
            }
            if !is_numbered(name, "NIC") || hca.is_empty() || hca.contains(char::is_whitespace) {
                return false;
            }
            if let Some(device) = self.matrix.devices.iter_mut().find(|device| device.name == name) {
                device.hca = Some(hca.to_string());
            }
            return true;
        }
        text.split_once('=').is_some_and(|(key, _)| LEGEND_KEYS.contains(&key.trim_end()))
    }

    fn finish(self) -> Option<TopoMatrix> {
        (!self.rows_seen.is_empty() && !self.is_peer_table).then_some(self.matrix)
    }
}

/// Reads a header: the devices, and what each cell of a row holds.
fn read_header(text: &str) -> Option<(Vec<TopoDevice>, Vec<Column>)> {
    let (devices, columns) = match text.trim_ascii_start().starts_with('|') {
        true => read_bar_header(text)?,
        false => read_plain_header(text)?,
    };
    let first_is_gpu = devices.first().is_some_and(|device| device.kind == DeviceKind::Gpu);
    let unique = |(i, device): (usize, &TopoDevice)| devices[..i].iter().all(|other| other.name != device.name);
    let plausible = first_is_gpu && devices.len() <= MAX_DEVICES && devices.iter().enumerate().all(unique);
    plausible.then_some((devices, columns))
}

/// `GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity GPU NUMA ID`, with tabs or spaces, possibly cut at the right.
fn read_plain_header(text: &str) -> Option<(Vec<TopoDevice>, Vec<Column>)> {
    if !text.trim_ascii_start().starts_with("GPU") {
        return None;
    }
    let mut words = text.split_whitespace().take(MAX_DEVICES + 10).peekable();
    let mut devices = Vec::new();
    while let Some(device) = words.peek().and_then(|word| new_device(word)) {
        devices.push(device);
        words.next();
    }
    let titles = words.collect::<Vec<_>>().join(" ");
    if !AFFINITY_TITLES.starts_with(&titles) || (devices.len() < 2 && titles.is_empty()) {
        return None;
    }
    let mut columns = vec![Column::Label];
    columns.extend((0..devices.len()).map(Column::Device));
    // All three, whatever the header has: hand-copied headers lose titles whose values are still in the rows.
    columns.extend([Column::CpuAffinity, Column::NumaAffinity, Column::GpuNumaId]);
    Some((devices, columns))
}

/// `| | GPU0 | GPU1 | NIC0 |`; affinities may stand left of the label, as in ALCF's documentation of Polaris.
fn read_bar_header(text: &str) -> Option<(Vec<TopoDevice>, Vec<Column>)> {
    let mut devices = Vec::new();
    let mut columns = Vec::new();
    for cell in bar_cells(text).into_iter().take(MAX_DEVICES + 10) {
        columns.push(match (cell, new_device(cell)) {
            (_, Some(device)) => {
                devices.push(device);
                Column::Device(devices.len() - 1)
            }
            ("CPU Affinity", _) => Column::CpuAffinity,
            ("NUMA Affinity", _) => Column::NumaAffinity,
            ("GPU NUMA ID", _) => Column::GpuNumaId,
            _ if !columns.contains(&Column::Label) && devices.is_empty() => Column::Label,
            _ => return None,
        });
    }
    columns.contains(&Column::Label).then_some((devices, columns))
}

fn new_device(name: &str) -> Option<TopoDevice> {
    let kind = kind_of(name)?;
    Some(TopoDevice { name: name.to_string(), kind, hca: None, cpu_affinity: None, numa_affinity: None })
}

fn kind_of(name: &str) -> Option<DeviceKind> {
    if is_numbered(name, "GPU") {
        return Some(DeviceKind::Gpu);
    }
    let is_hca = || {
        HCA_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && name.bytes().any(|b| b.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    (is_numbered(name, "NIC") || is_hca()).then_some(DeviceKind::Nic)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn bar_cells(text: &str) -> Vec<&str> {
    let inner = text.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(str::trim).collect()
}

/// The label and one word per device, then the affinities. Only affinities can be empty, and only between tabs.
fn plain_cells(text: &str, devices: usize) -> Vec<&str> {
    let mut rest = text;
    let mut cells = Vec::with_capacity(devices + 4);
    while cells.len() <= devices {
        rest = rest.trim_ascii_start();
        let (word, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
        if word.is_empty() {
            return cells;
        }
        cells.push(word);
        rest = after;
    }
    let rest = rest.trim_start_matches(' ');
    let rest = rest.strip_prefix('\t').unwrap_or(rest);
    if !rest.contains('\t') {
        cells.extend(rest.split_whitespace());
        return cells;
    }
    for cell in rest.split('\t') {
        match cell.trim() {
            "" => cells.push(""),
            words => cells.extend(words.split_whitespace()),
        }
    }
    cells
}

/// A list of CPUs or NUMA nodes: `0-23,48-71`; `None` for `N/A`, for nothing, and for a cell that is something else.
fn affinity(cell: &str) -> Option<String> {
    let is_list = !cell.is_empty() && cell.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b','));
    is_list.then(|| cell.to_string())
}

/// Drops the codes that underline the header on a terminal. Copying from a terminal may have lost their escape byte.
fn without_underline(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') && !text.contains("[4m") {
        return Cow::Borrowed(text);
    }
    let without_escape = text.replace('\x1b', "");
    Cow::Owned(["[4m", "[24m", "[0m", "[m"].iter().fold(without_escape, |text, code| text.replace(code, "")))
}

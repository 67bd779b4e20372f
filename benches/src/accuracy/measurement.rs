//! Published measurements: `tests/data/tables`, one description and one table each; those of published logs, and the scaling
//! series, lie beside them.

use busbw_model::{Bytes, Collective, Micros};
use busbw_predict::Cluster;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A measured table and the cluster that it was measured on.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// File name without extension; with the number of nodes in a scaling series.
    pub name: String,
    /// What the publisher thought of it.
    pub status: Status,
    pub collective: Collective,
    /// The cluster, parsed from its short description.
    pub cluster: Cluster,
    /// Sizes and out-of-place times.
    pub rows: Vec<(Bytes, Micros)>,
}

impl Measurement {
    /// Tables of one publisher's machines belong together: what is learnt from one says something about the others.
    pub fn family(&self) -> &str {
        self.name.split('-').nth(1).unwrap_or(&self.name)
    }
}

/// What the publisher thought of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Good,
    Degraded,
    Unknown,
    /// A series over node counts.
    Scaling,
}

/// A measurement cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct MeasurementError {
    path: PathBuf,
    message: String,
}

/// Reads every measurement of a folder, by name.
pub fn load(folder: &Path) -> Result<Vec<Measurement>, MeasurementError> {
    let mut all = Vec::new();
    for folder in [folder.to_path_buf(), folder.join("logs")] {
        for path in if folder.is_dir() { files(&folder, "toml")? } else { Vec::new() } {
            all.push(table(&path)?);
        }
    }
    let scaling = folder.join("scaling");
    if scaling.is_dir() {
        for path in files(&scaling, "csv")? {
            all.extend(series(&path)?);
        }
    }
    Ok(all)
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, MeasurementError> {
    let entries = fs::read_dir(folder).map_err(|e| failed(folder, e))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == extension));
    paths.sort();
    Ok(paths)
}

fn failed(path: &Path, message: impl ToString) -> MeasurementError {
    MeasurementError { path: path.to_path_buf(), message: message.to_string() }
}

fn read(path: &Path) -> Result<String, MeasurementError> {
    fs::read_to_string(path).map_err(|e| failed(path, e))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn table(path: &Path) -> Result<Measurement, MeasurementError> {
    let text = read(path)?;
    let cluster = busbw_predict::cluster::parse(&text).map_err(|e| failed(path, e))?;
    let collective = cluster.collective.ok_or_else(|| failed(path, "no collective"))?;
    let csv = path.with_extension("csv");
    let rows = read(&csv)?
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| row(line, 0, 5).ok_or_else(|| failed(&csv, line)))
        .collect::<Result<Vec<_>, _>>()?;
    let rows = rows.into_iter().filter(|(size, _)| size.0 > 0).collect();
    Ok(Measurement { name: stem(path), status: status(&text), collective, cluster, rows })
}

fn row(line: &str, size: usize, time: usize) -> Option<(Bytes, Micros)> {
    let cells: Vec<&str> = line.split(',').collect();
    Some((Bytes(cells.get(size)?.parse().ok()?), Micros(cells.get(time)?.parse().ok()?)))
}

fn status(description: &str) -> Status {
    let line = description.lines().find(|line| line.starts_with("status")).unwrap_or_default();
    match line.split('"').nth(1) {
        Some("good") => Status::Good,
        Some("degraded") => Status::Degraded,
        _ => Status::Unknown,
    }
}

/// The machine of the scaling series: stated in their `.toml`.
const SCALING_MACHINE: &str = "gpus_per_node = 8\ngpu = \"H100 80GB (p5.48xlarge)\"\nintra = \"nvlink4 NVSwitch 900GB/s\"\n\
                               nics_per_node = 32\nnic_gbps = 100\ntransport = \"efa\"\n";

/// `Nodes,GPUs,size(MB),iterations,blocking,out algbw(GB/s),…`: one measurement per number of nodes.
fn series(path: &Path) -> Result<Vec<Measurement>, MeasurementError> {
    let name = stem(path);
    let collective =
        name.rsplit("nccl_").next().and_then(Collective::from_name).ok_or_else(|| failed(path, "no collective"))?;
    let mut by_nodes: BTreeMap<usize, Vec<(Bytes, Micros)>> = BTreeMap::new();
    for line in read(path)?.lines().skip(1) {
        let cell = |at: usize| line.split(',').nth(at).and_then(|cell| cell.trim().parse::<f64>().ok());
        let (Some(nodes), Some(mib), Some(algbw)) = (cell(0), cell(2), cell(5)) else {
            return Err(failed(path, line));
        };
        let bytes = Bytes((mib as u64) << 20);
        by_nodes.entry(nodes as usize).or_default().push((bytes, Micros(bytes.0 as f64 / algbw / 1e3)));
    }
    let measurement = |(nodes, rows)| {
        let text = format!("nodes = {nodes}\n{SCALING_MACHINE}");
        let cluster = busbw_predict::cluster::parse(&text).map_err(|e| failed(path, e))?;
        Ok(Measurement { name: format!("{name}-{nodes}"), status: Status::Scaling, collective, cluster, rows })
    };
    by_nodes.into_iter().map(measurement).collect()
}

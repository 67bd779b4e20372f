//! Results that `busbw doctor` and `busbw explain --json` saved (schema `busbw.explain/1`).

use super::SubjectError;
use busbw_model::{
    BenchRow, BenchTable, Bytes, Check, Code, Collective, Datatype, EnvOrigin, EnvSetting, GBps, Library, Measure,
    Micros, RedOp, Run, SourceLine, VersionLine,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

const SCHEMA: &str = "busbw.explain/1";
/// Where the schema's name stands: it is the first field.
const START: usize = 256;

/// A saved run.
pub struct Saved {
    /// Its tables, versions and variables.
    pub run: Run,
    /// What was found then.
    pub findings: Vec<(Code, String)>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    tables: Vec<Table>,
    #[serde(default)]
    findings: Vec<Finding>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    launch_environment: BTreeMap<String, String>,
    nccl: Option<Nccl>,
}

#[derive(Deserialize)]
struct Nccl {
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Finding {
    code: String,
    title: String,
}

#[derive(Deserialize)]
struct Table {
    collective: Option<String>,
    nranks: Option<u32>,
    rows: Vec<Row>,
    avg_busbw_gbs: Option<f64>,
}

#[derive(Deserialize)]
struct Row {
    size_bytes: u64,
    count: Option<u64>,
    datatype: Option<String>,
    redop: Option<String>,
    out_of_place: Option<Half>,
    in_place: Option<Half>,
}

#[derive(Deserialize)]
struct Half {
    time_us: Option<f64>,
    algbw_gbs: Option<f64>,
    busbw_gbs: Option<f64>,
}

/// The saved run of a file; `None` where the file is something else.
pub fn read(path: &Path) -> Result<Option<Saved>, SubjectError> {
    // What cannot be opened is told by who reads it as a log.
    let Ok(mut file) = File::open(path).map(|file| file.take(START as u64)) else { return Ok(None) };
    let mut start = Vec::new();
    if !path.is_file() || file.read_to_end(&mut start).is_err() || !is_saved(&start) {
        return Ok(None);
    }
    let failed = |reason: String| SubjectError::Saved { path: path.to_path_buf(), reason };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| failed(format!("no whole result of {SCHEMA}: {error}")))?;
    Ok(Some(document.into()))
}

fn is_saved(start: &[u8]) -> bool {
    let start = String::from_utf8_lossy(start);
    start.trim_start().starts_with('{') && start.contains(SCHEMA)
}

impl From<Document> for Saved {
    fn from(document: Document) -> Self {
        let mut run = Run { tables: document.tables.into_iter().map(BenchTable::from).collect(), ..Run::default() };
        let by_log = document.environment.into_iter().map(|setting| (setting, EnvOrigin::NcclLog));
        let by_command = document.launch_environment.into_iter().map(|setting| (setting, EnvOrigin::CommandLine));
        run.nccl.env = by_log
            .chain(by_command)
            .map(|((name, value), origin)| EnvSetting {
                name,
                value,
                origin,
                source: SourceLine::default(),
                hosts: Vec::new(),
            })
            .collect();
        let versions = document.nccl.into_iter().flat_map(|nccl| nccl.versions);
        run.nccl.versions = versions
            .map(|version| VersionLine {
                version,
                cuda: None,
                library: Library::default(),
                source: SourceLine::default(),
            })
            .collect();
        let code = |name: &str| Code::ALL.iter().find(|(_, known, _)| *known == name).map(|(code, ..)| *code);
        let findings = document.findings.into_iter();
        Saved { run, findings: findings.filter_map(|f| Some((code(&f.code)?, f.title))).collect() }
    }
}

impl From<Table> for BenchTable {
    fn from(table: Table) -> Self {
        BenchTable {
            collective: table.collective.as_deref().and_then(Collective::from_name),
            nranks: table.nranks,
            rows: table.rows.into_iter().map(BenchRow::from).collect(),
            printed_avg_busbw: table.avg_busbw_gbs.map(GBps),
            ..BenchTable::default()
        }
    }
}

impl From<Row> for BenchRow {
    fn from(row: Row) -> Self {
        BenchRow {
            size: Bytes(row.size_bytes),
            count: row.count,
            datatype: row.datatype.as_deref().and_then(Datatype::from_name),
            redop: row.redop.as_deref().and_then(RedOp::from_name),
            root: None,
            out_of_place: row.out_of_place.and_then(Half::measure),
            in_place: row.in_place.and_then(Half::measure),
            source: SourceLine::default(),
        }
    }
}

impl Half {
    fn measure(self) -> Option<Measure> {
        Some(Measure {
            time: Micros(self.time_us?),
            algbw: GBps(self.algbw_gbs?),
            busbw: GBps(self.busbw_gbs?),
            check: Check::NotDone,
            iterations: None,
        })
    }
}

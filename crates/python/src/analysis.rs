//! Reading, predicting and comparing: each function does what the command of its name does and returns its JSON.

use crate::failure::Failure;
use busbw_diagnose::diagnose_on;
use busbw_ingest::{ReadError, ReadOptions, Source, read};
use busbw_model::{Bytes, Collective};
use busbw_predict::{Cluster, cluster};
use busbw_report::json;
use busbw_tune::compare::{Subject, Wanted};
use pyo3::{PyResult, Python, pyfunction};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Reads inputs and judges them: JSON of the schema `busbw.explain/1`.
///
/// `cluster` is a description (TOML) of the cluster that the run was on, `threads` how many to read with (all cores).
///
/// Raises `OSError` where a file cannot be read and `ValueError` where it says nothing that busbw knows.
#[pyfunction]
#[pyo3(signature = (paths, cluster=None, threads=None))]
pub fn explain(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    cluster: Option<PathBuf>,
    threads: Option<NonZeroUsize>,
) -> PyResult<String> {
    Ok(py.detach(|| explained(&paths, cluster.as_deref(), threads))?)
}

/// Predicts the table of a cluster: JSON of the schema `busbw.predict/1`.
///
/// The cluster is described by `description` (JSON with the keys of a TOML description), or by `paths`: a description, or
/// logs that show it. `sizes` are bytes.
///
/// Raises `OSError` where a file cannot be read and `ValueError` where the cluster is not described well enough.
#[pyfunction]
#[pyo3(signature = (paths, description, collective, sizes))]
pub fn predict(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    description: Option<String>,
    collective: Option<String>,
    sizes: Vec<u64>,
) -> PyResult<String> {
    Ok(py.detach(|| predicted(&paths, description.as_deref(), collective.as_deref(), sizes))?)
}

/// Compares runs with the first of them: JSON of the schema `busbw.compare/1`.
///
/// Raises `OSError` where a file cannot be read and `ValueError` where the runs cannot be compared.
#[pyfunction]
#[pyo3(signature = (paths, collective=None, anyway=false))]
pub fn compare(py: Python<'_>, paths: Vec<PathBuf>, collective: Option<String>, anyway: bool) -> PyResult<String> {
    Ok(py.detach(|| compared(&paths, collective.as_deref(), anyway))?)
}

fn explained(paths: &[PathBuf], cluster: Option<&Path>, threads: Option<NonZeroUsize>) -> Result<String, Failure> {
    let cluster = cluster.map(described).transpose()?;
    let run = read(&sources(paths), &ReadOptions { threads, ..ReadOptions::default() })?;
    let diagnosis = diagnose_on(&run, cluster.as_ref());
    if busbw_diagnose::is_unknown(&run, &diagnosis) {
        return Err(ReadError::unknown(&run).into());
    }
    Ok(json::explain(&run, &diagnosis))
}

fn predicted(
    paths: &[PathBuf],
    description: Option<&str>,
    collective: Option<&str>,
    sizes: Vec<u64>,
) -> Result<String, Failure> {
    let cluster = match (description, paths) {
        (Some(text), _) => described_by_json(text)?,
        (None, [path]) if path.extension().is_some_and(|extension| extension == "toml") => described(path)?,
        (None, paths) => derived(paths)?,
    };
    let wanted = collective.map(collective_named).transpose()?;
    let collective = wanted.or(cluster.collective).unwrap_or(Collective::AllReduce);
    let sizes: Vec<Bytes> = sizes.into_iter().map(Bytes).collect();
    let prediction = busbw_predict::predict(&cluster, collective, &sizes);
    Ok(text(|out| json::write(&prediction, out)))
}

fn compared(paths: &[PathBuf], collective: Option<&str>, anyway: bool) -> Result<String, Failure> {
    let collective = collective.map(collective_named).transpose()?;
    let subjects: Vec<Subject> = paths.iter().map(|path| Subject::read(path)).collect::<Result<_, _>>()?;
    let comparison = busbw_tune::compare::compare(&subjects, Wanted { collective, anyway })?;
    Ok(text(|out| json::write_compare(&comparison, out)))
}

fn sources(paths: &[PathBuf]) -> Vec<Source> {
    paths.iter().map(|path| Source::from_arg(path)).collect()
}

fn described(path: &Path) -> Result<Cluster, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path, &error))?;
    cluster::parse(&text).map_err(|error| Failure::description(&path.display().to_string(), &error))
}

/// A description that was built in Python. It becomes TOML first, because that is what descriptions are checked as.
fn described_by_json(description: &str) -> Result<Cluster, Failure> {
    let refused = |reason: String| Failure::value(format!("description: {reason}"));
    let table: toml::Table = serde_json::from_str(description).map_err(|error| refused(error.to_string()))?;
    let text = toml::to_string(&table).map_err(|error| refused(error.to_string()))?;
    cluster::parse(&text).map_err(|error| refused(format!("{}; {}", error.message, error.remedy)))
}

fn derived(paths: &[PathBuf]) -> Result<Cluster, Failure> {
    let run = read(&sources(paths), &ReadOptions::default())?;
    if run.is_empty() {
        return Err(ReadError::unknown(&run).into());
    }
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    cluster::derive(&run).map_err(|error| Failure::underivable(&names.join(", "), &error))
}

fn collective_named(name: &str) -> Result<Collective, Failure> {
    Collective::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Collective::ALL.iter().map(|collective| collective.name()).collect();
        Failure::value(format!("collective {name}: unknown; choose one of {}", known.join(", ")))
    })
}

/// What a writer of JSON writes.
fn text(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("writing to memory does not fail and every key is a string");
    String::from_utf8(out).expect("serde_json writes UTF-8")
}

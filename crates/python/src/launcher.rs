//! What a launcher keeps for its ranks: PMI's and PMIx's stores, by which rank 0 tells the others where it is.

use crate::failure::Failure;
use busbw_launch::{JobRank, host, told_by_rank_0};
use pyo3::{PyResult, Python, pyfunction};
use std::time::Duration;

/// Shares a text of rank 0's with every rank of the job, through the launcher's store; the others give None. Every rank calls it,
/// once. None where the launcher has no store.
///
/// Raises `ValueError` where the launcher's variables are wrong, or the store does not answer.
#[pyfunction]
#[pyo3(signature = (mine, timeout_s))]
pub fn told_by_first_rank(py: Python<'_>, mine: Option<String>, timeout_s: f64) -> PyResult<Option<String>> {
    let look = |name: &str| std::env::var(name).ok();
    let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
    let told = || told_by_rank_0(&JobRank::detect(&look)?, mine.as_deref(), timeout);
    Ok(py.detach(told).map_err(|error: busbw_launch::Error| Failure::value(error.to_string()))?)
}

/// The address of this host that others reach it by; None where it has none.
#[pyfunction]
pub fn outward_address() -> Option<String> {
    host::outward_address().map(|address| address.to_string())
}

//! `busbw._native`: what the Python package `busbw` has from the Rust crates.
//!
//! Answers cross as the JSON that the command prints, so that a program in Python and one beside the command read the
//! same contract. Nothing here holds the interpreter while it works. Types and documentation for people stand in
//! `python/busbw`; `_native.pyi` there says what this module has.

#![warn(missing_docs)] // others build on this crate

mod analysis;
mod events;
mod failure;
mod gradients;
mod launcher;
mod selection;

use pyo3::pymodule;

/// The native part of the Python package `busbw`.
#[pymodule]
mod _native {
    use pyo3::types::{PyModule, PyModuleMethods};
    use pyo3::{Bound, PyResult};

    #[pymodule_export]
    use super::analysis::{compare, explain, predict};
    #[pymodule_export]
    use super::events::{begin_group, begin_operation, end_operation};
    #[pymodule_export]
    use super::gradients::{Estimate, gradient_estimates, gradient_traffic};
    #[pymodule_export]
    use super::launcher::{outward_address, told_by_first_rank};
    #[pymodule_export]
    use super::selection::{select_above, topk};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

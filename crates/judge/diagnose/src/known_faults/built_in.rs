//! The known faults that are compiled in.

use super::table::{Fault, faults};
use std::sync::LazyLock;

/// The files that are compiled in, with their paths: all of `rules/known-faults`.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/known-faults.rs"));

static BUILT_IN: LazyLock<Vec<Fault>> = LazyLock::new(|| match faults(FILES.iter().copied()) {
    Ok(faults) => faults,
    Err(error) => unreachable!("the build script read these files: {error}"),
});

/// The faults that are compiled in; those of a person's own file stand in its [`Book`](crate::Book).
pub fn all() -> &'static [Fault] {
    &BUILT_IN
}

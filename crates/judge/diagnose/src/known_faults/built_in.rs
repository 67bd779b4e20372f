//! The known faults that are compiled in.

use super::table::{Fault, component_of};
use flate2::read::GzDecoder;
use std::io::read_to_string;
use std::sync::LazyLock;

/// All of `rules/known-faults`, as JSON, packed.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/known-faults.json.gz"));

static BUILT_IN: LazyLock<Vec<Fault>> = LazyLock::new(|| {
    let json = read_to_string(GzDecoder::new(PACKED))
        .unwrap_or_else(|error| unreachable!("the build script packed it: {error}"));
    let faults: Vec<Fault> =
        serde_json::from_str(&json).unwrap_or_else(|error| unreachable!("the build script read these: {error}"));
    faults.into_iter().filter_map(|fault| Some(Fault { component: component_of(&fault.id)?, ..fault })).collect()
});

/// The faults that are compiled in; those of a person's own file stand in its [`Book`](crate::Book).
pub fn all() -> &'static [Fault] {
    &BUILT_IN
}

//! The known faults that are compiled in.

use super::table::{Fault, faults};
use flate2::read::GzDecoder;
use std::io::read_to_string;
use std::sync::LazyLock;

/// The files that are compiled in, packed, with their paths: all of `rules/known-faults`.
const FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/known-faults.rs"));

static BUILT_IN: LazyLock<Vec<Fault>> = LazyLock::new(|| {
    let texts = FILES.iter().map(|(path, packed)| Ok((*path, read_to_string(GzDecoder::new(*packed))?)));
    let texts: Vec<(&str, String)> = match texts.collect::<std::io::Result<_>>() {
        Ok(texts) => texts,
        Err(error) => unreachable!("the build script packed these files: {error}"),
    };
    match faults(texts.iter().map(|(path, text)| (*path, text.as_str()))) {
        Ok(faults) => faults,
        Err(error) => unreachable!("the build script read these files: {error}"),
    }
});

/// The faults that are compiled in; those of a person's own file stand in its [`Book`](crate::Book).
pub fn all() -> &'static [Fault] {
    &BUILT_IN
}

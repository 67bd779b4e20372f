//! mpirun and ssh, and what they say of their version.

use crate::{Program, Root};
use busbw_model::node::Program as Found;
use std::time::Duration;

/// A program on a file system that does not answer must not stop a check.
const PATIENCE: Duration = Duration::from_secs(10);
const ASKED: [(&str, &str); 2] = [("mpirun", "--version"), ("ssh", "-V")];

pub(super) fn collect(root: &Root) -> Vec<Found> {
    if !root.is_live() {
        return Vec::new();
    }
    ASKED.map(|(name, flag)| found(name, flag)).to_vec()
}

fn found(name: &str, flag: &str) -> Found {
    let path = Program::find(name);
    let said = path.as_ref().and_then(|path| Program::new(path, [flag], PATIENCE).run().ok());
    // ssh writes its version to standard error.
    let version = said.and_then(|said| first_line(&said.output).or_else(|| first_line(&said.errors)));
    Found { name: name.to_owned(), path: path.map(|path| path.display().to_string()), version }
}

/// The first line; hydra gives its version on a later one.
fn first_line(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let version = lines.find_map(|line| line.strip_prefix("Version:")).filter(|_| first.starts_with("HYDRA"));
    Some(version.map_or_else(|| first.to_owned(), |version| format!("MPICH (hydra) {}", version.trim())))
}

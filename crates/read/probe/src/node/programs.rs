//! mpirun and ssh, and what they say of their version.

use crate::{Ended, Program, Root};
use busbw_model::node::Program as Found;
use std::path::Path;
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
    let version = path.as_ref().and_then(|path| version(path, flag));
    Found { name: name.to_owned(), path: path.map(|path| path.display().to_string()), version }
}

/// What a program says of its version; none where it cannot run, or does not end well and in time.
fn version(path: &Path, flag: &str) -> Option<String> {
    let said = Program::new(path, [flag], PATIENCE).run().ok().filter(Ended::succeeded)?;
    // ssh writes its version to standard error.
    first_line(&said.output).or_else(|| first_line(&said.errors))
}

/// The first line; hydra gives its version on a later one.
fn first_line(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let version = lines.find_map(|line| line.strip_prefix("Version:")).filter(|_| first.starts_with("HYDRA"));
    Some(version.map_or_else(|| first.to_owned(), |version| format!("MPICH (hydra) {}", version.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::executable;

    #[test]
    fn an_error_is_no_version() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str, script: &str| {
            let path = folder.path().join(name);
            executable(&path, &format!("#!/bin/sh\n{script}\n"));
            version(&path, "--version")
        };
        assert_eq!(said("sound", "echo 'mpirun (Open MPI) 4.1.6'").as_deref(), Some("mpirun (Open MPI) 4.1.6"));
        assert_eq!(said("ssh", "echo OpenSSH_9.2p1 >&2").as_deref(), Some("OpenSSH_9.2p1"));
        assert_eq!(
            said("hydra", "printf 'HYDRA build details:\\n  Version: 4.1\\n'").as_deref(),
            Some("MPICH (hydra) 4.1")
        );
        assert_eq!(
            said("broken", "echo 'error while loading shared libraries: libopen-rte.so.40' >&2; exit 127"),
            None
        );
    }
}

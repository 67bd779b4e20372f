//! A script among the words of a command that calls mpirun by itself.
//!
//! `busbw tune` names variables to an mpirun that it sees (`-x NAME=VALUE`). One that a script calls gets them in its
//! environment, of which Open MPI's hands ranks on other hosts only what `-x NAME` names (mpirun(1), "Exported Environment
//! Variables"; MPICH's hands on all): such a sweep would compare the default with itself.

use crate::runner::{Workload, is_mpirun};
use std::fs::File;
use std::io::Read as _;

/// Scripts are read up to here.
const MOST: u64 = 1 << 20;

/// An mpirun within a script that does not name the variables of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentMpirun {
    /// The script, as the command names it.
    pub script: String,
    /// The line, from 1.
    pub line: usize,
    /// Variables that nothing in the script names to mpirun.
    pub unnamed: Vec<String>,
}

impl SilentMpirun {
    /// The first in the scripts of a command, for a sweep over `variables`.
    pub fn find(workload: &Workload, variables: &[String]) -> Option<Self> {
        if workload.launcher().is_some() {
            return None;
        }
        workload.words.iter().find_map(|word| SilentMpirun::within(word, &script(word)?, variables))
    }

    fn within(name: &str, text: &str, variables: &[String]) -> Option<Self> {
        let line = text.lines().position(calls_mpirun)?;
        let named = |variable: &String| {
            let mut words = text.split_whitespace().zip(text.split_whitespace().skip(1));
            words.any(|(flag, word)| flag == "-x" && word.split('=').next() == Some(variable.as_str()))
        };
        let unnamed: Vec<String> = variables.iter().filter(|variable| !named(variable)).cloned().collect();
        (!unnamed.is_empty()).then(|| SilentMpirun { script: name.into(), line: line + 1, unnamed })
    }
}

fn calls_mpirun(line: &str) -> bool {
    let code = line.trim_start();
    !code.starts_with('#') && code.split_whitespace().any(is_mpirun)
}

/// The text of a file that starts as scripts do.
fn script(path: &str) -> Option<String> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut text).ok()?;
    text.starts_with(b"#!").then(|| String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn found(text: &str) -> Option<(usize, Vec<String>)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.sh");
        std::fs::write(&path, text).unwrap();
        let words = vec!["bash".into(), path.display().to_string()];
        let variables = ["A", "B"].map(String::from);
        let found = SilentMpirun::find(&Workload { words, limit: Duration::ZERO }, &variables)?;
        Some((found.line, found.unnamed))
    }

    #[test]
    fn an_mpirun_that_hands_nothing_on_is_found() {
        let both = vec!["A".to_string(), "B".to_string()];
        assert_eq!(found("#!/bin/bash\n# mpirun\nset -e\n  time /opt/ompi/bin/mpirun -np 4 train\n"), Some((4, both)));
        assert_eq!(found("#!/bin/bash\nmpirun -x A -np 4 \\\n  -x B=2 train\n"), None);
        assert_eq!(found("#!/bin/bash\nmpirun -x A train\n"), Some((2, vec!["B".into()])));
        assert_eq!(found("#!/bin/bash\ntorchrun train.py\n"), None);
        assert_eq!(found("mpirun in a text that is no script"), None);
    }
}

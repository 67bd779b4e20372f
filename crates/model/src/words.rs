//! `rules/words.toml` as a type: `ingest` chooses lines by it, `diagnose` distinguishes ends and machines.

use crate::{Code, Component, Consequence, LogLevel};
use serde::Deserialize;

/// Words, in lists that the file explains.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the file says what each list is")]
pub struct Words {
    pub torch: Vec<String>,
    pub other: Vec<String>,
    pub ends: Vec<String>,
    pub done: Vec<String>,
    pub speakers: Vec<String>,
    pub launchers: Vec<String>,
    pub ssh: Vec<String>,
    pub commands: Vec<String>,
    pub levels: Vec<(String, LogLevel)>,
    pub starters: Vec<String>,
    pub beside: Vec<String>,
    pub wrappers: Vec<String>,
    pub gone: Vec<String>,
    pub rendezvous: Vec<String>,
    pub relays: Vec<String>,
    pub lost: Vec<String>,
    pub results: Vec<(String, u32)>,
    pub errors: Vec<(String, Code)>,
    pub harmless: Vec<String>,
    pub rdma: Vec<String>,
    pub must_agree: Vec<String>,
    pub waits: Vec<(String, Vec<String>)>,
    pub versions: Vec<(Component, Vec<String>)>,
    pub names: Vec<(Component, Vec<String>)>,
    pub tells: Vec<(String, String, Vec<String>)>,
    pub does: Vec<(Consequence, Vec<String>)>,
}

impl Words {
    /// Whether a container, unit or pod is by its name none of a job's ranks.
    pub fn is_beside(&self, name: &str) -> bool {
        name.split(['-', '_', '.', '@']).any(|part| self.beside.iter().any(|word| word == part))
    }

    /// Whether a line has words that sound runs print as well.
    pub fn is_harmless(&self, line: &str) -> bool {
        self.harmless.iter().any(|words| line.contains(words))
    }
}

//! Reads versions that programs print of themselves and of others: `Nvidia driver version: 550.54.15`, `torch==2.5.1`
//! (`rules/words.toml`, `versions`).

use crate::evidence::KNOWN;
use crate::text::TextLine;
use busbw_model::{PrintedVersion, Version};

/// Where the version's line begins, behind a program's own prefix: `INFO 11-25 12:00:00 llm_engine.py:223] `.
const PREFIX_ENDS: &str = "] ";
/// What may stand between the words and the version.
const BETWEEN: [char; 7] = [' ', '\t', '.', ':', '=', '(', 'v'];
/// More versions add nothing new.
const MOST: usize = 256;

/// Collects versions.
#[derive(Debug, Default)]
pub(crate) struct VersionReader {
    found: Vec<PrintedVersion>,
}

impl VersionReader {
    /// Takes a line; true when it tells a version.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim_start();
        let behind = text.split_once(PREFIX_ENDS).map(|(_, behind)| behind);
        let told = [Some(text), behind].into_iter().flatten().find_map(told);
        let is_told = told.is_some();
        self.found.extend(told.filter(|told| self.found.len() < MOST && !self.found.contains(told)));
        is_told
    }

    pub fn finish(self) -> Vec<PrintedVersion> {
        self.found
    }
}

/// The version that a line tells at its start.
pub(crate) fn told(text: &str) -> Option<PrintedVersion> {
    KNOWN.versions.iter().find_map(|(component, words)| {
        let behind = words.iter().find_map(|words| text.strip_prefix(words.as_str()))?;
        Some(PrintedVersion { component: *component, version: version(behind)? })
    })
}

/// The version at the start: two numbers or more.
fn version(text: &str) -> Option<Version> {
    let token = token(text.trim_start_matches(BETWEEN));
    parsed(token).filter(|_| token.contains('.'))
}

/// What may be a version at the start of a text.
pub(crate) fn token(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '+').unwrap_or(text.len());
    &text[..end]
}

/// A version, but for that of a build from source without tags: setuptools-scm counts its commits from 0.1 on, `0.1.dev20073+g8e685d198`.
pub(crate) fn parsed(token: &str) -> Option<Version> {
    token.parse().ok().filter(|_| !token.starts_with("0.1.dev"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Place;

    #[test]
    fn versions_are_read_as_programs_print_them() {
        let mut reader = VersionReader::default();
        let lines = [
            "PyTorch version              : 2.9.1+cu129",
            "PyTorch version: 2.9.1+cu129",
            "[pip3] nvidia-nccl-cu12==2.27.5",
            "[conda] torch                     2.9.1                    pypi_0    pypi",
            "INFO 11-25 12:00:00 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='m'",
            "deepspeed info ................... 0.16.2, unknown, unknown",
            "                Open MPI: 5.0.6",
            "jax:    0.9.2",
            "- `Accelerate` version: 1.10.0",
            "\t- lightning:         2.5.2",
            "ray, version 2.49.2",
            "CuPy Version          : 13.4.0",
            "Horovod v0.28.1:",
            "transformer_engine_cu12==2.8.0",
            // No versions: none could be had, another package, a sentence.
            "ROCM used to build PyTorch: N/A",
            "vllm==0.1.dev20073+g8e685d198",
            "torchvision==0.24.1",
            "I use torch==2.9.1 here",
        ];
        let told: Vec<bool> =
            lines.iter().map(|text| reader.feed(&TextLine { place: Place::default(), stream: "", text })).collect();
        assert_eq!(told, [[true; 14].as_slice(), [false; 4].as_slice()].concat());
        let found: Vec<String> =
            reader.finish().iter().map(|told| format!("{}={}", told.component.name(), told.version)).collect();
        let expected = [
            "pytorch=2.9.1+cu129",
            "nccl=2.27.5",
            "vllm=0.11.0",
            "deepspeed=0.16.2",
            "open-mpi=5.0.6",
            "jax=0.9.2",
            "accelerate=1.10.0",
            "lightning=2.5.2",
            "ray=2.49.2",
            "cupy=13.4.0",
            "horovod=0.28.1",
            "transformer-engine=2.8.0",
        ];
        assert!(expected.iter().all(|told| found.iter().any(|found| found == told)), "{found:?}");
    }
}

//! The cluster that a subcommand is about: from a description, or derived from logs and topologies.

use busbw_ingest::{ReadOptions, Source, read, read_bytes};
use busbw_model::Run;
use busbw_predict::{Cluster, cluster};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A description is a page, not a gigabyte: what is larger is a log.
const LARGEST_DESCRIPTION: u64 = 1 << 20;

/// What to give, said with every refusal that the input does not suggest a better remedy for.
const WHAT_TO_GIVE: &str = "give a description (TOML, see docs/clusters.md), or the log of a run with NCCL_DEBUG=INFO";

/// Reads the cluster from one description, or from any mix of logs and topologies.
pub fn cluster(inputs: &[PathBuf]) -> Result<Cluster, String> {
    let [path] = inputs else { return of_several(inputs) };
    let name = path.display().to_string();
    let Some(text) = small_text(path)? else { return derived(&run_of(inputs)?, &name) };
    if path.extension().is_some_and(|extension| extension == "toml") {
        return description(&name, &text);
    }
    if looks_like_description(&text) {
        match description(&name, &text) {
            Ok(cluster) => return Ok(cluster),
            Err(error) => return derived(&run_in(&name, &text)?, &name).map_err(|_| error),
        }
    }
    derived(&run_in(&name, &text)?, &name)
}

/// Derives the cluster from several logs and topologies; of descriptions each is whole.
fn of_several(inputs: &[PathBuf]) -> Result<Cluster, String> {
    let is_description = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    if let Some(one) = inputs.iter().find(is_description) {
        return Err(format!(
            "{}: one description is read at a time, and nothing beside it; ask for {} alone",
            names(inputs),
            one.display()
        ));
    }
    derived(&run_of(inputs)?, &names(inputs))
}

/// A fault of a cluster, with the inputs that it was read from.
pub fn about(inputs: &[PathBuf], fault: impl std::fmt::Display) -> String {
    format!("{}: {fault}", names(inputs))
}

/// Reads logs; the run that they tell of.
pub fn run_of(paths: &[PathBuf]) -> Result<Run, String> {
    let sources: Vec<Source> = paths.iter().map(|path| Source::from_arg(path)).collect();
    read(&sources, &ReadOptions::default()).map_err(|e| e.to_string())
}

fn run_in(name: &str, text: &str) -> Result<Run, String> {
    read_bytes(&[(name, text.as_bytes())]).map_err(|e| e.to_string())
}

fn description(name: &str, text: &str) -> Result<Cluster, String> {
    cluster::parse(text).map_err(|error| format!("{name}:{}: {}; {}", error.line, error.message, error.remedy))
}

fn derived(run: &Run, names: &str) -> Result<Cluster, String> {
    if run.is_empty() {
        return Err(format!("{names}: nothing that busbw knows; {WHAT_TO_GIVE}"));
    }
    cluster::derive(run).map_err(|error| format!("{names}: {error}"))
}

pub fn names(inputs: &[PathBuf]) -> String {
    inputs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The text of standard input or of a file that may be a description; `None` where ingest should read the file: it is
/// large, no text, or cannot be read, which ingest says best.
fn small_text(path: &Path) -> Result<Option<String>, String> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|e| format!("-: {e}"))?;
        return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
    }
    let small = path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LARGEST_DESCRIPTION);
    Ok(if small { std::fs::read_to_string(path).ok() } else { None })
}

/// Whether the first line that says anything is TOML: a section, or a key with a value.
fn looks_like_description(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.\"".contains(c);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(line) = first else { return false };
    match line.strip_prefix('[') {
        Some(rest) => {
            let name = rest.trim_start_matches('[').trim_start_matches(is_name).trim_start();
            name.starts_with(']') && name.trim_start_matches(']').trim_start().chars().next().is_none_or(|c| c == '#')
        }
        None => line.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim_end();
            !key.is_empty() && key.chars().all(is_name)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells_a_description_from_a_log() {
        let cases = [
            ("nodes = 2\n", true),
            ("# my cluster\n\n[fabric]\nkind = 'x'", true),
            ("[[switch]] # leaf\n", true),
            ("\"nodes\"=2", true),
            ("", false),
            ("# nThread 1 nGpus 1 minBytes 8\n#  Rank  0", false),
            ("[1] NCCL INFO Bootstrap", false),
            ("[node:0] = x", false),
            ("<system version=\"1\">", false),
            ("export NCCL_DEBUG=INFO", false),
            ("host:1:2 [0] NCCL INFO comm=0x5", false),
        ];
        for (text, is_description) in cases {
            assert_eq!(looks_like_description(text), is_description, "{text}");
        }
    }
}

//! The inputs at hand: logs, cases, published tables, reproductions and ordinary training output of `tests/data`.

use crate::support::published::Published;
use std::path::{Path, PathBuf};

/// One file of an input. What is no UTF-8 is replaced: changes work on text.
#[derive(Clone)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// What a user would give together.
#[derive(Clone)]
pub struct Input {
    pub name: String,
    pub files: Vec<File>,
}

impl Input {
    /// An input of one file.
    pub fn new(name: &str, text: impl Into<String>) -> Self {
        Input { name: name.into(), files: vec![File { name: name.into(), text: text.into() }] }
    }

    /// Files that are given together.
    pub fn of_files(paths: &[PathBuf]) -> Self {
        let names: Vec<String> = paths.iter().map(|path| short_name(path)).collect();
        let files = paths.iter().zip(&names).map(|(path, name)| File { name: name.clone(), text: read(path) });
        Input { name: names.join(" + "), files: files.collect() }
    }

    /// The same input with every log changed; documents (JSON, XML) have no lines to change.
    pub fn changed(&self, change: impl Fn(&str) -> String) -> Self {
        let mut changed = self.clone();
        for file in changed.files.iter_mut().filter(|file| !is_document(&file.text)) {
            file.text = change(&file.text);
        }
        changed
    }

    /// The same input with one more file.
    pub fn beside(&self, name: &str, text: &str) -> Self {
        let mut both = self.clone();
        both.files.push(File { name: name.into(), text: text.into() });
        both
    }

    pub fn text(&self) -> String {
        self.files.iter().map(|file| file.text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

fn is_document(text: &str) -> bool {
    text.trim_start().starts_with(['{', '<'])
}

/// The folder of the tests' data.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data")
}

/// A file's text.
pub fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The files or folders directly in a folder whose names end so, sorted.
pub fn entries(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(ending));
    paths.sort();
    paths
}

fn short_name(path: &Path) -> String {
    let below = path.to_string_lossy().replace('\\', "/");
    below.rsplit_once("tests/data/").map_or(below.clone(), |(_, below)| below.to_string())
}

/// A file of `tests/data`, as an input of its own.
pub fn file(name: &str) -> Input {
    Input::of_files(&[data().join(name)])
}

/// Whole real logs, of both sets.
pub fn logs() -> Vec<Input> {
    let logs = ["logs", "logs-2"].map(|folder| entries(&data().join(folder), ".log"));
    logs.into_iter().flatten().map(|path| Input::of_files(&[path])).collect()
}

/// Starts of real NCCL whose truth is known.
pub fn inits() -> Vec<Input> {
    entries(&data().join("logs-nccl"), ".log").into_iter().map(|path| Input::of_files(&[path])).collect()
}

/// Cases from issue threads, of both sets.
pub fn cases() -> Vec<Input> {
    let folders = ["cases", "cases-2"].map(|folder| entries(&data().join(folder), ""));
    let folders = folders.into_iter().flatten().filter(|folder| folder.is_dir());
    folders.map(|folder| Input::of_files(&entries(&folder.join("input"), ""))).collect()
}

/// Recorded runs of the field reports.
pub fn runs() -> Vec<Input> {
    let runs = entries(&data().join("runs"), "").into_iter().map(|folder| folder.join("run.log"));
    runs.filter(|log| log.exists()).map(|log| Input::of_files(&[log])).collect()
}

/// Reproductions, each file for itself.
pub fn reproductions() -> Vec<Input> {
    let folder = data().join("reproductions");
    let folders = [folder.clone(), folder.join("one-run-four-pastes"), folder.join("hosts")];
    let files = folders.iter().flat_map(|folder| entries(folder, "")).filter(|path| path.is_file());
    let no_input = ["README.md", "expected.jsonl", "harmless-lines.txt", "h20x8.toml"];
    files
        .filter(|path| !no_input.iter().any(|name| path.ends_with(name)))
        .map(|path| Input::of_files(&[path]))
        .collect()
}

/// Published tables as nccl-tests prints them, with the list of devices and without, which have this status.
pub fn tables(status: &str) -> Vec<Input> {
    let paths = entries(&data().join("tables"), ".toml");
    let tables = paths.iter().map(|path| Published::read(path)).filter(|table| table.about.status == status);
    let forms = |table: Published| {
        [(true, "with devices"), (false, "alone")]
            .map(|(devices, how)| Input::new(&format!("{} {how}", table.name), table.print(devices)))
    };
    tables.flat_map(forms).collect()
}

/// Output of training that went well, made by `scripts/ordinary-output`.
pub fn ordinary() -> Vec<Input> {
    entries(&data().join("ordinary"), ".log").into_iter().map(|path| Input::of_files(&[path])).collect()
}

/// Everything that tells of a run or a machine.
pub fn all() -> Vec<Input> {
    let tables = ["good", "degraded", "unknown"].into_iter().flat_map(tables);
    [logs(), cases(), runs(), reproductions()].into_iter().flatten().chain(tables).collect()
}

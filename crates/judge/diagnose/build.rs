//! Reads what experts write in `rules/` as busbw will, so that what does not fit stops the build with file and line; and lists
//! the files of signatures and of known faults, so that a new one needs no Rust.

#[allow(dead_code, reason = "the product uses what is parsed here")]
#[path = "src/data.rs"]
mod data;
#[allow(dead_code, reason = "the product uses what is parsed here")]
#[path = "src/known_faults/table.rs"]
mod table;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    match check_and_list() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn check_and_list() -> Result<(), String> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(|e| e.to_string())?).join("../../..");
    for name in ["advice", "variables", "environment", "findings", "forms", "counters", "surroundings", "words"] {
        let path = format!("rules/{name}.toml");
        data::check(&path, &read(&root.join(&path))?).ok_or_else(|| format!("{path}: nothing reads it"))??;
    }
    data::parse::<toml::Table>("rules/hardware.toml", &read(&root.join("rules/hardware.toml"))?)?;
    let signatures = files(&root, "rules/signatures")?;
    data::causes(signatures.iter().map(|(path, text)| (path.as_str(), text.as_str())))?;
    let out = env::var("OUT_DIR").map(PathBuf::from).map_err(|e| e.to_string())?;
    list(&out, "signatures", &signatures, |path| format!("include_str!({:?})", root.join(path)))?;
    let faults = files(&root, "rules/known-faults")?;
    table::faults(faults.iter().map(|(path, text)| (path.as_str(), text.as_str())))?;
    let tables = faults.iter().map(|(path, text)| data::parse::<Faults>(path, text));
    let all: Vec<toml::Value> =
        tables.collect::<Result<Vec<_>, _>>()?.into_iter().flat_map(|table| table.fault).collect();
    // As JSON, because every start reads them, and packed, because they would be a thirtieth of the static command.
    let json = serde_json::to_vec(&all).map_err(|e| e.to_string())?;
    pack(&out.join("known-faults.json.gz"), &json).map_err(|e| format!("rules/known-faults: {e}"))
}

/// A file of known faults, as it is written.
#[derive(serde::Deserialize)]
struct Faults {
    fault: Vec<toml::Value>,
}

/// Writes the list of files of a folder, and how each is included.
fn list(out: &Path, name: &str, files: &[(String, String)], included: impl Fn(&str) -> String) -> Result<(), String> {
    let mut list = String::from("[\n");
    for (path, _) in files {
        let _ = writeln!(list, "({path:?}, {}),", included(path)); // writing to a string does not fail
    }
    list.push(']');
    fs::write(out.join(name).with_extension("rs"), list).map_err(|e| e.to_string())
}

fn pack(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut packed = GzEncoder::new(fs::File::create(file)?, Compression::best());
    packed.write_all(text)?;
    packed.finish().map(drop)
}

/// The files of a folder by their path from the top of the repository, with their text.
fn files(root: &Path, folder: &str) -> Result<Vec<(String, String)>, String> {
    let place = root.join(folder);
    println!("cargo::rerun-if-changed={}", place.display());
    let entries = fs::read_dir(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    names.iter().map(|name| Ok((format!("{folder}/{name}"), read(&place.join(name))?))).collect()
}

fn read(path: &Path) -> Result<String, String> {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

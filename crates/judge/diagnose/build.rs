//! Reads what experts write in `rules/` as busbw will, so that what does not fit stops the build with file and line; and lists
//! the files of signatures and of known faults, so that a new one needs no Rust.

#[allow(dead_code, reason = "the product uses what is parsed here")]
#[path = "src/data.rs"]
mod data;
#[allow(dead_code, reason = "the product uses what is parsed here")]
#[path = "src/known_faults/table.rs"]
mod table;

use std::fmt::Write;
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
    list(&root, "signatures", &signatures)?;
    let faults = files(&root, "rules/known-faults")?;
    table::faults(faults.iter().map(|(path, text)| (path.as_str(), text.as_str())))?;
    list(&root, "known-faults", &faults)
}

/// Writes the list of files of a folder for the crate to include.
fn list(root: &Path, name: &str, files: &[(String, String)]) -> Result<(), String> {
    let mut list = String::from("[\n");
    for (path, _) in files {
        let file = root.join(path);
        let _ = writeln!(list, "({path:?}, include_str!({file:?})),"); // writing to a string does not fail
    }
    list.push(']');
    let out = env::var("OUT_DIR").map_err(|e| e.to_string())?;
    fs::write(Path::new(&out).join(name).with_extension("rs"), list).map_err(|e| e.to_string())
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

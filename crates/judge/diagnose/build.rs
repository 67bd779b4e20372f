//! Reads what experts write in `rules/` as busbw will, so that what does not fit stops the build with file and line; and lists
//! the files of signatures, so that a new one needs no Rust.

#[allow(dead_code, reason = "the product uses what is parsed here")]
#[path = "src/data.rs"]
mod data;

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
        data::check(&path, &read(&root.join(&path))?)?;
    }
    data::parse::<toml::Table>("rules/hardware.toml", &read(&root.join("rules/hardware.toml"))?)?;
    let signatures = signatures(&root.join("rules/signatures"))?;
    data::causes(signatures.iter().map(|(path, text)| (path.as_str(), text.as_str())))?;
    let mut list = String::from("[\n");
    for (path, _) in &signatures {
        let file = root.join(path);
        let _ = writeln!(list, "({path:?}, include_str!({file:?})),"); // writing to a string does not fail
    }
    list.push(']');
    let out = env::var("OUT_DIR").map_err(|e| e.to_string())?;
    fs::write(Path::new(&out).join("signatures.rs"), list).map_err(|e| e.to_string())
}

/// The files of signatures by their path from the top of the repository, with their text.
fn signatures(folder: &Path) -> Result<Vec<(String, String)>, String> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    names.iter().map(|name| Ok((format!("rules/signatures/{name}"), read(&folder.join(name))?))).collect()
}

fn read(path: &Path) -> Result<String, String> {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

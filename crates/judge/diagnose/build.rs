//! Reads what experts write in `rules/` as busbw will, so that what does not fit stops the build with file and line; and writes all
//! signatures and known faults as busbw reads them quickly. A new file of them needs no Rust.

#[allow(dead_code, reason = "the product uses what is parsed here")]
#[path = "src/data.rs"]
mod data;
#[allow(dead_code, reason = "the product uses what is parsed here")]
#[path = "src/known_faults/table.rs"]
mod table;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};
use toml::Spanned;

fn main() -> ExitCode {
    match check_and_write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn check_and_write() -> Result<(), String> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(|e| e.to_string())?).join("../../..");
    for name in ["advice", "variables", "environment", "findings", "forms", "counters", "surroundings", "words"] {
        let path = format!("rules/{name}.toml");
        data::check(&path, &read(&root.join(&path))?).ok_or_else(|| format!("{path}: nothing reads it"))??;
    }
    data::parse::<toml::Table>("rules/hardware.toml", &read(&root.join("rules/hardware.toml"))?)?;
    let out = env::var("OUT_DIR").map(PathBuf::from).map_err(|e| e.to_string())?;
    let write = |name: &str, json: Vec<u8>| fs::write(out.join(name), json).map_err(|e| format!("{name}: {e}"));
    let signatures = files(&root, "rules/signatures")?;
    data::causes(signatures.iter().map(|(path, text)| (path.as_str(), text.as_str())))?;
    write("causes.json", causes(&signatures)?)?;
    write("findings.json", causes(&[("findings.toml".to_owned(), read(&root.join("rules/findings.toml"))?)])?)?;
    let faults = files(&root, "rules/known-faults")?;
    table::faults(faults.iter().map(|(path, text)| (path.as_str(), text.as_str())))?;
    let tables = faults.iter().map(|(path, text)| data::parse::<Entries>(path, text));
    let faults: Vec<_> = tables.collect::<Result<Vec<_>, _>>()?.into_iter().flat_map(|table| table.fault).collect();
    let printed: Vec<_> = faults.iter().filter(|fault| fault.get("text").is_some()).collect();
    write("printed-faults.json", json(&printed)?)?;
    // Packed, because they would be a thirtieth of the static command.
    pack(&out.join("known-faults.json.gz"), &json(&faults)?).map_err(|e| format!("rules/known-faults: {e}"))
}

/// The causes of files, each with its place.
fn causes(files: &[(String, String)]) -> Result<Vec<u8>, String> {
    let mut causes = Vec::new();
    for (path, text) in files {
        let placed = |cause: Spanned<_>| (data::place(path, text, cause.span().start), cause.into_inner());
        causes.extend(data::parse::<Entries>(path, text)?.cause.into_iter().map(placed));
    }
    json(&causes)
}

/// A file of signatures or of known faults, as it is written.
#[derive(serde::Deserialize)]
struct Entries {
    #[serde(default)]
    cause: Vec<Spanned<toml::Value>>,
    #[serde(default)]
    fault: Vec<toml::Value>,
}

fn json(entries: &impl serde::Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(entries).map_err(|e| e.to_string())
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

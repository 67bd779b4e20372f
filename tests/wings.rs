//! The wings of the house (docs/architecture.md): which of them a crate may import, its tests too.

#![allow(clippy::unwrap_used)] // in helpers of tests too

use crate::support::skip::root_folder;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A wing, the wings that its crates may import, and those that only their tests may import. Within a wing, cargo refuses circles.
const WINGS: &[(&str, &[&str], &[&str])] = &[
    ("model", &[], &[]),
    ("read", &["model"], &[]),
    ("judge", &["model", "judge"], &["read"]),
    ("show", &["model", "judge"], &[]),
    ("move", &["model", "move"], &[]),
    ("nccl", &["model", "move", "nccl"], &[]),
    ("run", &["model", "read", "judge", "move", "nccl"], &[]),
    ("compress", &[], &[]),
    ("cli", &["model", "read", "judge", "show", "move", "nccl", "run"], &[]),
    ("python", &["model", "read", "judge", "show", "run", "compress"], &[]),
    ("benches", &["model", "read", "judge", "run"], &[]),
    ("fuzz", &["model", "read", "judge", "show", "move", "run"], &[]),
    ("tests", &[], &[]),
];

/// The folders of all crates, those outside the workspace too.
pub fn crates() -> Vec<PathBuf> {
    let mut found = vec![root_folder().join("benches"), root_folder().join("fuzz"), root_folder().join("tests/pages")];
    let folders = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for wing in folders(&root_folder().join("crates")) {
        let alone = wing.join("Cargo.toml").exists();
        found.extend(if alone { vec![wing] } else { folders(&wing).collect() });
    }
    found.sort();
    found
}

fn manifest(folder: &Path) -> toml::Table {
    fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap()
}

/// What cargo calls a crate, without `busbw-`; the command's is `busbw`.
pub fn name(folder: &Path) -> String {
    let name = manifest(folder)["package"]["name"].as_str().unwrap().to_owned();
    name.strip_prefix("busbw-").map_or(name.clone(), str::to_owned)
}

fn wing(folder: &Path) -> String {
    let below = folder.strip_prefix(root_folder()).unwrap();
    let below = below.strip_prefix("crates").unwrap_or(below);
    below.iter().next().unwrap().to_str().unwrap().to_owned()
}

/// Our crates in a section of a manifest.
fn imports(manifest: &toml::Table, section: &str) -> Vec<String> {
    let names = manifest.get(section).and_then(|section| section.as_table()).into_iter().flat_map(|table| table.keys());
    names.filter_map(|name| name.strip_prefix("busbw-")).map(str::to_owned).collect()
}

#[test]
fn crates_import_only_the_wings_below_them() {
    let crates = crates();
    assert!(crates.len() > 20, "{crates:?}");
    let wing_of = |imported: &String| {
        let folder = crates.iter().find(|folder| name(folder) == *imported);
        wing(folder.unwrap_or_else(|| panic!("no crate is called {imported}")))
    };
    let mut used = BTreeSet::new();
    for folder in &crates {
        let (own, manifest) = (wing(folder), manifest(folder));
        let (_, allowed, in_tests) = WINGS.iter().find(|(wing, ..)| *wing == own).expect("the table has every wing");
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for imported in imports(&manifest, section) {
                let other = wing_of(&imported);
                let may = allowed.contains(&other.as_str())
                    || section == "dev-dependencies" && in_tests.contains(&other.as_str());
                assert!(may, "{}: {own} may not import {imported}, which is in {other}", folder.display());
                used.insert((own.clone(), other));
            }
        }
    }
    for (wing, allowed, in_tests) in WINGS {
        for other in allowed.iter().chain(*in_tests) {
            assert!(used.contains(&(wing.to_string(), other.to_string())), "nothing in {wing} imports {other}");
        }
    }
}

/// Names such as `ingest::scan` in the map: a file of the crate, or an item that the crate declares.
#[test]
fn the_map_names_what_is_there() {
    let map = fs::read_to_string(root_folder().join("docs/architecture.md")).unwrap();
    let path = regex::Regex::new(r"`([a-z_]+)::(?:[a-z_]+::)*([A-Za-z_]+)`").unwrap();
    let crates = crates();
    let mut named = 0;
    for found in path.captures_iter(&map) {
        let own = found[1].replace('_', "-");
        // `torch::hook` is Python's; pytest finds that.
        let Some(folder) = crates.iter().find(|folder| name(folder) == own || folder.ends_with(&own)) else { continue };
        let sources = super::house::sources(&folder.join("src"), &[".rs"]);
        let is_file = |file: &PathBuf| {
            file.file_stem().is_some_and(|stem| *stem == found[2]) || file.ends_with(format!("{}/mod.rs", &found[2]))
        };
        let item = regex::Regex::new(&format!(r"\b(fn|struct|enum|trait|mod|const) {}\b", &found[2])).unwrap();
        let is_declared = |file: &PathBuf| item.is_match(&fs::read_to_string(file).unwrap());
        assert!(
            sources.iter().any(|file| is_file(file) || is_declared(file)),
            "docs/architecture.md names {}",
            &found[0]
        );
        named += 1;
    }
    assert!(named > 30, "only {named} names were found");
}

//! The wings of the house (docs/architecture.md): which of them a crate may import, its tests too.

#![allow(clippy::unwrap_used)] // in helpers of tests too

use crate::support::skip::root_folder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A wing, the wings that its crates may import, and those that only their tests may import. Within a wing, cargo refuses circles.
const WINGS: &[(&str, &[&str], &[&str])] = &[
    ("model", &[], &[]),
    ("read", &["model", "read"], &[]),
    ("judge", &["model", "judge"], &["read"]),
    ("show", &["model", "judge"], &[]),
    ("move", &["model", "move"], &[]),
    ("nccl", &["model", "move", "nccl"], &[]),
    ("run", &["model", "read", "judge", "move", "nccl", "run"], &[]),
    ("compress", &[], &[]),
    ("cli", &["model", "read", "judge", "show", "move", "nccl", "run"], &[]),
    ("python", &["model", "read", "judge", "show", "move", "run", "compress"], &[]),
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

/// Files of a crate that use each other in a circle, by the first of them; docs/architecture.md says why they stay.
const CIRCLES: &[(&str, &[&str])] = &[
    ("bench", &["backend", "verify"]),
    ("collectives", &["reduction::element", "reduction::kernel", "reduction::level"]),
    ("transport", &["shm::group", "shm::receiver", "shm::sender"]),
    ("transport", &["tcp::send", "tcp::send_lane", "tcp::zero_copy"]),
    ("tune", &["slurm", "sweep"]),
];

/// A file's module: `reduction::level`.
fn module(source: &Path, file: &Path) -> String {
    let path = file.strip_prefix(source).unwrap().with_extension("");
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
    let is_named_above = ["mod", "lib", "main"].contains(parts.last().unwrap());
    parts[..parts.len() - usize::from(is_named_above)].join("::")
}

/// The paths of `a::{b, c::d}`.
fn branches(tree: &str) -> Vec<String> {
    let Some((start, inner)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inner = &inner[..inner.rfind('}').unwrap_or(inner.len())];
    let mut depth = 0;
    let commas = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    commas.flat_map(branches).map(|branch| format!("{}{branch}", start.trim())).collect()
}

/// Modules that a file uses: not itself, nor those above it, which may hand on what stands below them.
fn uses(own: &str, text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let path = regex::Regex::new(r"\b(?:crate|super|self)::(?:[a-z_0-9]+::)*(?:\{[^;]*\}|\w+)").unwrap();
    let code: String = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap()
        .lines()
        .map(|line| line.split("//").next().unwrap().to_owned() + "\n")
        .collect();
    let absolute = |path: String| {
        let mut base: Vec<&str> = own.split("::").filter(|part| !part.is_empty()).collect();
        for (at, part) in path.split("::").enumerate() {
            match part {
                "crate" => base.clear(),
                "super" => drop(base.pop()),
                "self" if at == 0 => {}
                part => base.push(part.split_whitespace().next().unwrap_or_default()),
            }
        }
        (0..=base.len()).rev().map(|length| base[..length].join("::")).find(|path| modules.contains(path))
    };
    let used = path.find_iter(&code).flat_map(|found| branches(found.as_str())).filter_map(absolute);
    used.filter(|used| !used.is_empty() && used != own && !own.starts_with(&format!("{used}::"))).collect()
}

/// The modules that one leads to, over whatever others.
fn reached<'a>(from: &'a str, edges: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(edges[module].iter().map(String::as_str).filter(|next| seen.insert(*next)));
    }
    seen
}

#[test]
fn files_use_each_other_in_no_circle_but_those_that_are_explained() {
    let mut circles = BTreeSet::new();
    for folder in crates().into_iter().filter(|folder| folder.starts_with(root_folder().join("crates"))) {
        let source = folder.join("src");
        let files = super::house::sources(&source, &[".rs"]);
        let is_test = |module: &str| module.split("::").any(|part| ["tests", "fuzzing"].contains(&part));
        let files: BTreeMap<String, PathBuf> =
            files.into_iter().map(|file| (module(&source, &file), file)).filter(|(name, _)| !is_test(name)).collect();
        let modules: BTreeSet<String> = files.keys().cloned().collect();
        let edges: BTreeMap<String, BTreeSet<String>> = files
            .iter()
            .map(|(name, file)| (name.clone(), uses(name, &fs::read_to_string(file).unwrap(), &modules)))
            .collect();
        for own in edges.keys() {
            let mut circle: Vec<&str> = reached(own, &edges)
                .into_iter()
                .filter(|other| reached(other, &edges).contains(own.as_str()))
                .collect();
            circle.sort_unstable();
            if !circle.is_empty() {
                circles.insert((name(&folder), circle.iter().map(|part| part.to_string()).collect::<Vec<_>>()));
            }
        }
    }
    let known =
        CIRCLES.iter().map(|(name, files)| (name.to_string(), files.iter().map(|file| file.to_string()).collect()));
    assert_eq!(circles, known.collect::<BTreeSet<_>>());
}

#[test]
fn trees_of_imports_are_taken_apart() {
    assert_eq!(branches("crate::a::{b, c::{d, e as f}}"), ["crate::a::b", "crate::a::c::d", "crate::a::c::e as f"]);
    let modules: BTreeSet<String> = ["", "a", "a::b", "a::c"].map(str::to_owned).into();
    let used = uses(
        "a::b",
        "use super::c::X; // crate::d\nuse crate::a::Y;\nfn f() { self::g(); super::super::h() }",
        &modules,
    );
    assert_eq!(used, BTreeSet::from(["a::c".to_owned()]));
}

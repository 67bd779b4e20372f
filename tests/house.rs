//! Habits of the house that a program can hold: short files, modules of one style, words of the glossary, `unsafe` that is
//! counted, a reference of commands that is the help, faults that are named as their tests are.

#![allow(clippy::unwrap_used)] // in helpers of tests too

use crate::support::command::BUSBW;
use crate::support::skip::root_folder;
use crate::wings;
use busbw_transport::variables::{KNOWN, OF_TESTS};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MOST_LINES: usize = 500;

/// Files below `folder` with one of these endings; not what tests read, nor what was built.
pub fn sources(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap().to_str().unwrap();
            if entry.is_dir() && !["data", "target", "__pycache__"].contains(&name) {
                folders.push(entry);
            } else if entry.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

/// The folders of the product's crates.
fn in_crates() -> impl Iterator<Item = PathBuf> {
    wings::crates().into_iter().filter(|folder| folder.starts_with(root_folder().join("crates")))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn no_file_is_too_long_to_read() {
    // Scripts have no endings.
    const SCRIPTS: &[&str] = &[""];
    let of_code = ["crates", "tests", "benches", "fuzz", "python"].map(|room| (room, &[".rs", ".py", ".c", ".h"][..]));
    let rooms = of_code.into_iter().chain(["scripts", "tests/lab", "examples"].map(|room| (room, SCRIPTS)));
    let files: Vec<PathBuf> = rooms.flat_map(|(room, endings)| sources(&root_folder().join(room), endings)).collect();
    assert!(files.iter().any(|file| file.ends_with("scripts/gpu-check")));
    assert!(files.len() > 300, "only {} files were found", files.len());
    let long = |file: &&PathBuf| read(file).lines().count() > MOST_LINES;
    let long: Vec<_> = files.iter().filter(long).collect();
    assert!(long.is_empty(), "more than {MOST_LINES} lines; split them by what they do: {long:?}");
}

#[test]
fn a_module_with_others_in_it_is_a_folder_with_mod_rs() {
    let files = ["crates", "benches"].into_iter().flat_map(|room| sources(&root_folder().join(room), &[".rs"]));
    let beside: Vec<_> = files.filter(|file| file.with_extension("").is_dir()).collect();
    assert!(beside.is_empty(), "x.rs beside a folder x; make it x/mod.rs: {beside:?}");
}

/// The words of a text: names are taken apart at underscores and capitals, texts in quotes are left out.
fn words(text: &str) -> impl Iterator<Item = String> {
    let plain = regex::Regex::new(r#""([^"\\\n]|\\.)*""#).unwrap().replace_all(text, "").into_owned();
    let word = regex::Regex::new("[A-Z]?[a-z]+|[A-Z]+").unwrap();
    word.find_iter(&plain).map(|found| found.as_str().to_lowercase()).collect::<Vec<_>>().into_iter()
}

#[test]
fn words_that_the_glossary_refuses_are_nowhere() {
    let page = root_folder().join("docs/glossary.md");
    let table = read(&page).split_once("| not | but |").unwrap().1.to_owned();
    let rows = table.lines().skip(2).filter_map(|row| row.trim_matches(['|', ' ']).split_once(" | "));
    let refused: BTreeMap<&str, &str> = rows.collect();
    assert!(refused.len() > 5, "{refused:?}");
    let code = in_crates().flat_map(|folder| sources(&folder.join("src"), &[".rs"]));
    let docs = sources(&root_folder().join("docs"), &[".md"]).into_iter().filter(|file| *file != page);
    for file in code.chain(docs) {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        for word in words(&format!("{name}\n{}", read(&file))) {
            if let Some(instead) = refused.get(word.as_str()) {
                panic!("{}: '{word}'; write {instead} (docs/glossary.md)", file.display());
            }
        }
    }
}

/// Blocks, functions and implementations that are `unsafe`, in the sources of a crate.
fn unsafe_in(folder: &Path) -> [usize; 3] {
    let mut counts = [0; 3];
    for file in sources(folder, &[".rs"]) {
        for line in read(&file).lines().filter(|line| !line.trim_start().starts_with("//")) {
            counts[0] += line.matches("unsafe {").count();
            counts[1] += line.matches("unsafe fn").count() + line.matches("unsafe extern \"C\" fn").count();
            counts[2] += line.matches("unsafe impl").count();
        }
    }
    counts
}

#[test]
fn unsafe_is_counted_in_the_docs() {
    let there: BTreeMap<String, [usize; 3]> = in_crates()
        .map(|folder| (wings::name(&folder), unsafe_in(&folder.join("src"))))
        .filter(|(_, counts)| *counts != [0; 3])
        .collect();
    let page = read(&root_folder().join("docs/unsafe.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeMap<String, [usize; 3]> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (cells[0].trim_end_matches('`').to_owned(), [1, 2, 3].map(|cell| cells[cell].parse().unwrap()))
        })
        .collect();
    assert_eq!(told, there, "docs/unsafe.md tells other numbers (blocks, functions, implementations) than there are");
}

/// The help of every subcommand, as a page.
fn reference() -> String {
    let help = |words: &[&str]| {
        let output =
            Command::new(BUSBW).args(words).arg("--help").env_remove("COLUMNS").output().expect("busbw starts");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("help is text")
    };
    let overview = help(&[]);
    let names =
        overview.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  ")).map(|(name, _)| name.trim());
    let names: Vec<&str> =
        names.filter(|name| !name.is_empty() && !name.starts_with(['-', ' ']) && *name != "help").collect();
    assert!(names.len() > 12, "{names:?}");
    let mut page = String::from(
        "# Commands\n\nWhat `busbw COMMAND --help` prints. Tests write this page: `INSTA_UPDATE=always cargo test -p busbw --test all house`.\n",
    );
    write!(page, "\n## busbw\n\n```text\n{}\n```\n", overview.trim_end()).unwrap();
    for name in names {
        let text = help(&[name]);
        write!(page, "\n## busbw {name}\n\n```text\n{}\n```\n", text.trim_end()).unwrap();
        if name == "plugin" {
            write!(page, "\n## busbw plugin check\n\n```text\n{}\n```\n", help(&[name, "check"]).trim_end()).unwrap();
        }
    }
    page
}

#[test]
fn the_reference_of_commands_is_the_help() {
    let page = reference();
    let file = root_folder().join("docs/commands.md");
    if std::env::var("INSTA_UPDATE").as_deref() == Ok("always") {
        fs::write(&file, &page).unwrap();
    }
    assert!(
        read(&file) == page,
        "docs/commands.md is not what --help prints; its second line says how to write it anew"
    );
}

#[test]
fn every_command_shows_examples() {
    let page = reference();
    for section in page.split("\n## busbw ").skip(1) {
        let name = section.lines().next().unwrap_or_default();
        assert!(section.contains("Examples:\n  "), "busbw {name} --help has no examples");
    }
}

/// Where the sources of a package's tests are: a file or a folder of modules, or its own sources for unit tests.
fn tests_of(package: &str, module: &str) -> PathBuf {
    let of = |name: &str| in_crates().find(|folder| wings::name(folder) == name).expect("such a crate is there");
    let below = match (package.strip_prefix("busbw-"), module) {
        (None, _) => root_folder().join("tests"),
        (Some(name), "--lib") => return of(name).join("src"),
        (Some(name), _) => of(name).join("tests/all"),
    };
    below.join(module.replace("::", "/")).with_extension("rs")
}

/// `make faults` takes minutes; that the tests which it names are there is seen here.
#[test]
fn the_faults_of_make_faults_are_there() {
    let listed = Command::new(root_folder().join("scripts/faults")).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.lines().count() > 10, "{listed}");
    for suite in listed.lines() {
        let mut named = suite.split_once(": ").unwrap().1.split(' ');
        let (package, modules) = (named.next().unwrap(), named.next().unwrap());
        let places = modules.split(',').map(|module| tests_of(package, module));
        let files = places.flat_map(|place| if place.is_dir() { sources(&place, &[".rs"]) } else { vec![place] });
        let code: String = files.map(|file| read(&file)).collect();
        for word in named {
            let test = regex::Regex::new(&format!(r"fn \w*{word}")).unwrap();
            assert!(test.is_match(&code), "no test has '{word}' in its name: {suite}");
        }
    }
}

/// Words that begin like our variables, in files of these folders.
fn variables_in(folders: &[&str], endings: &[&str]) -> BTreeSet<String> {
    let word = regex::Regex::new(r"\bBUSBW_[A-Z_]*[A-Z]\b").unwrap();
    let files = folders.iter().flat_map(|folder| sources(&root_folder().join(folder), endings));
    // The list itself has misspelt names in its tests.
    let files = files.filter(|file| !file.ends_with("transport/src/variables.rs"));
    files
        .flat_map(|file| word.find_iter(&read(&file)).map(|found| found.as_str().to_owned()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn variables_are_listed_once_and_told_in_the_docs() {
    let known: BTreeSet<String> = KNOWN.into_iter().map(str::to_owned).collect();
    let of_tests = |name: &String| OF_TESTS.iter().any(|prefix| name.starts_with(prefix));
    let read_there: BTreeSet<String> =
        variables_in(&["crates", "python/busbw"], &[".rs", ".py"]).into_iter().filter(|name| !of_tests(name)).collect();
    assert_eq!(read_there, known, "crates/move/transport/src/variables.rs has the list");
    let page = read(&root_folder().join("docs/variables.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned));
    assert_eq!(rows.collect::<BTreeSet<_>>(), known, "docs/variables.md has a row for each");
    let scripts = variables_in(&["scripts", "tests/lab"], &[""]);
    let elsewhere = variables_in(&["tests", "docs", "benches"], &[".rs", ".md", ".py"]);
    let misspelt: Vec<_> = elsewhere.union(&scripts).filter(|name| !known.contains(*name) && !of_tests(name)).collect();
    assert!(misspelt.iter().all(|name| *name == "BUSBW_NET_CHEKSUM"), "{misspelt:?}");
}

//! The files of `rules/`, and whether their JSON Schemas and busbw agree on what is valid.

#![allow(clippy::unwrap_used)]

use busbw_diagnose::{Book, UserFacts, check_rules, diagnose_with, labelled};
use busbw_model::{Code, Speaker};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../rules")
}

fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).collect()
}

fn schema(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(rules().join(format!("schema/{name}.schema.json"))).unwrap()).unwrap()
}

/// What a schema says against a file.
fn against(schema: &Value, text: &str) -> Vec<String> {
    let file: Value = toml::from_str(text).unwrap();
    let validator = jsonschema::validator_for(schema).unwrap();
    validator.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn every_file_is_valid_by_its_schema_and_by_busbw() {
    let signatures = toml_files(&rules().join("signatures")).into_iter().chain(toml_files(&rules().join("example")));
    let signatures = signatures.map(|path| (path, "signatures".to_string()));
    let schemas = fs::read_dir(rules().join("schema")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = schemas.map(|name| name.to_str().unwrap().trim_end_matches(".schema.json").to_string());
    let faults = toml_files(&rules().join("known-faults")).into_iter().map(|path| (path, "known-faults".to_string()));
    let of_folders = ["signatures", "known-faults"];
    let others = names.filter(|name| !of_folders.contains(&name.as_str()));
    let others = others.map(|name| (rules().join(format!("{name}.toml")), name));
    let files: Vec<(PathBuf, String)> = signatures.chain(faults).chain(others).collect();
    assert!(files.len() > 10, "{files:?}");
    for (path, name) in files {
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(check_rules(path.to_str().unwrap(), &text), Ok(()));
        assert_eq!(against(&schema(&name), &text), [""; 0], "{}", path.display());
    }
}

const CAUSE: &str = r#"
[[cause]]
id = "a.b"
code = "gpu.error"
confidence = 0.9
title = "A title"
explanation = "An explanation."
remedy = ["A step"]
printed = [{ by = "kernel", text = "a text of {} words", source = "Linux" }]
"#;

#[test]
fn schema_and_busbw_refuse_the_same() {
    let schema = schema("signatures");
    assert_eq!((check_rules("x.toml", CAUSE), against(&schema, CAUSE).len()), (Ok(()), 0));
    let mut file: toml::Table = toml::from_str(include_str!("../data/refused.toml")).unwrap();
    let cases: Vec<[String; 3]> = file.remove("refused").unwrap().try_into().unwrap();
    for [old, new, told] in cases {
        let text = CAUSE.replacen(&old, &new, 1);
        let error = check_rules("x.toml", &text).unwrap_err();
        assert!(error.starts_with(&told), "{new}: {error}");
        assert!(!against(&schema, &text).is_empty(), "the schema allows {new}");
    }
}

#[test]
fn an_error_of_cuda_is_known_in_the_words_of_all_programs() {
    let cause = CAUSE.replace("printed = ", "cuda = [\"out of memory\"]\nprinted = ");
    let book = Book::with("x.toml", &cause).unwrap();
    for line in [
        "h:1:2 [0] init.cc:3 NCCL WARN Cuda failure 2 'out of memory'",
        "h:1:2 [0] init.cc:3 NCCL WARN Cuda failure 'out of memory'",
        "h: Test CUDA failure common.cu:9 'out of memory'",
        "RuntimeError: CUDA error: out of memory",
    ] {
        let run = busbw_ingest::read_bytes(&[("log", line.as_bytes())]).unwrap();
        let found = diagnose_with(&run, &UserFacts { book: Some(&book), ..UserFacts::default() }).findings;
        assert!(found.iter().any(|finding| finding.title.starts_with("A title")), "{line}: {found:?}");
    }
}

#[test]
fn an_id_is_taken_once_in_a_file_and_replaced_by_a_file_of_ones_own() {
    let twice = [CAUSE, CAUSE].concat();
    assert!(check_rules("x.toml", &twice).unwrap_err().starts_with("x.toml:11:1: the id a.b is taken by x.toml:2:1"));
    let known = &Book::built_in().causes()[0];
    let book = Book::with("x.toml", &CAUSE.replace("a.b", &known.id)).unwrap();
    assert_eq!(book.causes().len(), Book::built_in().causes().len());
    assert_eq!((&*book.causes()[0].id, &*book.causes()[0].title), (&*known.id, "A title"));
    let forms = "cuda = [{ by = 'python', text = 'app: {error}', source = 'mine' }]";
    let more = |name: &str, text: &str| book.and(name, text).unwrap();
    for both in [more("y.toml", CAUSE), more("forms.toml", forms)] {
        let of = |id: &str| both.causes().iter().find(|cause| cause.id == id).map(|cause| cause.title.clone());
        assert_eq!(of(&known.id).as_deref(), Some("A title"));
        assert_eq!(of("a.b").is_some(), both.causes().len() > book.causes().len());
    }
}

#[test]
fn schema_and_readme_name_every_code_and_speaker() {
    let cause = schema("signatures")["properties"]["cause"]["items"]["properties"].clone();
    let codes: Vec<&str> = Code::ALL.iter().map(|(_, name, _)| *name).collect();
    assert_eq!(cause["code"]["enum"], json!(codes));
    let advice = schema("advice");
    assert_eq!(advice["properties"]["advice"]["items"]["properties"]["codes"]["items"]["enum"], json!(codes));
    let speakers: Vec<&str> =
        Speaker::ALL.into_iter().filter(|by| *by != Speaker::Program).map(Speaker::as_str).collect();
    assert_eq!(cause["printed"]["items"]["properties"]["by"]["enum"], json!(speakers));
    let readme = fs::read_to_string(rules().join("README.md")).unwrap();
    let keys = cause.as_object().unwrap().keys().map(String::as_str);
    for name in keys.chain(speakers) {
        assert!(readme.contains(&format!("`{name}`")), "rules/README.md does not explain {name}");
    }
}

/// `busbw rules test rules/cases`: a line, a log or several, and what busbw must say of them.
#[test]
fn every_case_has_its_answer() {
    let cases = labelled::load(&rules().join("cases")).unwrap();
    assert!(cases.len() > 400, "{}", cases.len());
    let misses = cases.iter().flat_map(|case| {
        let texts: Vec<(&str, &[u8])> = case.inputs.iter().map(|(name, text)| (&**name, &**text)).collect();
        let (_, misses) = case.label.answer(&busbw_ingest::read_bytes(&texts).unwrap(), Book::built_in());
        misses.into_iter().map(|miss| format!("{}: {miss}", case.id))
    });
    assert_eq!(misses.collect::<Vec<_>>(), [""; 0]);
}

/// Rules in Rust name their words in findings.toml by id, and fill gaps by name: neither may be missing on one side.
#[test]
fn rules_and_findings_name_the_same() {
    let folders = ["rules", "rules/ends", "rules/hang", "rules/straggler", "rules/watched", "check", "expectation"]
        .map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder));
    let sources = folders.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let sources = sources.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let sources = sources.map(|path| fs::read_to_string(path).unwrap());
    let words = fs::read_to_string(rules().join("words.toml")).unwrap();
    let source: String =
        sources.chain([words]).map(|text| text.split("#[cfg(test)]").next().unwrap().to_string()).collect();
    let quoted: BTreeSet<&str> = source.split('"').collect();
    let file: toml::Table = toml::from_str(&fs::read_to_string(rules().join("findings.toml")).unwrap()).unwrap();
    let causes = file["cause"].as_array().unwrap();
    let ids: BTreeSet<&str> = causes.iter().map(|cause| cause["id"].as_str().unwrap()).collect();
    let room = |id: &str| id.split_once('.').map(|(room, _)| room.to_string());
    let rooms: BTreeSet<Option<String>> = ids.iter().map(|id| room(id)).collect();
    let is_id = |text: &&&str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
            && text.contains('.')
            && !text.ends_with(".cc")
    };
    let named = quoted.iter().filter(is_id).filter(|text| rooms.contains(&room(text))).copied();
    assert_eq!(named.collect::<BTreeSet<_>>(), ids);
    for cause in causes {
        let text = ["title", "explanation"].map(|key| cause[key].as_str().unwrap()).concat();
        let gaps = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        gaps.for_each(|(gap, _)| assert!(quoted.contains(gap), "{cause}: {gap}"));
    }
}

/// A text of a file that a built-in cause of another code has, too, is told; of the same code it is not.
#[test]
fn a_text_with_two_codes_is_told() {
    let claim = |code: &str| {
        let cause = CAUSE.replace("gpu.error", code).replace("kernel", "python");
        cause.replace("a text of {} words", "OSError: [Errno 24] Too many open files")
    };
    let conflicts = |code: &str| Book::with("x.toml", &claim(code)).unwrap().conflicts("x.toml");
    assert_eq!(conflicts("limits.files"), [""; 0]);
    let told = conflicts("limits.shm");
    assert!(told.len() == 1 && told[0].starts_with("x.toml:2:1: a.b (limits.shm) claims"), "{told:?}");
}

/// Forms of a file `forms.toml` stand beside the built-in ones.
#[test]
fn forms_of_ones_own_are_read() {
    let forms = "cuda = [{ by = 'python', text = 'MyError: device says {error}', source = 'mine' }]";
    let book = Book::with("some/forms.toml", forms).unwrap();
    let log = "Traceback (most recent call last):\n  File \"/a.py\", line 3, in <module>\nMyError: device says out of memory\n";
    let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).unwrap();
    let told = |book: &Book| book.told(&run).len();
    assert_eq!((told(Book::built_in()), told(&book)), (0, 1));
    assert!(Book::with("forms.toml", "cud = []").unwrap_err().starts_with("forms.toml:1:1: unknown key `cud`"));
}

/// The example of the README is the one that tests run.
#[test]
fn the_readme_shows_the_example() {
    let readme = fs::read_to_string(rules().join("README.md")).unwrap();
    let example = fs::read_to_string(rules().join("example/hot.toml")).unwrap();
    let (_, example) = example.split_once("\n\n").unwrap();
    assert!(readme.contains(example.trim_end()));
}

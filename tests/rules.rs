//! `busbw rules` and `busbw explain --rules` from end to end, on the example of rules/README.md.

#![allow(clippy::unwrap_used)]

use crate::support::command;
use crate::support::process::Ended;
use crate::support::skip::root_folder;

const CASES: &str = "rules/example/cases";
const OWN: &str = "rules/example/hot.toml";
const LOG: &str = "rules/example/cases/overheated/input/dmesg.txt";
const TITLE: &str = "A NIC or its transceiver is too hot";

fn busbw(arguments: &[&str]) -> Ended {
    command::busbw(&root_folder(), arguments, None)
}

/// The exit status, and what both streams say.
fn told(arguments: &[&str]) -> (Option<i32>, String) {
    let ended = busbw(arguments);
    (ended.code(), ended.stdout + &ended.stderr)
}

fn printed(arguments: &[&str]) -> String {
    busbw(arguments).printed().to_owned()
}

#[test]
fn cases_have_the_expected_answer_with_the_rule_alone() {
    let with = printed(&["rules", "test", CASES, "--rules", OWN]);
    assert!(with.contains(&format!("ok    overheated: {TITLE}")), "{with}");
    assert!(with.ends_with("2 of 2 cases have the expected answer.\n"), "{with}");
    // What the example teaches to write, nothing else may know.
    let (_, without) = told(&["explain", LOG]);
    assert!(without.contains("has nothing to judge"), "{without}");
    let one = printed(&["rules", "test", "rules/example/cases/plugged", "--json"]);
    assert!(one.contains("\"right\": 1"), "{one}");
    let (status, text) = told(&["rules", "test", "crates/cli"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("a case is a folder with case.toml and input/"), "{text}");
}

#[test]
fn a_case_with_another_answer_is_a_miss() {
    let folder = std::env::temp_dir().join(format!("busbw-case-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("input")).unwrap();
    std::fs::write(folder.join("case.toml"), "label = \"gpu.error\"\nabsent = [\"nic.rate\"]\n").unwrap();
    std::fs::copy(root_folder().join(LOG), folder.join("input/dmesg.txt")).unwrap();
    let (status, text) = told(&["rules", "test", folder.to_str().unwrap(), "--rules", OWN]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(status, Some(1), "{text}");
    for miss in ["expected gpu.error first, got nic.rate", "expected no nic.rate, got", "0 of 1 cases"] {
        assert!(text.contains(miss), "{text}");
    }
}

#[test]
fn explain_takes_rules_of_ones_own() {
    let (status, text) = told(&["explain", "--rules", OWN, LOG]);
    assert_eq!(status, Some(3));
    assert!(text.starts_with(&format!("UNDECIDED  {TITLE}")), "{text}");
    let (status, text) = told(&["explain", "--rules", "rules/example/cases/plugged/case.toml", LOG]);
    assert_eq!(status, Some(2));
    assert!(text.contains("expected `cause` or `fault`; rules/README.md explains every key"), "{text}");
}

/// One file of one's own holds signatures and known faults, for `explain` and `advise`; a mistake is told with its place.
#[test]
fn advise_takes_known_faults_of_ones_own() {
    let file = std::env::temp_dir().join(format!("busbw-own-{}.toml", std::process::id()));
    let fault = "\n[[fault]]\nid = \"ucx-own\"\ntitle = \"Our racks wait\"\nlast = \"1.18.0\"\nfixed = \"1.18.1\"\nsure = \"reported\"\n\
        consequence = \"hang\"\nsource = [\"https://wiki.example\"]\ndate = \"2026-11-24\"\n";
    let own = std::fs::read_to_string(root_folder().join(OWN)).unwrap();
    let ask = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        let advised = told(&["advise", "--versions", "ucx=1.18.0", "--rules", path]);
        let explained = told(&["explain", "--rules", path, LOG]);
        (advised, explained)
    };
    let ((status, advised), (_, explained)) = ask(&(own.clone() + fault));
    assert_eq!(status, Some(1), "{advised}");
    assert!(advised.starts_with("AT RISK") && advised.contains("ucx-own: up to 1.18.0; fixed in 1.18.1"), "{advised}");
    assert!(explained.starts_with(&format!("UNDECIDED  {TITLE}")), "{explained}");
    let ((status, advised), (_, explained)) = ask(&(own + &fault.replace("1.18.1", "1.17.0")));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(status, Some(2));
    let told = format!("{}:", file.display());
    for text in [advised, explained] {
        assert!(text.contains(&told) && text.contains("fixed is the first release without the fault"), "{text}");
    }
}

#[test]
fn rules_are_listed_and_checked() {
    let list = printed(&["rules", "list", "--rules", OWN]);
    let first = list.lines().next().unwrap();
    let words: Vec<&str> = first.split_whitespace().collect();
    assert_eq!(words, ["nic.rate.hot", "nic.rate", "warning", "kernel", "rules/example/hot.toml:3:1"]);
    assert!(list.contains("rules/signatures/gpu.toml:"), "{list}");
    let json = printed(&["rules", "list", "--json"]);
    assert!(json.contains("\"schema\": \"busbw.rules/1\""), "{json}");
    assert_eq!(printed(&["rules", "check", OWN, "rules/variables.toml"]), "valid: 2 files\n");
    let (status, text) = told(&["rules", "check", OWN, "Cargo.toml"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("Cargo.toml:"), "{text}");
}

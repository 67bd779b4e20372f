//! What is wrong with a description is said with its line and what to write instead.

use busbw_predict::cluster::parse;
use proptest::prelude::*;
use std::collections::BTreeMap;

const FULL: &str = include_str!("../descriptions/full.toml");

const REFUSED: &str = include_str!("../descriptions/refused.toml");

const SHORT: &str = include_str!("../descriptions/short.toml");

/// A description of two hosts on one switch.
fn wirings() -> String {
    format!("{}[fabric]\nwiring = \"single-switch\"\n", FULL.split("[fabric]").next().unwrap())
}

fn said(text: &str) -> String {
    parse(text).map_or_else(|error| error.to_string(), |_| "accepted".to_string())
}

/// Each description with one text replaced is refused with exactly this message.
#[test]
fn a_mistake_is_told_with_its_line_and_what_to_write() {
    let cases: BTreeMap<String, Vec<[String; 3]>> = toml::from_str(REFUSED).unwrap();
    for (name, base) in [("full", FULL), ("wirings", &wirings()), ("short", SHORT)] {
        assert_eq!(said(base), "accepted", "{name}");
        for [old, new, message] in &cases[name] {
            assert_eq!(base.matches(old).count(), 1, "{name}: {old}");
            assert_eq!(&said(&base.replace(old, new)), message, "{name}: {new:?}");
        }
    }
}

#[test]
fn what_is_no_description() {
    let nothing = "line 1, column 1: this describes no cluster; \
                   write nodes, gpus_per_node and gpu, or the tables [cluster], [gpu], [node] …";
    let not_toml = |place: &str, why: &str| {
        format!("{place}: this is not TOML: {why}; write lines of the form key = value, and texts in quotes")
    };
    for (text, message) in [
        ("", nothing),
        ("a = 1\n", nothing),
        ("nodes 2\n", &not_toml("line 1, column 7", "key with no value, expected `=`")),
        ("nodes = 1\nnodes = 2\n", &not_toml("line 2, column 1", "duplicate key")),
    ] {
        assert_eq!(said(text), message, "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in ".{0,200}") {
        let _ = parse(&text);
    }

    /// Whatever the texts of the short form are, links carry something, and no more than the GPU can send.
    #[test]
    fn words_never_make_links_faster(intra in "(nvlink|NVSwitch|pcie|NV|P2P|no|mesh|[0-9.]{1,6}|GB/s|TB/s|x16|, | ){0,12}") {
        let text = format!("nodes = 1\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"{intra}\"\n");
        let rate = parse(&text).unwrap().links.per_gpu().0;
        prop_assert!(rate > 0.0 && rate <= 450.0, "{rate}");
    }

    /// Any value at any key is accepted or refused within the file.
    #[test]
    fn no_value_breaks_the_reader(line in 0usize..35, value in prop_oneof![
        Just("0".to_string()), Just("-1".to_string()), Just("true".to_string()), Just("[]".to_string()),
        Just("{}".to_string()), Just("1e300".to_string()), Just("999999999999999999999".to_string()),
        Just("\"\"".to_string()), Just("\"1e308 TB/s\"".to_string()), "\"[a-z0-9 ./*]{0,12}\"".prop_map(|text| text),
    ]) {
        let mut lines: Vec<String> = FULL.lines().map(str::to_string).collect();
        if let Some((key, _)) = lines[line].clone().split_once(" = ") {
            lines[line] = format!("{key} = {value}");
        }
        if let Err(error) = parse(&lines.join("\n")) {
            prop_assert!(error.line >= 1 && error.line <= lines.len() + 1);
            prop_assert!(!error.message.is_empty() && !error.remedy.is_empty());
        }
    }
}

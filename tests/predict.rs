//! `busbw predict` from end to end: descriptions to tables that `busbw explain` reads, JSON and pages; bad input.

use crate::support::command;
use crate::support::process::Ended;
use crate::support::skip::root_folder;
use serde_json::Value;
use std::path::PathBuf;

fn busbw(arguments: &[&str], input: &str) -> Ended {
    command::busbw(&root_folder(), arguments, Some(input.as_bytes()))
}

fn text(arguments: &[&str], input: &str) -> String {
    busbw(arguments, input).printed().to_owned()
}

fn json(arguments: &[&str], input: &str) -> Value {
    busbw(arguments, input).json()
}

const H100: &str = "examples/clusters/dgx-h100.toml";
const SHORT: &str = "\
collective = \"all_gather\"
nodes = 2
gpus_per_node = 8
gpu = \"H100\"
intra = \"nvlink4 NVSwitch\"
nics_per_node = 8
nic_gbps = 400
transport = \"ib\"
";

/// A table of a prediction is read as if nccl-tests had printed it, for every collective.
#[test]
fn explain_reads_the_table_back() {
    for collective in ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv"] {
        let flags = ["predict", "-", "-b", "1M", "-e", "1G", "-f", "4", "--collective", collective];
        let table = text(&flags, SHORT);
        let predicted = json(&[&flags[..], &["--json"]].concat(), SHORT);
        let read = &json(&["explain", "--json", "-"], &table)["tables"][0];
        assert_eq!(read["collective"], collective);
        let (rows, expected) = (read["rows"].as_array().unwrap(), predicted["rows"].as_array().unwrap());
        assert_eq!(rows.len(), 6, "{collective}: {table}");
        for (row, expected) in rows.iter().zip(expected) {
            assert_eq!(row["size_bytes"], expected["size_bytes"]);
            for number in ["time_us", "algbw_gbs", "busbw_gbs"] {
                let (read, exact) = (row["out_of_place"][number].as_f64().unwrap(), expected[number].as_f64().unwrap());
                assert!((read - exact).abs() <= 0.0051, "{collective} {number}: {read} for {exact}");
            }
        }
    }
}

#[test]
fn without_flags_the_sizes_are_8_bytes_to_8_gib() {
    let rows = json(&["predict", "--json", H100], "")["rows"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 31);
    assert_eq!((&rows[0]["size_bytes"], &rows[30]["size_bytes"]), (&8.into(), &(8u64 << 30).into()));
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("busbw_gbs") <= number("limit_busbw_gbs"), "{row}");
        let algbw = number("size_bytes") / number("time_us") / 1e3;
        assert!((number("algbw_gbs") / algbw - 1.0).abs() < 1e-9, "{row}");
    }
}

#[test]
fn flags_win_over_the_description() {
    assert_eq!(json(&["predict", "--json", "-"], SHORT)["collective"], "all_gather");
    let flags = ["predict", "--json", "-", "--collective", "all_to_all", "-b", "1M", "-e", "3M", "-i", "1M"];
    let answer = json(&flags, SHORT);
    let sizes: Vec<u64> =
        answer["rows"].as_array().unwrap().iter().map(|r| r["size_bytes"].as_u64().unwrap()).collect();
    assert_eq!((&answer["collective"], sizes), (&"alltoall".into(), vec![1 << 20, 2 << 20, 3 << 20]));
}

/// A run that was is its own description, with what it leaves open as assumptions.
#[test]
fn a_log_is_as_good_as_a_description() {
    let log = "tests/data/runs/h20-2x8-ib/run.log";
    let answer = json(&["predict", "--json", log, "-b", "8G", "-e", "8G"], "");
    assert_eq!((&answer["nranks"], &answer["collective"]), (&16.into(), &"all_reduce".into()));
    assert!(!answer["assumptions"].as_array().unwrap().is_empty());
    // The second field report measured 480 GB/s.
    let busbw = answer["rows"][0]["busbw_gbs"].as_f64().unwrap();
    assert!((busbw / 480.0 - 1.0).abs() < 0.15, "{busbw}");
    let piped = std::fs::read_to_string(root_folder().join(log)).unwrap();
    assert_eq!(json(&["predict", "--json", "-", "-b", "8G", "-e", "8G"], &piped), answer);
    let shown = text(&["predict", log], "");
    assert_eq!(shown.matches("# assumed: ").count(), answer["assumptions"].as_array().unwrap().len());
}

#[test]
fn every_example_is_predicted() {
    let folder = root_folder().join("examples/clusters");
    let examples: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(examples.len() >= 9);
    for example in examples {
        let path = example.display().to_string();
        let answer = json(&["predict", "--json", &path], "");
        assert_eq!(answer["schema"], "busbw.predict/1", "{path}");
        assert!(answer["rows"].as_array().unwrap().iter().all(|row| row["busbw_gbs"].as_f64() > Some(0.0)), "{path}");
    }
}

#[test]
fn the_page_stands_alone() {
    let page = text(&["predict", "--format", "html", H100], "");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg class=\"curve\""));
    assert!(!page.contains("src=") && !page.contains("<script"));
}

#[test]
fn an_answer_goes_to_a_file_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("answer.json");
    let shown = text(&["predict", "--json", "-o", &path.display().to_string(), H100], "");
    let written = std::fs::read_to_string(&path).expect("written");
    assert!(shown.is_empty() && written.contains("busbw.predict/1"));
}

/// One line that names the place and the remedy, and exit status 2.
#[test]
fn bad_input_is_refused_in_one_line() {
    let no_unit = SHORT.replace("nodes = 2", "nodes = 0");
    let log = "tests/data/runs/sccgn/rdma_monitor.txt";
    let cases: [(&[&str], &str, &[&str]); 11] = [
        (&["-"], &no_unit, &["busbw: -:2: ", "; "]),
        (&["-"], "nodes = \n", &["busbw: -:1: ", "TOML"]),
        (&["-"], "", &["busbw: standard input: is empty"]),
        (&["-"], "Shall I compare thee to a summer's day?\n", &["nothing that busbw knows; give a description"]),
        (&["/no/such/cluster.toml"], "", &["busbw: /no/such/cluster.toml: no such file; check the path"]),
        (&[log], "", &["rdma_monitor.txt: the inputs do not say", "describe the cluster"]),
        (&["-", "-b", "2M", "-e", "1M"], SHORT, &["is above -e", "exchange them"]),
        (&["-", "-o", "/no/such/folder/table.txt"], SHORT, &["choose a place that can be written"]),
        (&["-", "--load", "W9"], SHORT, &["--load W9: no shape (W0 to W7) and no file that can be read"]),
        (&["-", "--load", "examples/clusters/dgx-h100.toml"], SHORT, &["is no amount; give numbers"]),
        (&["all_gather", "-", "--load", "W2"], SHORT, &["is for alltoallv, not for all_gather"]),
    ];
    for (flags, input, says) in cases {
        let ended = busbw(&[&["predict"], flags].concat(), input);
        says.iter().for_each(|says| ended.refused_in_a_line(says));
    }
}

#[test]
fn a_hot_rank_is_named_and_sets_the_bound() {
    let flags = ["predict", "-", "-b", "1G", "-e", "1G"];
    let even = json(&[&flags[..], &["--json", "--load", "W0"]].concat(), SHORT);
    let hot = json(&[&flags[..], &["--json", "--load", "W2"]].concat(), SHORT);
    assert_eq!((&hot["collective"], &hot["busiest"]["rank"]["rank"]), (&"alltoallv".into(), &0.into()));
    let busbw = |of: &Value| of["rows"][0]["busbw_gbs"].as_f64().unwrap();
    assert!(busbw(&even) > 3.0 * busbw(&hot), "{even:#} {hot:#}");
    let table = text(&[&flags[..], &["--load", "W2"]].concat(), SHORT);
    assert!(table.contains("# Load W2: busiest are rank 0, which receives 3.25 times an even share"), "{table}");
}

#[test]
fn a_predicted_tuning_table_says_of_every_choice_that_it_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("try.toml").display().to_string();
    let ended = busbw(&["predict", "examples/clusters/dgx-a100.toml", "--tuning-table", &file], "");
    assert!(ended.status.success() && ended.stderr.contains("nothing follows a prediction"), "{ended:?}");
    let table = std::fs::read_to_string(file).unwrap();
    let count = |words: &str| table.matches(words).count();
    assert!(count("[[choice]]") > 0, "{table}");
    assert_eq!(count("[[choice]]"), count("predicted = true"), "{table}");
}

//! What programs that were made for nccl-tests rely on in its output, held for busbw's own. Each fact names who relies on it;
//! `tools/clients/nccl-tests-readers` has these programs' own functions read the same.

use crate::support::command::BUSBW;
use crate::support::process::{Ended, LIMIT, run};
use crate::support::table::{Row, rows};
use regex::Regex;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs of `all_reduce_perf` whose columns are those of nccl-tests without flags.
const PLAIN: [&str; 4] = ["", "-c 2", "-M 1 -N 2", "--repeat 3 --nic-traffic"];
/// And of those that have more columns, or others.
const MORE: [&str; 3] = ["-S 1", "-C 1", "-I 1 -n 5"];

/// All that a script gets which takes standard error too.
struct Printed {
    flags: &'static str,
    text: String,
}

fn bench(flags: &str, json: &Path) -> Ended {
    let folder = TempDir::new().expect("a folder");
    let link = folder.path().join("all_reduce_perf");
    symlink(BUSBW, &link).expect("a link");
    let mut command = Command::new(link);
    command.args("--np 2 -e 4K -b 64 -f 8 -n 2".split(' ')).args(flags.split_whitespace()).arg("-J").arg(json);
    // Its line on standard error is among what is read.
    command.env("CUDA_VISIBLE_DEVICES", "").env_remove("BUSBW_BACKEND");
    let ended = run(command, LIMIT);
    assert!(ended.status.success(), "{ended:?}");
    ended
}

fn printed(flags: &'static str) -> Printed {
    let folder = TempDir::new().expect("a folder");
    let Ended { stdout, stderr, .. } = bench(flags, &folder.path().join("run.json"));
    Printed { flags, text: format!("{stderr}{stdout}") }
}

impl Printed {
    fn lines_with<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter(move |line| line.contains(part))
    }

    /// Lines that are not comments.
    fn plain_lines(&self) -> impl Iterator<Item = Vec<&str>> {
        let lines = self.text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| line.split_whitespace().collect())
    }

    #[track_caller]
    fn assert(&self, holds: bool, who: &str) {
        assert!(holds, "{}: {who}\n{}", self.flags, self.text);
    }
}

/// What holds with every flag.
#[test]
fn what_stands_around_the_table() {
    let average = Regex::new(r"# Avg bus bandwidth    : [0-9.]+").expect("a pattern");
    for printed in PLAIN.into_iter().chain(MORE).map(printed) {
        let one = |part| printed.lines_with(part).count() == 1;
        printed.assert(
            one("out-of-place") && one("Out of bounds values"),
            "SuperBench 700d6501, cuda_nccl_bw_performance.py: rows stand between the last line with the one and that with the other",
        );
        printed.assert(
            printed.lines_with("out-of-place").all(|line| line.contains("in-place")),
            "AWS 7217859f, process_nccl_results.sh: out-of-place.*in-place",
        );
        printed.assert(
            printed.text.contains("# Out of bounds values") && printed.text.contains("# Avg bus bandwidth"),
            "cloudai 5b5c0f72, nccl.py: both stand in the output of a run that succeeded",
        );
        printed.assert(
            !printed.text.contains("Test failure") && !printed.text.contains("Test NCCL failure"),
            "cloudai 5b5c0f72, nccl.py: these words say that it failed",
        );
        printed.assert(
            !printed.text.contains("FAILED"),
            "Azure NHC 0e0a1ac, azure_nccl_allreduce.nhc: this word, on any line, says that it failed",
        );
        let bandwidths: Vec<&str> = printed.lines_with("bandwidth").collect();
        let sixth = |line: &str| line.split_whitespace().nth(5).is_some_and(|word| word.parse::<f64>().is_ok());
        printed.assert(
            bandwidths.len() == 1 && sixth(bandwidths[0]),
            "Azure NHC 0e0a1ac; OCI b5285a68, active_healthcheck.py: the line with this word has the average as its sixth word",
        );
        printed.assert(
            average.find_iter(&printed.text).count() == 1,
            "GCP 104708037, test-gke-a3-mega.yml: grep -o with these spaces",
        );
        let is_row = |words: Vec<&str>| words.len() > 10 && words[7].parse::<f64>().is_ok();
        printed.assert(
            printed.plain_lines().all(is_row),
            "cloudai 5b5c0f72, grading_strategy.py: every line of more than ten words that is no comment is a row",
        );
    }
}

/// The halves of a row as cloudai, SuperBench and AWS find them.
fn cells(row: &Row) -> [f64; 8] {
    let (oop, ip) = (row.out_of_place, row.in_place);
    [oop.time_us, oop.algbw_gbs, oop.busbw_gbs, oop.wrong, ip.time_us, ip.algbw_gbs, ip.busbw_gbs, ip.wrong]
}

#[test]
fn what_stands_in_the_rows() {
    let names = Regex::new(
        r"\b(size\s+count\s+type\s+redop\s+root\s+time\s+algbw\s+busbw\s+#wrong\s+time\s+algbw\s+busbw\s+#wrong)\b",
    );
    let names = names.expect("a pattern");
    let number = r"\s+(\d+\.?\d*)";
    let half = format!(r"{number}{number}{number}\s+(\d+|N/A)");
    let row = format!(r"^\s*(\d+)\s+(\d+)\s+(float|double|int|half)\s+(sum|prod|max|min|none)\s+(-?\d+){half}{half}");
    let row = Regex::new(&row).expect("a pattern");
    for printed in PLAIN.into_iter().map(printed) {
        printed.assert(
            names.is_match(&printed.text),
            "cloudai 5b5c0f72, report_generation_strategy.py: can_handle_directory",
        );
        let table: Vec<Row> = rows(&printed.text);
        printed.assert(!table.is_empty(), "rows");
        let begin = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let lines: Vec<&str> = printed.text.lines().filter(begin).collect();
        printed.assert(
            lines.len() == table.len() && lines.iter().all(|line| line.split_whitespace().count() == 13),
            "cloudai 5b5c0f72, performance_report_generation_strategy.py: rows begin with a digit and have 13 cells",
        );
        for (line, read) in lines.iter().zip(&table) {
            let found = row.captures(line);
            let wanted = cells(read);
            let matches = found.is_some_and(|cell| {
                (0..8).all(|index| cell[6 + index].parse::<f64>().is_ok_and(|number| number == wanted[index]))
            });
            printed.assert(matches, "AWS 7217859f, nccl_to_csv.py: its pattern of a row");
            let last_but_one = line.split_whitespace().rev().nth(1).and_then(|word| word.parse().ok());
            printed.assert(
                line.starts_with(char::is_whitespace) && last_but_one == Some(read.in_place.busbw_gbs),
                "AWS 7217859f, 5-nccl-allreduce.sh; OCI b5285a68, ncclscout.py: busbw in place is the last cell but one",
            );
        }
    }
}

/// The members that nccl-tests' own analyzer looks for (a0b82b2, tools/analyze_perf_json.py), and what it divides by.
#[test]
fn what_the_analyzer_reads() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("run.json");
    bench("-I 1 -n 6 -K 1", &file);
    let json: Value = serde_json::from_slice(&std::fs::read(&file).expect("the JSON")).expect("JSON");
    let config = &json["config"];
    assert_eq!((&json["version"], &config["iterations"], &config["per_iter_skip"]), (&3.into(), &6.into(), &1.into()));
    assert_eq!(config["aggregated_iterations"], 1);
    assert_eq!(config["backend"], "cpu", "a member that it passes over");
    for device in config["devices"].as_array().expect("devices") {
        assert!(device["hostname"].is_string(), "it groups processes by this: {device}");
    }
    for result in json["results"].as_array().expect("results") {
        assert!(result["size"].is_u64(), "{result}");
        for placement in ["out_of_place_per_iter", "in_place_per_iter"] {
            let iterations = &result[placement];
            for member in ["avg_us", "min_us", "max_us", "p99_us", "cv_pct"] {
                assert!(iterations[member].is_f64(), "{placement} {member}: {iterations}");
            }
            assert_eq!(iterations["times_us"].as_array().map(Vec::len), Some(6), "all iterations, skipped ones too");
            let processes = iterations["per_process_max_times_us"].as_array().expect("a list per process");
            assert!(
                processes.len() == 2 && processes.iter().all(|times| times.as_array().is_some_and(|t| t.len() == 6))
            );
        }
    }
}

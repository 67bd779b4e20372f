//! How often the diagnosis is right, on inputs whose answer is known: `make accuracy`.
//!
//! Four questions: the cases of `tests/data/cases`, alone and buried in healthy logs; the published tables of
//! `tests/data/tables`, printed as nccl-tests prints them; the whole logs of `tests/data/logs`. The shares that were
//! reached are held: fewer right answers than [`GOALS`] fail the test.

mod buried;
mod cases;
mod logs;
mod printed;

#[path = "../support/published.rs"]
mod published;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What must hold. Shares of cases, 0 to 1.
struct Goals {
    first: f64,
    in_three: f64,
    buried_first: f64,
    buried_in_three: f64,
}

const GOALS: Goals = Goals { first: 1.0, in_three: 1.0, buried_first: 1.0, buried_in_three: 1.0 };

fn main() -> ExitCode {
    let all = std::env::args().any(|a| a == "--all") || std::env::var_os("BUSBW_ACCURACY").is_some();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let cases = cases::load(&folder("BUSBW_ACCURACY_CASES", data.join("cases")));
    let mut failures = Vec::new();

    let alone = cases::judge(&cases, |case| case.inputs.clone());
    alone.print("cases as they are", all);
    hold(&mut failures, "cases, right first", alone.first(), GOALS.first);
    hold(&mut failures, "cases, right in the first three", alone.in_three(), GOALS.in_three);

    for healthy in buried::healthy_logs(&data.join("logs")) {
        for everything in [false, true] {
            let buried = cases::judge(&cases, |case| buried::bury(&case.inputs, &healthy, everything));
            let what = if everything { "all inputs" } else { "log" };
            let title = format!("cases with their {what} buried in {} lines of {}", buried::LINES, healthy.name);
            buried.print(&title, all);
            hold(&mut failures, &format!("{title}, right first"), buried.first(), GOALS.buried_first);
            hold(&mut failures, &format!("{title}, in the first three"), buried.in_three(), GOALS.buried_in_three);
        }
    }

    failures.extend(printed::check(&folder("BUSBW_ACCURACY_TABLES", data.join("tables")), all));
    failures.extend(logs::check(&folder("BUSBW_ACCURACY_LOGS", data.join("logs")), all));

    failures.iter().for_each(|failure| println!("FAILED  {failure}"));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The folder that a variable names, for a set of cases, tables or logs of one's own.
fn folder(variable: &str, default: PathBuf) -> PathBuf {
    std::env::var_os(variable).map_or(default, PathBuf::from)
}

fn hold(failures: &mut Vec<String>, what: &str, reached: f64, goal: f64) {
    if reached < goal {
        failures.push(format!("{what}: {:.1}%, goal {:.1}%", 100.0 * reached, 100.0 * goal));
    }
}

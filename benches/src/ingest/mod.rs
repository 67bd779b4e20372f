//! The benchmark of reading logs: busbw beside `wc` and `rg` on one file, in turn.

mod report;

pub use report::{Answer, Report, Subject, print_table};

use crate::machine::tool_version;
use crate::measure::{Sample, Tool};
use crate::program::Outcome;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command that the others are compared with.
pub const YARDSTICK: &str = "rg";
/// Exit statuses of rg.
const FOUND_OR_NOT: &[i32] = &[0, 1];
/// Exit statuses of `busbw explain` that tell a verdict.
const VERDICTS: &[i32] = &[0, 1, 3];
/// busbw must explain 16,384 ranks in less.
pub const SCALE_GOAL_S: f64 = 10.0;

/// A command of the benchmark and what it took, round by round.
#[derive(Debug)]
pub struct Entry {
    /// Its name in the table.
    pub name: &'static str,
    /// The command line, without the paths of this machine.
    pub shown: String,
    /// What is run.
    pub tool: Tool,
    /// One sample per round.
    pub samples: Vec<Sample>,
}

/// The four commands of the side-by-side benchmark.
pub fn side_by_side(busbw: &Path, file: &Path) -> Outcome<Vec<Entry>> {
    let busbw = find_busbw(busbw)?;
    if tool_version(Path::new(YARDSTICK)).is_none() {
        return Err("rg is missing; install ripgrep (Debian and Ubuntu: apt-get install ripgrep, elsewhere: cargo install ripgrep)".into());
    }
    let busbw = busbw.as_os_str();
    Ok(vec![
        entry("wc", "wc".as_ref(), &["-l"], file, &[0]),
        entry(YARDSTICK, YARDSTICK.as_ref(), &["-c", "Channel"], file, FOUND_OR_NOT),
        entry("busbw, 1 thread", busbw, &["explain", "--threads", "1", "--format", "json"], file, VERDICTS),
        entry("busbw", busbw, &["explain", "--format", "json"], file, VERDICTS),
    ])
}

/// The one command of the scale benchmark.
pub fn scale(busbw: &Path, file: &Path) -> Outcome<Vec<Entry>> {
    let busbw = find_busbw(busbw)?;
    Ok(vec![entry("busbw", busbw.as_os_str(), &["explain"], file, VERDICTS)])
}

/// Runs every command once to warm caches, then all of them in turn, `runs` times.
pub fn alternate(entries: &mut [Entry], runs: usize, scratch: &Path, mut progress: impl FnMut(&str)) -> Outcome<()> {
    for entry in entries.iter() {
        progress(&format!("warm-up: {}", entry.shown));
        entry.tool.run(scratch)?;
    }
    for run in 1..=runs {
        progress(&format!("round {run} of {runs}"));
        for entry in entries.iter_mut() {
            let sample = entry.tool.run(scratch)?;
            entry.samples.push(sample);
        }
    }
    Ok(())
}

/// What `wc` or `rg` counts in `file`, from the first number of its output.
pub fn count(program: &str, arguments: &[&str], file: &Path) -> Outcome<Option<u64>> {
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .map_err(|error| format!("{program} cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().next().and_then(|number| number.parse().ok()))
}

/// The whole path, because a name without a slash would be looked up in PATH.
fn find_busbw(busbw: &Path) -> Outcome<PathBuf> {
    match fs::canonicalize(busbw) {
        Ok(path) if path.is_file() => Ok(path),
        _ => Err(format!(
            "{} is no program; build it with `cargo build --release` or name one with --busbw PATH",
            busbw.display()
        )
        .into()),
    }
}

fn entry(
    name: &'static str,
    program: &std::ffi::OsStr,
    arguments: &[&str],
    file: &Path,
    answers: &'static [i32],
) -> Entry {
    let shown_program = name.split(',').next().unwrap_or(name);
    let shown = [shown_program].iter().chain(arguments).copied().chain(["FILE"]).collect::<Vec<_>>().join(" ");
    let arguments = arguments.iter().map(OsString::from).chain([file.as_os_str().to_owned()]).collect();
    Entry { name, shown, tool: Tool { program: PathBuf::from(program), arguments, answers }, samples: Vec::new() }
}

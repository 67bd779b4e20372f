//! Cases in the noise of real life: their lines in the middle of a long healthy log.

use super::cases::Input;
use std::path::Path;

/// Lines of the healthy log that a case is buried in.
pub const LINES: usize = 20_000;

/// Whole logs of healthy runs: nccl-tests on two nodes, a V100 cluster without a table, training.
const HEALTHY: [&str; 3] =
    ["061-snellius-2223-2node.log", "010-jeanzay-2103-16rank-v100.log", "030-mlperf31-dell-xe8640-2185-bert.log"];

/// A healthy log, repeated. Behind a case stand beginnings only: a job that ends well after an error survived it.
pub struct Healthy {
    pub name: &'static str,
    before: Vec<String>,
    after: Vec<String>,
}

/// The logs to bury cases in.
pub fn healthy_logs(folder: &Path) -> Vec<Healthy> {
    let read = |name: &'static str| {
        let text = String::from_utf8_lossy(&std::fs::read(folder.join(name)).expect("a healthy log")).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let jobs = 1 + LINES / lines.len().max(1);
        Healthy { name, before: repeated(&lines, 0), after: repeated(&lines[..lines.len() / 2], jobs) }
    };
    HEALTHY.map(read).into()
}

/// Lines over and over, half of [`LINES`], each time as another job: process numbers and addresses differ.
fn repeated(lines: &[&str], first_job: usize) -> Vec<String> {
    let job = |job: usize| lines.iter().map(move |line| renumbered(line, job));
    (first_job..).flat_map(job).take(LINES / 2).collect()
}

/// A line as the same job would print it another time.
fn renumbered(line: &str, time: usize) -> String {
    let mut parts: Vec<String> = line.split(':').map(str::to_string).collect();
    let numbers = parts.iter().skip(1).take(2).all(|part| {
        let number = part.split(' ').next().unwrap_or_default();
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    });
    if parts.len() > 2 && numbers {
        for part in &mut parts[1..3] {
            let (number, rest) = part.split_at(part.find(' ').unwrap_or(part.len()));
            *part = format!("{}{rest}", number.parse::<u64>().map_or(0, |n| n + 1_000_000 * time as u64));
        }
    }
    parts.join(":").replace(" 0x", &format!(" 0x{time:x}")) // addresses of communicators
}

/// The inputs with their log, or all of them, in the middle of a healthy log.
pub fn bury(inputs: &[Input], healthy: &Healthy, everything: bool) -> Vec<Input> {
    let (buried, beside): (Vec<&Input>, Vec<&Input>) =
        inputs.iter().partition(|(name, _)| everything || name.ends_with(".log"));
    let Healthy { before, after, .. } = healthy;
    let case = buried.iter().map(|(_, text)| String::from_utf8_lossy(text).trim_end().to_string());
    let text: Vec<String> = before.iter().cloned().chain(case).chain(after.iter().cloned()).collect();
    let mut inputs = vec![("job.log".to_string(), (text.join("\n") + "\n").into_bytes())];
    inputs.extend(beside.into_iter().cloned());
    inputs
}

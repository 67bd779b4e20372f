//! Cases in the noise of real life: their lines in the middle of a long healthy log.

use crate::cases::Input;
use std::path::Path;

/// Lines of the healthy log that a case is buried in.
pub const LINES: usize = 20_000;

/// Whole logs of healthy runs: nccl-tests on two nodes, a V100 cluster without a table, training.
const HEALTHY: [&str; 3] =
    ["061-snellius-2223-2node.log", "010-jeanzay-2103-16rank-v100.log", "030-mlperf31-dell-xe8640-2185-bert.log"];

/// A healthy log, repeated to [`LINES`] lines.
pub struct Healthy {
    pub name: &'static str,
    lines: Vec<String>,
}

/// The logs to bury cases in.
pub fn healthy_logs(folder: &Path) -> Vec<Healthy> {
    HEALTHY.map(|name| Healthy { name, lines: repeated(&folder.join(name)) }).into()
}

/// A log over and over, each time as another job: process numbers and addresses differ.
fn repeated(path: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).expect("a healthy log")).into_owned();
    let times = 1 + LINES / text.lines().count().max(1);
    let lines = (0..times).flat_map(|time| text.lines().map(move |line| renumbered(line, time)));
    lines.take(LINES).collect()
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
    let (before, after) = healthy.lines.split_at(LINES / 2);
    let case = buried.iter().map(|(_, text)| String::from_utf8_lossy(text).trim_end().to_string());
    let text: Vec<String> = before.iter().cloned().chain(case).chain(after.iter().cloned()).collect();
    let mut inputs = vec![("job.log".to_string(), (text.join("\n") + "\n").into_bytes())];
    inputs.extend(beside.into_iter().cloned());
    inputs
}

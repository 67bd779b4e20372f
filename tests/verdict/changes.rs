//! Changes to a log that change nothing of what it says.

use regex::{Captures, Regex};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// `host:pid:tid [device] NCCL`, wherever in a line it stands.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?<host>[A-Za-z0-9][\w.-]*):(?<pid>\d+):(?<tid>\d+) (?<device>\[\d+\] )?(?:NCCL|RCCL) ").unwrap()
});

/// A change and how it is called.
pub type Change = (&'static str, fn(&str) -> String);

/// Ways in which a log is dressed by what carries it: editors, terminals, schedulers, pods.
pub const DRESSES: [Change; 8] = [
    ("with CRLF", |text| each_line(text, |_, line| format!("{line}\r"))),
    ("indented by 4 spaces", |text| each_line(text, |_, line| format!("    {line}"))),
    ("indented by a tab", |text| each_line(text, |_, line| format!("\t{line}"))),
    ("with ISO times", |text| each_line(text, |at, line| format!("2026-11-23T{}.123456789Z {line}", clock(at)))),
    ("with times in brackets", |text| each_line(text, |at, line| format!("[2026-11-23 {}] {line}", clock(at)))),
    ("with kubelet's times", |text| {
        each_line(text, |at, line| format!("2026-11-23T{}.123456789+00:00 stdout F {line}", clock(at)))
    }),
    ("with mpirun's tags", |text| each_line(text, |_, line| format!("[1,0]<stdout>:{line}"))),
    ("with srun's labels", |text| each_line(text, |_, line| format!("0: {line}"))),
];

/// The same by programs that pass logs on, which no label shows: their form is learnt from the log.
pub const CARRIERS: [Change; 5] = [
    ("with journald's prefix", |text| {
        each_line(text, |at, line| format!("Nov 23 {} gpu-7 train[4242]: {line}", clock(at)))
    }),
    ("with stern's names", |text| each_line(text, |_, line| format!("train-worker-0-x7k2p pytorch {line}"))),
    ("with cat's numbers", |text| each_line(text, |at, line| format!("{:6}\t{line}", at + 1))),
    ("with grep's places", |text| each_line(text, |at, line| format!("logs/train.log:{}:{line}", at + 1))),
    ("with a logger's levels", |text| {
        each_line(text, |at, line| {
            let level = if at % 7 == 3 { "ERROR" } else { "INFO" };
            format!("2026-11-23 {},123 - job - {level} - {line}", clock(at))
        })
    }),
];

fn each_line(text: &str, dress: impl Fn(usize, &str) -> String) -> String {
    text.lines().enumerate().map(|(at, line)| dress(at, line) + "\n").collect()
}

/// The time of a line: one second for every ten.
fn clock(line: usize) -> String {
    let second = line / 10;
    format!("{:02}:{:02}:{:02}", 10 + second / 3600 % 12, second / 60 % 60, second % 60)
}

/// What people put in place of host, process and thread before they post a log.
pub const REDACTIONS: [Change; 4] = [
    ("prefixes redacted as node", |text| redacted(text, |found| format!("node {}NCCL ", device(found)))),
    ("prefixes redacted as letters", |text| redacted(text, |found| format!("xxx:yyy:zzz {}NCCL ", device(found)))),
    ("hosts redacted", |text| {
        redacted(text, |found| format!("<host>:{}:{} {}NCCL ", &found["pid"], &found["tid"], device(found)))
    }),
    ("prefixes cut away", |text| redacted(text, |_| "NCCL ".into())),
];

fn redacted(text: &str, prefix: impl Fn(&Captures) -> String) -> String {
    PREFIX.replace_all(text, prefix).into_owned()
}

fn device<'a>(found: &'a Captures) -> &'a str {
    found.name("device").map_or("", |device| device.as_str())
}

/// A log as one text per process, and one for the lines without a prefix, which come first. A line `NCCL version …` has
/// no prefix; the process whose line follows printed it.
pub fn by_process(text: &str) -> Vec<String> {
    let mut without = String::new();
    let mut with: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_version = line.trim_start().starts_with("NCCL version ");
        let told = if is_version { lines.peek().copied().unwrap_or(line) } else { line };
        let stream = match PREFIX.captures(told).filter(|found| stands_first(told, found)) {
            Some(found) => with.entry((found["host"].into(), found["pid"].into())).or_default(),
            None => &mut without,
        };
        stream.push_str(line);
        stream.push('\n');
    }
    std::iter::once(without).chain(with.into_values()).filter(|stream| !stream.trim().is_empty()).collect()
}

/// Whether a prefix begins its line, after tags and times at most: a row of a table may stand before it on the same line.
fn stands_first(line: &str, prefix: &Captures) -> bool {
    let before = prefix.get(0).map_or("", |found| &line[..found.start()]).trim_end();
    before.is_empty() || before.ends_with(['>', ':', '|', ']', 'Z'])
}

/// Whether two lines of the log are of different processes.
pub fn has_processes(text: &str) -> bool {
    by_process(text).len() > 2
}

/// A text in which names are replaced by others, where they stand as whole words.
pub fn renamed(text: &str, names: &[(String, String)]) -> String {
    let new: BTreeMap<&str, &str> = names.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
    let old: Vec<String> = new.keys().rev().map(|name| regex::escape(name)).collect();
    let word =
        Regex::new(&format!(r"(?<before>^|[^\w.-])(?<name>{})(?<after>$|[^\w.-]|\.[^\w]|\.$)", old.join("|"))).unwrap();
    let replace = |found: &Captures| format!("{}{}{}", &found["before"], new[&found["name"]], &found["after"]);
    // Twice: names that one space parts share it, and a match takes it.
    let twice = |line: &str| word.replace_all(&word.replace_all(line, replace), replace).into_owned();
    text.lines().map(|line| twice(line) + "\n").collect()
}

/// A text with lines added in the middle.
pub fn with_middle(text: &str, lines: &str) -> String {
    let half = text.lines().count() / 2;
    let (before, after): (Vec<_>, Vec<_>) = text.lines().enumerate().partition(|(at, _)| *at < half);
    let joined = |lines: Vec<(usize, &str)>| lines.iter().map(|(_, line)| format!("{line}\n")).collect::<String>();
    joined(before) + lines.trim_end() + "\n" + &joined(after)
}

#[test]
fn prefixes_are_found_wherever_they_stand() {
    let line = "[1,0]<stdout>:n-0.a:123:456 [0] NCCL INFO Init COMPLETE\n";
    assert_eq!(REDACTIONS[0].1(line), "[1,0]<stdout>:node [0] NCCL INFO Init COMPLETE\n");
    assert_eq!(by_process(&(line.to_string() + "table\nn-0.a:124:1 NCCL INFO x\n")).len(), 3);
    assert_eq!(renamed("n-0 n-0 on n-0.a, n-0:1", &[("n-0".into(), "x".into())]), "x x on n-0.a, x:1\n");
    assert_eq!(with_middle("a\nb\n", "c"), "a\nc\nb\n");
}

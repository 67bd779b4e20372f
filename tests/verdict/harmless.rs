//! A harmless line, at the end or in the middle of a healthy log, changes nothing.

use super::answer::Answer;
use super::changes;
use super::held::Held;
use super::inputs::{self, Input};

/// Healthy logs: two ranks, two nodes with a table, training, and a cluster under Slurm.
const BASES: [&str; 4] = [
    "reproductions/healthy-base.log",
    "logs/061-snellius-2223-2node.log",
    "logs/031-mlperf31-dell-xe8640-2185-resnet.log",
    "logs/044-nebius-soperator-2193-16rank.log",
];

/// Harmless lines: those that were found to raise alarms once, and our own.
fn lines() -> Vec<String> {
    let files = ["reproductions/harmless-lines.txt", "ordinary/harmless-lines.txt"];
    let text: String = files.map(|name| inputs::file(name).text()).join("\n");
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_string).collect()
}

#[test]
fn a_harmless_line_changes_nothing() {
    let mut held = Held::new("a harmless line changes nothing");
    for base in BASES.map(inputs::file) {
        let answer = Answer::to(&base);
        for line in lines() {
            let end = Input::new(&base.name, format!("{}{line}\n", base.text()));
            held.compare((&base, &answer), &format!("at the end `{line}`"), &Answer::to(&end), Answer::agrees_with);
            let middle = base.changed(|text| changes::with_middle(text, &line));
            held.compare(
                (&base, &answer),
                &format!("in the middle `{line}`"),
                &Answer::to(&middle),
                Answer::agrees_with,
            );
        }
    }
    held.end();
}

#[test]
fn all_harmless_lines_together_change_nothing() {
    let mut held = Held::new("all harmless lines together change nothing");
    let harmless = lines().join("\n");
    for input in inputs::all() {
        let answer = Answer::to(&input);
        let after = Answer::to(&input.changed(|text| format!("{text}\n{harmless}\n")));
        held.compare((&input, &answer), "with all harmless lines at the end", &after, Answer::agrees_with);
    }
    held.end();
}

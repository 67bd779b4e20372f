//! A run that is pasted in parts has the same first cause, or a question; never praise for what the whole shows to be slow.

use super::answer::Answer;
use super::held::Held;
use super::inputs::{self, File, Input};
use super::nccl_tests::{self, Part};
use busbw_model::Verdict;

/// A run of one table, cut into what people paste.
struct Pasted {
    table: String,
    devices: String,
    command: String,
    log: String,
}

impl Pasted {
    fn of(text: &str) -> Self {
        let only = |part| nccl_tests::only(text, &[part]);
        Pasted {
            table: only(Part::Table),
            devices: only(Part::Devices),
            command: only(Part::Command),
            log: only(Part::Other),
        }
    }

    /// The parts that someone pastes, each time with the table.
    fn pastes(&self) -> [(&'static str, Vec<&str>); 4] {
        [
            ("the table alone", vec![&self.table]),
            ("the table and the command", vec![&self.command, &self.table]),
            ("the table and the devices", vec![&self.devices, &self.table]),
            ("the table, then the log", vec![&self.table, &self.log]),
        ]
    }
}

/// Inputs of one table of several rows.
fn runs() -> Vec<Input> {
    let all = [inputs::runs(), inputs::logs(), inputs::reproductions()].into_iter().flatten();
    let one_table = |text: &str| nccl_tests::tables(text) == 1 && nccl_tests::rows(text) >= 6;
    all.filter(|input| one_table(&input.text())).chain(inputs::tables("degraded")).collect()
}

/// Whether a part's answer can stand beside the answer to the whole.
fn fits(whole: &Answer, part: &Answer) -> bool {
    match part.verdict() {
        Verdict::Inconclusive => true,
        Verdict::Healthy | Verdict::NoErrors => !whole.is_slow(),
        Verdict::Degraded | Verdict::Failed => part.first().is_some_and(|code| whole.loud().contains(&code)),
    }
}

#[test]
fn a_part_of_a_run_has_the_same_cause_or_a_question() {
    let mut held = Held::new("a part of a run has the same cause or a question");
    for input in runs() {
        let whole = Answer::to(&input);
        for (what, parts) in Pasted::of(&input.text()).pastes() {
            let part = Answer::to(&Input::new(&input.name, parts.concat()));
            held.compare((&input, &whole), what, &part, fits);
        }
    }
    held.end();
}

#[test]
fn parts_in_files_of_their_own_are_the_run() {
    let mut held = Held::new("parts in files of their own are the run");
    for input in runs() {
        let whole = Answer::to(&input);
        let Pasted { table, devices, command, log } = Pasted::of(&input.text());
        let parts = [("run.txt", command + &devices + &table), ("nccl.log", log)];
        let filled = parts.into_iter().filter(|(_, text)| !text.trim().is_empty());
        let files = filled.map(|(name, text)| File { name: name.into(), text }).collect();
        let apart = Answer::to(&Input { name: input.name.clone(), files });
        held.compare((&input, &whole), "its log in a file of its own", &apart, Answer::agrees_with);
    }
    held.end();
}

//! Line ends, indents, times, tags and what programs that pass logs on put in front of every line change nothing.

use super::answer::Answer;
use super::changes::{CARRIERS, DRESSES};
use super::held::Held;
use super::inputs::{self, Input};

#[test]
fn a_dressed_log_has_the_same_answer() {
    let mut held = Held::new("a dressed log has the same answer");
    for input in inputs::all() {
        let answer = Answer::to(&input);
        let carriers = CARRIERS.iter().filter(|_| is_learnt_from(&input));
        for (change, dress) in DRESSES.iter().chain(carriers) {
            held.compare((&input, &answer), change, &Answer::to(&input.changed(dress)), Answer::agrees_with);
        }
    }
    held.end();
}

/// Whether a prefix can be learnt from an input: its files are no short pastes, and have lines of NCCL's or a table's head.
fn is_learnt_from(input: &Input) -> bool {
    const LEAST: usize = 12;
    let shows = |text: &str| ["] NCCL INFO ", "# nThread "].iter().any(|start| text.contains(start));
    input.files.iter().all(|file| file.text.lines().count() >= LEAST && shows(&file.text))
}

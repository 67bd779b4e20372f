//! One file, one file per rank, or files in another order: the same answer.

use super::answer::Answer;
use super::changes;
use super::held::Held;
use super::inputs::{self, File, Input};

/// The input with each log cut into one file per process.
fn per_process(input: &Input) -> Input {
    let texts = input.files.iter().flat_map(|file| changes::by_process(&file.text));
    let files = texts.enumerate().map(|(at, text)| File { name: format!("rank-{at}.log"), text });
    Input { name: input.name.clone(), files: files.collect() }
}

fn reversed(mut input: Input) -> Input {
    input.files.reverse();
    input
}

#[test]
fn a_log_per_rank_is_the_log() {
    let mut held = Held::new("a log per rank is the log");
    let all = [inputs::logs(), inputs::cases(), inputs::runs(), inputs::reproductions()].into_iter().flatten();
    for input in all.filter(|input| changes::has_processes(&input.text())) {
        let whole = Answer::to(&input);
        let apart = per_process(&input);
        held.compare((&input, &whole), "a file per rank", &Answer::to(&apart), Answer::agrees_with);
        let reversed = Answer::to(&reversed(apart));
        held.compare((&input, &whole), "a file per rank, the last first", &reversed, Answer::agrees_with);
    }
    held.end();
}

#[test]
fn files_have_no_order() {
    let mut held = Held::new("files have no order");
    for input in inputs::cases().into_iter().filter(|input| input.files.len() > 1) {
        let whole = Answer::to(&input);
        held.compare((&input, &whole), "the last first", &Answer::to(&reversed(input.clone())), Answer::agrees_with);
    }
    held.end();
}

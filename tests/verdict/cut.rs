//! The first part of a log that is sound, as of a job that goes on or where somebody cut it, shows no failure and nothing that is slow.

use super::answer::Answer;
use super::held::Held;
use super::inputs::{self, Input};

/// Cuts of each log.
const CUTS: usize = 12;

/// The first lines of an input of one file.
fn first_lines(input: &Input, lines: usize) -> Input {
    let part: String = input.text().lines().take(lines).map(|line| format!("{line}\n")).collect();
    Input::new(&input.name, part)
}

/// Line numbers that look random and are the same in each run.
fn cuts(lines: usize) -> Vec<usize> {
    let mut state = lines as u64;
    let next = |_| {
        // Knuth's MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (state >> 33) as usize % lines
    };
    (0..CUTS).map(next).collect()
}

#[test]
fn the_first_part_of_a_sound_log_is_no_alarm() {
    let mut held = Held::new("the first part of a sound log is neither failed nor degraded");
    let all = [inputs::logs(), inputs::inits(), inputs::runs(), inputs::ordinary()].into_iter().flatten();
    for input in all.filter(|input| input.files.len() == 1 && input.text().lines().count() > 1) {
        let whole = Answer::to(&input);
        if !whole.loud().is_empty() {
            continue;
        }
        for lines in cuts(input.text().lines().count()) {
            let part = Answer::to(&first_lines(&input, lines));
            held.compare((&input, &whole), &format!("its first {lines} lines"), &part, |_, part| !part.is_alarm());
        }
    }
    held.end();
}

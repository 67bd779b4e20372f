//! Output of training that went well: it raises nothing itself, and around a log it changes nothing.

use super::answer::Answer;
use super::held::Held;
use super::inputs;

#[test]
fn ordinary_training_raises_nothing() {
    Held::of_each("ordinary training raises nothing", inputs::ordinary(), |answer| {
        !answer.is_alarm() && answer.loud().is_empty()
    });
}

/// The first half of a text: training that goes on, and has not ended well yet.
fn first_half(text: &str) -> String {
    let lines = text.lines().count() / 2;
    text.lines().take(lines).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_log_buried_in_ordinary_training_has_the_same_answer() {
    let mut held = Held::new("a log buried in ordinary training has the same answer");
    let ordinary = inputs::ordinary();
    for (at, input) in inputs::all().iter().enumerate() {
        let answer = Answer::to(input);
        let (before, after) = (&ordinary[at % ordinary.len()], &ordinary[(at + 1) % ordinary.len()]);
        let buried = input.changed(|text| [&before.text(), text, &first_half(&after.text())].join("\n"));
        let change = format!("between {} and half of {}", before.name, after.name);
        held.compare((input, &answer), &change, &Answer::to(&buried), Answer::agrees_with);
    }
    held.end();
}

//! Lines that show that a program goes on: rows of tables, and figures among words.

use busbw_model::{Place, Run, Speaker, Statement};
use std::collections::HashMap;

/// A line of a program that goes on.
#[derive(Debug)]
pub struct Progress {
    pub place: Place,
    /// It holds nothing but figures, as the rows of any table do.
    pub is_row: bool,
}

/// Lines of a program that goes on: rows of tables, and others with enough figures among their words: `step 120 loss 2.31`.
pub fn progress(run: &Run) -> Vec<Progress> {
    let rows = run.tables.iter().flat_map(|table| &table.rows);
    let rows = rows.map(|row| Progress { place: row.source.place, is_row: true });
    let of_program = run.statements.iter().filter(|one| one.speaker == Speaker::Program);
    rows.chain(of_program.filter_map(figures)).collect()
}

/// Lines of a loop: those that differ from one before in two numbers at least and in nothing else, as `step 120 loss 2.31` does. What each rank says once
/// of itself differs in its number.
pub fn loops(run: &Run) -> Vec<Place> {
    let rows = run.tables.iter().flat_map(|table| &table.rows).map(|row| row.source.place);
    let of_program = run.statements.iter().filter(|one| one.speaker == Speaker::Program);
    let mut said: Vec<(Place, &str)> = of_program
        .filter(|one| figures(one).is_some() && !one.text().contains("%|"))
        .map(|one| (one.source.place, one.text()))
        .collect();
    said.sort_unstable();
    said.dedup();
    let mut last: HashMap<(u32, String), Vec<&str>> = HashMap::new();
    let again = said.into_iter().filter_map(|(place, text)| {
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let words = text.chars().filter(|c| !is_part(*c) && !c.is_whitespace()).collect();
        let numbers: Vec<&str> = text.split(|c| !is_part(c)).filter(|part| !part.is_empty()).collect();
        let before = last.insert((place.input, words), numbers.clone())?;
        (before.iter().zip(&numbers).filter(|(one, other)| one != other).count() >= 2).then_some(place)
    });
    let mut places: Vec<Place> = rows.chain(again).collect();
    places.sort_unstable();
    places
}

/// A line with enough figures among its words.
fn figures(one: &Statement) -> Option<Progress> {
    let words = || one.text().split([' ', '\t', '=', ':', ',', '|']).filter(|word| !word.is_empty());
    let number = |word: &&str| word.trim_matches(['#', '(', ')', '[', ']']).parse::<f64>().is_ok_and(f64::is_finite);
    let figures = words().filter(number).count();
    let all = words().count();
    // A process that ends prints its bar of tqdm once more; a full one shows that it got there.
    let is_full_bar = one.text().contains("100%|");
    // Megatron-LM: ` iteration      190/    1000 | elapsed time per iteration (ms): 1839.6 | lm loss: 7.28 |`.
    let cells =
        one.text().split('|').filter(|cell| cell.rsplit(": ").next().is_some_and(|value| number(&value.trim())));
    let enough = figures >= 2 && figures * 3 >= all || is_full_bar || cells.count() >= 3;
    enough.then_some(Progress { place: one.source.place, is_row: figures == all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_repeats_its_words_with_other_numbers() {
        let loops_of = |text: &str| loops(&busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text")).len();
        for (text, expected) in [
            ("step 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss 2.4\nstep 4 loss 2.2\n", 2),
            ("  step    9 loss 2.5\n  step   10 loss 2.4\n", 1),
            ("rank 0: 7 shards, 32 layers\nrank 1: 7 shards, 32 layers\n", 0),
            ("shards: 100%|####| 5/5 [00:10<00:00, 2.0s/it]\nshards: 100%|####| 6/6 [00:11<00:00, 2.1s/it]\n", 0),
            ("resumed from step 100, epoch 3\n", 0),
        ] {
            assert_eq!(loops_of(text), expected, "{text}");
        }
    }
}

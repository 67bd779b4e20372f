//! Lines that show that a program goes on: rows of tables, and figures among words.

use busbw_model::{Place, Run, Speaker};

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
    let said = of_program.filter_map(|one| {
        let words = || one.text().split([' ', '\t', '=', ':', ',', '|']).filter(|word| !word.is_empty());
        let number =
            |word: &&str| word.trim_matches(['#', '(', ')', '[', ']']).parse::<f64>().is_ok_and(f64::is_finite);
        let figures = words().filter(number).count();
        let all = words().count();
        // A process that ends prints its bar of tqdm once more; a full one shows that it got there.
        let is_full_bar = one.text().contains("100%|");
        // Megatron-LM: ` iteration      190/    1000 | elapsed time per iteration (ms): 1839.6 | lm loss: 7.28 |`.
        let cells =
            one.text().split('|').filter(|cell| cell.rsplit(": ").next().is_some_and(|value| number(&value.trim())));
        let enough = figures >= 2 && figures * 3 >= all || is_full_bar || cells.count() >= 3;
        enough.then_some(Progress { place: one.source.place, is_row: figures == all })
    });
    rows.chain(said).collect()
}

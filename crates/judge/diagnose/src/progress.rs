//! Lines that show that a program goes on: rows of tables, and figures among words.

use busbw_model::{Place, Run, Speaker};
use std::collections::HashSet;

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
    let ends: HashSet<Place> = run.ends.iter().map(|end| end.source.place).collect();
    let of_program = run.statements.iter().filter(|one| one.speaker == Speaker::Program);
    let of_program = of_program.filter(|one| !ends.contains(&one.source.place));
    let went_on: HashSet<Place> = run.steps.iter().copied().collect();
    let said = of_program.filter_map(|one| {
        let (figures, words) = figures(one.message());
        // Megatron-LM: ` iteration      190/    1000 | elapsed time per iteration (ms): 1839.6 | lm loss: 7.28 |`.
        let cells =
            one.text().split('|').filter(|cell| cell.rsplit(": ").next().is_some_and(|value| is_number(value.trim())));
        let enough = match one.text().contains("%|") {
            // A full one shows that it got there.
            true => one.text().contains("100%|") || went_on.contains(&one.source.place),
            false => figures >= 2 && figures * 3 >= words || one.text().contains('|') && cells.count() >= 3,
        };
        enough.then_some(Progress { place: one.source.place, is_row: figures == words })
    });
    rows.chain(said).collect()
}

fn is_number(word: &str) -> bool {
    word.trim_matches(['#', '(', ')', '[', ']']).parse::<f64>().is_ok_and(f64::is_finite)
}

/// How many figures a line has, and words with them: without what stands in front of its message, and what only tells which process speaks. A dump of memory has none.
fn figures(text: &str) -> (usize, usize) {
    let is_dump = |word: &str| word.len() == 8 && word.bytes().all(|b| b.is_ascii_hexdigit());
    if text.split_whitespace().all(is_dump) {
        return (0, 1);
    }
    let words = text.split([' ', '\t']).filter(|word| !is_of_head(word));
    let parts = words.flat_map(|word| word.split(['=', ':', ',', '|']));
    let parts = parts.filter(|part| part.contains(|c: char| c.is_ascii_alphanumeric()));
    let (mut figures, mut all, mut names) = (0, 0, false);
    for part in parts {
        let is_name = is_name_of_process(part);
        if !names && !is_name {
            all += 1;
            figures += usize::from(is_number(part));
        }
        names = is_name;
    }
    (figures, all)
}

/// Whether the number behind a word names a process or a device, which says nothing of how far it is.
fn is_name_of_process(word: &str) -> bool {
    const NAMES: [&str; 5] = ["rank", "world_size", "pid", "device", "gpu"];
    let word = word.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let behind = word.rfind('_').map_or("", |at| &word[at..]);
    NAMES.iter().any(|name| word.eq_ignore_ascii_case(name)) || behind.eq_ignore_ascii_case("_rank")
}

/// Whether a word stands in front of a message: a date, a time, `18:25:50,714`, a process, `[19213]`, a place in the program, `[launch_utils.py:327]`.
fn is_of_head(word: &str) -> bool {
    if !word.contains(['[', ':', '-']) {
        return false;
    }
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'.' | b']'));
    let is_time = word.matches(':').count() == 2 && word.trim_start_matches('[').split(':').all(digits);
    let is_process = word.starts_with('[') && word.ends_with(']') && is_number(word);
    let is_date = word.matches('-').count() == 2 && word.trim_start_matches('[').split('-').all(digits);
    is_time || is_date || is_process || [".py:", ".cc:", ".cpp:"].iter().any(|file| word.contains(file))
}

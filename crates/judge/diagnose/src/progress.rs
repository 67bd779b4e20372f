//! Lines that show that a program goes on: rows of tables, and figures among words.

use busbw_model::{Place, Run, Speaker};
use std::collections::{HashMap, HashSet};

/// A line of a program that goes on.
#[derive(Debug)]
pub struct Progress {
    pub place: Place,
    /// It holds nothing but figures, as the rows of any table do.
    pub is_row: bool,
    /// The loop that it is of, and the step of it that it counts.
    pub step: Option<(String, u64)>,
    /// A server of models tells how fast it answers.
    pub serves: bool,
}

/// Whether a loop that ran before a place of its input counts on behind it, by several steps: other ranks print a step or two before they notice what happened
/// to one, and what another program prints behind it counts anew.
pub fn counts_on(progress: &[Progress], place: Place) -> bool {
    const STEPS: usize = 3;
    let (mut reached, mut behind): (HashMap<&str, u64>, HashMap<&str, HashSet<u64>>) = Default::default();
    for line in progress.iter().filter(|line| line.place.input == place.input) {
        let Some((of, step)) = &line.step else { continue };
        match line.place.is_after(place) {
            true => drop(behind.entry(of).or_default().insert(*step)),
            false => drop(reached.entry(of).and_modify(|last| *last = (*last).max(*step)).or_insert(*step)),
        }
    }
    let goes_on = |(of, steps): (&&str, &HashSet<u64>)| {
        reached.get(of).is_some_and(|last| steps.iter().filter(|step| *step > last).count() >= STEPS)
    };
    behind.iter().any(goes_on)
}

/// Whether nothing shows progress before a place of its input, and a loop counts several steps behind it: what ended a process as it started lets no loop
/// of its run begin.
pub fn begins_behind(progress: &[Progress], place: Place) -> bool {
    const STEPS: usize = 5;
    let mut steps: HashMap<&str, HashSet<u64>> = HashMap::new();
    for line in progress.iter().filter(|line| line.place.input == place.input) {
        if place.is_after(line.place) {
            return false;
        }
        let Some((of, step)) = &line.step else { continue };
        steps.entry(of).or_default().insert(*step);
    }
    steps.values().any(|steps| steps.len() >= STEPS)
}

/// The words of a line without its figures: those of the lines of one loop are alike.
pub fn loop_of(line: &str) -> String {
    /// What bars of progress are drawn with, and what stands in figures and between columns.
    const CHANGES: &str = "0123456789.,-+ █▏▎▍▌▋▊▉";
    line.chars().filter(|c| !CHANGES.contains(*c)).collect()
}

/// The step of a training that a line counts: what watches a machine prints numbers again and again as well, and goes on where the training hangs.
pub fn step(line: &str) -> Option<u64> {
    const COUNTED: [&str; 7] = ["step", "iter", "iteration", "epoch", "batch", "update", "it"];
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let is_counted = |word: &str| COUNTED.iter().any(|name| word.trim_end_matches('s').eq_ignore_ascii_case(name));
    let number = |word: &str| word.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    words.windows(2).filter(|two| is_counted(two[0])).find_map(|two| number(two[1]))
}

/// Whether a server tells that it makes tokens: vLLM's `Avg generation throughput: 52.0 tokens/s` (`v1/metrics/loggers.py`), SGLang's `gen throughput
/// (token/s): 122.10` (`managers/scheduler_metrics_mixin.py`).
fn serves(line: &str) -> bool {
    const KEYS: [&str; 2] = ["generation throughput: ", "gen throughput (token/s): "];
    let rate = |key: &str| line.split_once(key)?.1.split([' ', ',']).next()?.parse::<f64>().ok();
    KEYS.iter().any(|key| rate(key).is_some_and(|rate| rate > 0.0))
}

/// The step of a bar of progress: `10%|█         | 310/3180 [1:34:51<13:10:49, 16.53s/it]`.
fn step_of_bar(line: &str) -> Option<u64> {
    let (_, bar) = line.split_once("%|")?;
    bar.split_once("| ")?.1.split_once('/')?.0.trim().parse().ok()
}

/// Lines of a program that goes on: rows of tables, and others with enough figures among their words: `step 120 loss 2.31`.
pub fn progress(run: &Run) -> Vec<Progress> {
    let rows = run.tables.iter().flat_map(|table| &table.rows);
    let rows = rows.map(|row| Progress { place: row.source.place, is_row: true, step: None, serves: false });
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
        let (text, is_row) = (one.text(), figures == words);
        let of_row = || text.split_whitespace().next()?.parse().ok().filter(|_| is_row);
        let step = || step(text).or_else(|| step_of_bar(text)).or_else(of_row);
        let serves = serves(text);
        let step = || step().map(|step| (loop_of(text), step));
        (enough || serves).then(|| Progress { place: one.source.place, is_row, step: step(), serves })
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

//! Lines that show that a program goes on: rows of tables, and figures among words.

use busbw_model::{Place, Run, Speaker, Statement};
use std::collections::{HashMap, HashSet};

/// How far a loop is: the numbers that its line has behind the word that counts, in thousandths, `step 120`, `'epoch': 0.25`, `epoch 1, iteration 20/999`.
pub type Step = [u64; 3];

/// A line of a program that goes on.
#[derive(Debug)]
pub struct Progress {
    pub place: Place,
    /// It holds nothing but figures, as the rows of any table do.
    pub is_row: bool,
    /// A server of models tells how fast it answers.
    pub serves: bool,
}

/// A line in which a loop counts its steps.
#[derive(Debug)]
pub struct Counted {
    place: Place,
    /// The words of the loop's lines.
    of: String,
    step: Step,
    /// It tells what a training measured: what waits, or tries again, counts as well.
    is_measured: bool,
}

/// Whether a loop that ran before a place of its input counts on behind it, by so many steps. What another program prints behind it counts anew.
pub fn counts_on(steps: &[Counted], place: Place, least: usize) -> bool {
    let (mut reached, mut behind): (HashMap<&str, Step>, HashMap<&str, HashSet<Step>>) = Default::default();
    for Counted { of, step, .. } in steps.iter().filter(|one| place.is_after(one.place)) {
        reached.entry(of).and_modify(|last| *last = (*last).max(*step)).or_insert(*step);
    }
    for Counted { of, step, .. } in steps.iter().filter(|one| one.place.is_after(place)) {
        behind.entry(of).or_default().insert(*step);
    }
    let goes_on = |(of, steps): (&&str, &HashSet<Step>)| {
        reached.get(of).is_some_and(|last| steps.iter().filter(|step| *step > last).count() >= least)
    };
    behind.iter().any(goes_on)
}

/// Where loops begin to count in each input of which one measures, for several steps: what ended a process as it started lets no loop of its run begin.
pub fn begun(steps: &[Counted]) -> HashMap<u32, Place> {
    const STEPS: usize = 5;
    let mut measured: HashMap<(u32, &str), HashSet<Step>> = HashMap::new();
    for Counted { place, of, step, .. } in steps.iter().filter(|one| one.is_measured) {
        measured.entry((place.input, of)).or_default().insert(*step);
    }
    let goes_on = |input: u32| measured.iter().any(|((of, _), steps)| *of == input && steps.len() >= STEPS);
    let mut first: HashMap<u32, Place> = HashMap::new();
    for Counted { place, .. } in steps {
        first.entry(place.input).and_modify(|first| *first = (*first).min(*place)).or_insert(*place);
    }
    first.retain(|input, _| goes_on(*input));
    first
}

/// The words of a line without its figures: those of the lines of one loop are alike.
pub fn loop_of(line: &str) -> String {
    /// What bars of progress are drawn with, and what stands in figures and between columns.
    const CHANGES: &str = "0123456789.,-+ █▏▎▍▌▋▊▉";
    line.chars().filter(|c| !CHANGES.contains(*c)).collect()
}

/// The step of a training that a line counts: what watches a machine prints numbers again and again as well, and goes on where the training hangs. Of a step
/// the first number counts, micro batches of one are none; an epoch has steps.
pub fn step(line: &str) -> Option<Step> {
    const COUNTED: [&str; 7] = ["step", "iter", "iteration", "batch", "update", "it", "column"];
    const PARTED: [&str; 2] = ["epoch", "episode"];
    // A name may have more words: `step_i: 200`.
    const NAME: usize = 2;
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let is_one = |word: &str, names: &[&str]| {
        let word = word.trim_start_matches(|c: char| c.is_ascii_digit());
        names.iter().any(|name| word.trim_end_matches('s').eq_ignore_ascii_case(name))
    };
    let counts = |word: &str| is_one(word, &COUNTED) || is_one(word, &PARTED);
    let number = |at: usize| (at + 1..words.len()).take(NAME).find(|at| leading_number(words[*at]).is_some());
    let of_word = |(at, word): (usize, &&str)| Some((is_one(word, &PARTED), number(at)?));
    let (is_parted, first) = words.iter().enumerate().filter(|(_, word)| counts(word)).find_map(of_word)?;
    step_of(words[first..].iter().copied().take(if is_parted { words.len() } else { 1 }))
}

/// The first numbers of words.
fn step_of<'a>(words: impl Iterator<Item = &'a str>) -> Option<Step> {
    let mut step = Step::default();
    let mut numbers = words.filter_map(leading_number).peekable();
    numbers.peek()?;
    step.iter_mut().zip(numbers).for_each(|(part, number)| *part = (number * 1000.0) as u64);
    Some(step)
}

/// The number that a word begins with: `412.5ms`.
fn leading_number(word: &str) -> Option<f64> {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    word[..end].trim_end_matches('.').parse().ok()
}

/// Whether a server tells that it makes tokens: vLLM's `Avg generation throughput: 52.0 tokens/s` (`v1/metrics/loggers.py`), SGLang's `gen throughput
/// (token/s): 122.10` (`managers/scheduler_metrics_mixin.py`).
fn serves(line: &str) -> bool {
    const KEYS: [&str; 2] = ["generation throughput: ", "gen throughput (token/s): "];
    let rate = |key: &str| line.split_once(key)?.1.split([' ', ',']).next()?.parse::<f64>().ok();
    KEYS.iter().any(|key| rate(key).is_some_and(|rate| rate > 0.0))
}

/// The step of a bar of progress: `10%|█         | 310/3180 [1:34:51<13:10:49, 16.53s/it]`, `Epoch 3:  45%|████▌     | 450/1000 [10:00<12:13,  1.33s/it]`. What
/// has another label may load files.
fn step_of_bar(line: &str) -> Option<Step> {
    let (head, bar) = line.split_once("%|")?;
    let done = bar.split_once("| ")?.1.split_once('/')?.0.trim();
    let is_of_training = step(head).is_some() || leading_number(head.trim()).is_some();
    step_of(head.split(|c: char| !c.is_ascii_digit() && c != '.').chain([done])).filter(|_| is_of_training)
}

/// What programs say, but for lines that tell of an end.
fn said(run: &Run) -> impl Iterator<Item = &Statement> {
    let ends: HashSet<Place> = run.ends.iter().map(|end| end.source.place).collect();
    let of_program = run.statements.iter().filter(|one| one.speaker == Speaker::Program);
    of_program.filter(move |one| !ends.contains(&one.source.place))
}

fn is_bar(text: &str) -> bool {
    text.contains("%|")
}

/// Lines of a program that goes on: rows of tables, and others with enough figures among their words: `step 120 loss 2.31`.
pub fn progress(run: &Run) -> Vec<Progress> {
    let rows = run.tables.iter().flat_map(|table| &table.rows).map(|row| row.source.place);
    let exchanges = run.perftests.iter().filter(|test| test.is_of_job()).map(|test| test.source.place);
    let rows = rows.chain(exchanges).map(|place| Progress { place, is_row: true, serves: false });
    let went_on: HashSet<Place> = run.steps.iter().copied().collect();
    let said = said(run).filter_map(|one| {
        let text = one.text();
        let (figures, words) = figures(one.message());
        let enough = match is_bar(text) {
            // A full one shows that it got there.
            true => text.contains("100%|") || went_on.contains(&one.source.place),
            false => figures >= 2 && figures * 3 >= words || has_cells(text),
        };
        let serves = serves(text);
        (enough || serves).then_some(Progress { place: one.source.place, is_row: figures == words, serves })
    });
    rows.chain(said).collect()
}

/// Whether a line has values in cells, as Megatron-LM's: ` iteration      190/    1000 | elapsed time per iteration (ms): 1839.6 | lm loss: 7.28 |`.
fn has_cells(text: &str) -> bool {
    let is_value = |cell: &&str| cell.rsplit(": ").next().is_some_and(|value| is_number(value.trim()));
    text.contains('|') && text.split('|').filter(is_value).count() >= 3
}

/// Lines in which loops of programs count their steps: bars, and others with enough figures.
pub fn steps(run: &Run) -> Vec<Counted> {
    let counted = |one: &Statement| {
        let text = one.text();
        let of_row = || step_of(text.split_whitespace().take(1)).filter(|_| is_row(one.message()));
        let of_line = || step(text).filter(|_| measures(one.message()) || has_cells(text)).or_else(of_row);
        let step = if is_bar(text) { step_of_bar(text) } else { of_line() }?;
        let is_measured = match text.split_once("%|") {
            Some((head, _)) => self::step(head).is_some(),
            None => decimals(one.message()) >= if names_loss(text) { 1 } else { 2 },
        };
        Some(Counted { place: one.source.place, of: loop_of(text), step, is_measured })
    };
    said(run).filter_map(counted).collect()
}

/// Whether a line tells a loss, which only what trains or evaluates has: `step 12 loss 2.31`, `train_loss=0.4`.
fn names_loss(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word.eq_ignore_ascii_case("loss"))
}

/// Whether a line holds nothing but figures.
fn is_row(text: &str) -> bool {
    let (figures, words) = figures(text);
    figures >= 2 && figures == words
}

/// How many numbers of a line have a decimal point or an exponent.
fn decimals(text: &str) -> usize {
    let said = text.split([' ', '\t']).filter(|word| !is_of_head(word));
    let parts = said.flat_map(|word| word.split(['=', ':', ',', '|', '(', ')', '[', ']', '{', '}']));
    let is_decimal = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_digit() || c == '-')
            && part.contains(['.', 'e', 'E'])
            && leading_number(part.trim_start_matches('-')).is_some()
    };
    parts.filter(is_decimal).count()
}

/// Whether a third of a line's words have numbers with units, `412ms`, `8.12G`, `41.2%`, or of two, `100/600`: a loop's that tells what it measured.
fn measures(text: &str) -> bool {
    let is_measured = |word: &&str| word.trim_start_matches(['[', '(', '#']).starts_with(|c: char| c.is_ascii_digit());
    let said = || text.split([' ', '\t']).filter(|word| !is_of_head(word));
    let parts = || said().flat_map(|word| word.split(['=', ':', ',', '|', '-']));
    let words = || parts().filter(|part| part.contains(char::is_alphanumeric));
    let of_two = |word: &&str| word.split_once('/').is_some_and(|(_, all)| leading_number(all).is_some());
    let measured = words().filter(is_measured).count() + words().filter(is_measured).filter(of_two).count();
    measured >= 2 && measured * 3 >= words().count()
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

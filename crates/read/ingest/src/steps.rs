//! Where the loop of a job's program goes on: lines that repeat their words with other numbers, as `step 120 loss 2.31` does.
//!
//! Of a long loop the first lines are kept as statements, and the last ones show whether it goes on. Which these are must not depend on where blocks
//! end: of each wording a block tells its first line, its last line and where it went on last, and so do all blocks together.
//! A bar of progress is a loop too, of its stream and label.

use crate::wording::{first_digit, wording};
use busbw_model::Place;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;

/// Places that are kept of each wording.
const MOST_PLACES: usize = 3;
/// Wordings that are followed; what is new after that is not.
const MOST_WORDINGS: usize = 1 << 12;
/// What each rank says once of itself differs in its number.
const LEAST_NUMBERS: usize = 2;

/// The numbers of a line, as hashes; 0 where there are fewer.
pub(crate) type Numbers = [u32; 8];

/// A line that may be one of a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Of which loop: the wording of its lines.
    wording: u64,
    numbers: Numbers,
    is_bar: bool,
}

/// The lines of one wording, with the number that a line has in its block or input.
#[derive(Debug, Clone)]
pub(crate) struct Loop {
    first: (u64, Numbers),
    /// The numbers of the last line.
    last: Numbers,
    /// The last lines that differ in enough numbers from the line before; 0 where there are fewer.
    places: [u64; MOST_PLACES],
    /// Of a bar, where it was seen to stand further and not yet followed by another such place: a process that ends prints its bar once more, with
    /// what it got done since.
    open: Option<u64>,
    is_bar: bool,
}

/// The loops of a block or an input, by wording.
#[derive(Debug, Default)]
pub(crate) struct Loops(FxHashMap<u64, Loop>);

impl Loop {
    fn of(step: &Step, line: u64) -> Self {
        let Step { numbers, is_bar, .. } = *step;
        Loop { first: (line, numbers), last: numbers, places: [0; MOST_PLACES], open: None, is_bar }
    }

    fn push(&mut self, line: u64) {
        let Some(line) = (if self.is_bar { self.open.replace(line) } else { Some(line) }) else { return };
        self.places.rotate_left(1);
        self.places[MOST_PLACES - 1] = line;
    }

    /// Adds the lines of a block that begins behind so many lines.
    fn append(&mut self, later: &Loop, before: u64) {
        let least = if self.is_bar { 1 } else { LEAST_NUMBERS };
        let differ = self.last.iter().zip(&later.first.1).filter(|(one, other)| one != other).count();
        if differ >= least {
            self.push(before + later.first.0);
        }
        later
            .places
            .iter()
            .copied()
            .filter(|line| *line > 0)
            .chain(later.open)
            .for_each(|line| self.push(before + line));
        self.last = later.last;
    }
}

impl Loops {
    /// Adds a line of a block.
    pub fn take(&mut self, step: &Step, line: u32) {
        let new = Loop::of(step, u64::from(line) + 1);
        self.0.entry(step.wording).and_modify(|known| known.append(&new, 0)).or_insert(new);
    }

    /// Adds the loops of a block that begins behind so many lines.
    pub fn absorb(&mut self, block: Loops, before: u64) {
        let mut block: Vec<(u64, Loop)> = block.0.into_iter().collect();
        block.sort_unstable_by_key(|(_, of_wording)| of_wording.first.0);
        for (wording, later) in block {
            let full = self.0.len() >= MOST_WORDINGS;
            match self.0.get_mut(&wording) {
                Some(known) => known.append(&later, before),
                None if full => {}
                None => {
                    let places = later.places.map(|line| if line > 0 { before + line } else { 0 });
                    self.0.insert(wording, Loop { places, open: later.open.map(|line| before + line), ..later });
                }
            }
        }
    }

    /// Where the loops of an input went on last, in order.
    pub fn finish(self, input: u32) -> Vec<Place> {
        let lines = self.0.into_values().flat_map(|of_wording| of_wording.places).filter(|line| *line > 0);
        let mut places: Vec<Place> = lines.map(|line| Place { input, line }).collect();
        places.sort_unstable();
        places
    }
}

/// What a line of a wording may be a step of, by its first numbers; nothing where it has too few.
pub(crate) fn step(text: &str, wording: u64) -> Option<Step> {
    let (numbers, count) = numbers(text);
    (count >= LEAST_NUMBERS).then_some(Step { wording, numbers, is_bar: false })
}

/// Whether a line is a bar of tqdm.
pub(crate) fn is_bar(text: &str) -> bool {
    text.contains("%|")
}

/// What a bar counts, and how much of it is done: `train:  45%|████▌     | 450/1000 [10:00<12:13,  1.33s/it]`.
pub(crate) fn bar(stream: &str, text: &str) -> Option<Step> {
    let (head, rest) = text.split_once("%|")?;
    let (_, counts) = rest.split_once("| ")?;
    let (done, _) = counts.split_once('/')?;
    let label = head.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let wording = FxBuildHasher.hash_one((stream, wording(label.as_bytes()), "%|"));
    let mut numbers = Numbers::default();
    numbers[0] = done.trim().parse().ok()?;
    Some(Step { wording, numbers, is_bar: true })
}

/// Takes the next word that has digits.
fn next_with_digits<'t>(rest: &mut &'t [u8]) -> Option<&'t [u8]> {
    let digit = first_digit(rest)?;
    let start = rest[..digit].iter().rposition(u8::is_ascii_whitespace).map_or(0, |blank| blank + 1);
    let length = rest[digit..].iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len() - digit);
    let (word, behind) = rest[start..].split_at(digit - start + length);
    *rest = behind;
    Some(word)
}

/// The first numbers of a line, times and dates left out, and how many there are.
fn numbers(text: &str) -> (Numbers, usize) {
    /// That of FNV-1a, whose hash of nothing is not 0.
    const FACTOR: u32 = 0x0100_0193;
    const NOTHING: u32 = 0x811c_9dc5;
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let (mut found, mut count) = (Numbers::default(), 0);
    let mut rest = text.as_bytes();
    while count < found.len()
        && let Some(word) = next_with_digits(&mut rest)
    {
        let (begins, mut at) = (count, 0);
        while let Some(start) = word[at..].iter().position(is_of_number) {
            let run = &word[at + start..];
            let (run, behind) = run.split_at(run.iter().position(|byte| !is_of_number(byte)).unwrap_or(run.len()));
            at = word.len() - behind.len();
            if count < found.len() && run.iter().any(u8::is_ascii_digit) {
                found[count] = run.iter().fold(NOTHING, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FACTOR));
                count += 1;
            }
            let is_of_time = matches!(behind, [b':' | b'-', b'0'..=b'9', ..]);
            if is_of_time && run.last().is_some_and(u8::is_ascii_digit) {
                found[begins..].fill(0);
                count = begins;
                break;
            }
        }
    }
    (found, count)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_loop_repeats_its_words_with_other_numbers() {
        let steps = |from: u32| (from..from + 2000).map(|i| format!("[default3]: step {i} loss {}.5\n", 9000 - i));
        let bars = |done: std::ops::Range<u32>| {
            done.map(|i| format!("[rank0]: step: {i}%|#{i}| {i}/100 [00:1{i}<00:00, 2.0s/it]\n")).collect::<String>()
        };
        let ranks =
            (0..400).map(|i| format!("[default{}]: step {} loss {}.5 of rank {}\n", i % 8, i / 8, i / 8, i % 8));
        let cases = [
            ("step 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss 2.4\nstep 4 loss 2.2\n".to_string(), vec![2, 4]),
            ("  step 9 loss 2.5\n step 10 loss 2.4\n".into(), vec![2]),
            ("{'loss': 2.31, 'epoch': 0.1}\n{'loss': 2.2, 'epoch': 0.2}\n".into(), vec![2]),
            ("rank 0: 7 shards, 32 layers\nrank 1: 7 shards, 32 layers\n".into(), vec![]),
            ("10:00:01 2 of 8 are here\n10:01:07 2 of 8 are here\n".into(), vec![]),
            (
                "srun: error: n1: task 3: Exited with exit code 1\nsrun: error: n2: task 4: Exited with exit code 2\n"
                    .into(),
                vec![],
            ),
            (
                "shards: 100%|####| 5/5 [00:10<00:00, 2.0s/it]\nshards: 100%|####| 6/6 [00:11<00:00, 2.1s/it]\n".into(),
                vec![],
            ),
            // The last place of a bar may be what a process that ends prints.
            (bars(5..7), vec![]),
            (bars(5..10), vec![2, 3, 4]),
            (bars(5..8) + "[rank1]: step: 81%|##| 81/100 [00:10<00:00]\n" + &bars(7..8), vec![2]),
            (steps(0).collect(), vec![1998, 1999, 2000]),
            (ranks.collect(), vec![377, 385, 393]),
        ];
        for (text, expected) in cases {
            let run = crate::read_bytes(&[("log", text.as_bytes())]).expect("text");
            let steps: Vec<u64> = run.steps.iter().map(|step| step.line).collect();
            assert_eq!(steps, expected, "{}", &text[..text.len().min(200)]);
        }
    }
}

//! Ranks that are late for each step, told while the job goes on: again and again, what the ranks recorded is judged.

use crate::answer::{Answer, Judge, Recorder};
use crate::folder::Folder;
use std::time::{Duration, Instant};

/// How often ranks are compared, unless that took more than a small share of the time.
const COMPARED: Duration = Duration::from_secs(1);
const SMALL_SHARE: u32 = 20;

/// Who is late, as far as it was told.
pub(crate) struct Stragglers<'a> {
    pub recorder: Recorder<'a>,
    compared: Instant,
    took: Duration,
    /// Named by the last comparison. Only who is named twice in a row is told: one in many comparisons may err.
    last: Vec<u32>,
    told: Vec<u32>,
}

impl<'a> Stragglers<'a> {
    pub fn new(recorder: Recorder<'a>) -> Self {
        Stragglers { recorder, compared: Instant::now(), took: Duration::ZERO, last: Vec::new(), told: Vec::new() }
    }

    /// What is to be told, if it is time to compare and something has changed.
    pub fn look(&mut self, folder: &Folder, judge: Judge) -> Option<String> {
        if self.compared.elapsed() < COMPARED.max(self.took * SMALL_SHARE) {
            return None;
        }
        let begun = Instant::now();
        let recordings = (self.recorder)(false);
        let answer = (!recordings.is_empty()).then(|| {
            let place = folder.for_stragglers().map_err(|error| error.to_string())?;
            place.write_recordings(&recordings).map_err(|error| error.to_string())?;
            judge(place.path())
        });
        (self.compared, self.took) = (Instant::now(), begun.elapsed());
        match answer? {
            Ok(answer) => self.change(answer),
            Err(error) => Some(format!("recordings: {error}")),
        }
    }

    fn change(&mut self, answer: Answer) -> Option<String> {
        let before = std::mem::replace(&mut self.last, answer.late.clone());
        if answer.late != before || answer.late == self.told {
            return None;
        }
        let passed = std::mem::replace(&mut self.told, answer.late);
        Some(match answer.line {
            Some(line) if !self.told.is_empty() => format!("{line}. Page: {}", answer.page),
            _ => format!("{} up again", kept(&passed)),
        })
    }
}

/// `rank 2 keeps`, `ranks 2, 3 keep`.
fn kept(ranks: &[u32]) -> String {
    let numbers: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let (noun, verb) = if ranks.len() == 1 { ("rank", "keeps") } else { ("ranks", "keep") };
    format!("{noun} {} {verb}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_named_twice_is_told_once() {
        let mut stragglers = Stragglers::new(&|_| Vec::new());
        let change = |late: &[u32]| {
            let line = (!late.is_empty()).then(|| format!("{late:?} late"));
            stragglers.change(Answer { line, page: "p".into(), late: late.to_vec() })
        };
        let told: Vec<Option<String>> =
            [&[][..], &[2], &[], &[2], &[2], &[2], &[], &[2], &[], &[], &[1, 3], &[1, 3]].map(change).into();
        let expected = [(4, "[2] late. Page: p"), (9, "rank 2 keeps up again"), (11, "[1, 3] late. Page: p")];
        let expected = |at: usize| expected.iter().find(|(when, _)| *when == at).map(|(_, line)| (*line).to_owned());
        assert_eq!(told, (0..12).map(expected).collect::<Vec<_>>());
    }
}

//! Which of the lines that nobody knows are worth keeping: the first few of each wording.
//!
//! Scanners offer lines, and [`Notes`] chooses among them in the order of the input. What a scanner leaves out was offered often
//! enough before: it gets its blocks in order too, so a wording was met at least as often as it counts.

use crate::steps::Loops;
use rustc_hash::FxHashMap;

/// Lines of one wording that are kept: enough for a list of node pairs, which differ in numbers only.
const OF_A_WORDING: u8 = 96;
/// Different wordings that are remembered; what is new after that is not kept.
const MOST_WORDINGS: usize = 1 << 15;

/// The lines of an input that are kept, by wording.
#[derive(Default)]
pub(crate) struct Notes {
    seen: FxHashMap<u64, u8>,
    /// Of longer loops than are kept, where they went on last.
    pub loops: Loops,
}

impl Notes {
    /// Whether a line of the wording was offered before.
    pub fn knows(&self, wording: u64) -> bool {
        self.seen.contains_key(&wording)
    }

    /// Takes the next line that is offered; whether to keep it.
    pub fn keep(&mut self, wording: u64) -> bool {
        let full = self.seen.len() >= MOST_WORDINGS;
        let Some(count) = (match full {
            true => self.seen.get_mut(&wording),
            false => Some(self.seen.entry(wording).or_default()),
        }) else {
            return false;
        };
        *count = count.saturating_add(1);
        *count <= OF_A_WORDING
    }
}

/// What a scanner met before.
#[derive(Default)]
pub(crate) struct SeenWordings {
    /// Lines of each wording, the block that the last stood in, and the first line in that block.
    seen: FxHashMap<u64, (u8, u32, u32)>,
    block: u32,
}

/// What is known of the wording of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Met {
    /// The line may be one to keep.
    pub may_be_kept: bool,
    /// The line of the block that has the wording first.
    pub since: u32,
}

impl SeenWordings {
    /// Begins a block. Who forgets offers more.
    pub fn begin_block(&mut self) {
        self.block = self.block.wrapping_add(1);
        if self.seen.len() >= MOST_WORDINGS {
            self.seen.clear();
        }
    }

    /// Meets a line of a wording, by its number in the block.
    pub fn meet(&mut self, wording: u64, line: u32) -> Met {
        let (count, block, since) = self.seen.entry(wording).or_insert((0, self.block.wrapping_sub(1), line));
        *count = count.saturating_add(1);
        if std::mem::replace(block, self.block) != self.block {
            *since = line;
        }
        Met { may_be_kept: *count <= OF_A_WORDING, since: *since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wording::wording;

    #[test]
    fn the_first_lines_of_a_wording_are_kept() {
        let (mut notes, mut met) = (Notes::default(), SeenWordings::default());
        let step = |i: u32| wording(format!("step {i} of 1000").as_bytes());
        met.begin_block();
        let kept = (0..1000).filter(|i| met.meet(step(*i), *i).may_be_kept && notes.keep(step(*i))).count();
        assert_eq!(kept, usize::from(OF_A_WORDING));
        assert_eq!(met.meet(step(1000), 1000), Met { may_be_kept: false, since: 0 });
        assert_eq!(met.meet(wording(b"something else"), 1001), Met { may_be_kept: true, since: 1001 });
        met.begin_block();
        assert_eq!(met.meet(step(1001), 7), Met { may_be_kept: false, since: 7 });
    }
}

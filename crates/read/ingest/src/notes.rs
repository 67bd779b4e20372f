//! Which of the lines that nobody knows are worth keeping: the first few of each wording.
//!
//! Scanners offer lines, and [`Notes`] chooses among them in the order of the input. What a scanner leaves out was offered often
//! enough before: it gets its blocks in order too, so a wording was met at least as often as it counts.

use rustc_hash::FxHashMap;

/// Lines of one wording that are kept: enough for a list of node pairs, which differ in numbers only.
const OF_A_WORDING: u8 = 96;
/// Different wordings that are remembered; what is new after that is not kept.
const MOST_WORDINGS: usize = 1 << 15;

/// The lines of an input that are kept, by wording.
#[derive(Default)]
pub(crate) struct Notes {
    seen: FxHashMap<u64, u8>,
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
    /// Lines of each wording, and the block that the last stood in.
    seen: FxHashMap<u64, (u8, u32)>,
    block: u32,
}

impl SeenWordings {
    /// Begins a block. Who forgets offers more.
    pub fn begin_block(&mut self) {
        self.block = self.block.wrapping_add(1);
        if self.seen.len() >= MOST_WORDINGS {
            self.seen.clear();
        }
    }

    /// Meets a line of a wording: whether it may be one to keep, and whether it is the first of the block.
    pub fn meet(&mut self, wording: u64) -> (bool, bool) {
        let (count, block) = self.seen.entry(wording).or_insert((0, self.block.wrapping_sub(1)));
        *count = count.saturating_add(1);
        let first = std::mem::replace(block, self.block) != self.block;
        (*count <= OF_A_WORDING, first)
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
        let kept = (0..1000).filter(|i| met.meet(step(*i)).0 && notes.keep(step(*i))).count();
        assert_eq!(kept, usize::from(OF_A_WORDING));
        assert_eq!(met.meet(step(1000)), (false, false));
        assert_eq!(met.meet(wording(b"something else")), (true, true));
        met.begin_block();
        assert_eq!(met.meet(step(1001)), (false, true));
    }
}

//! What stood in lines lately, in a table that needs one look: most lines begin as one of the last few hundred did, and have a
//! transport that they had. Without it, each costs a parse and look-ups in large maps, which are in no near cache.

/// A longer text is not remembered. A text of this length fills a line of the cache, with what is known of it.
const LONGEST: usize = 55;
/// How much of the start of a line distinguishes it from others.
const START: usize = 32;
/// How much of both ends of a text does.
const END: usize = 8;

/// Texts and what is known of each: at most `MOST`, a power of two. A text takes the place of another.
pub(crate) struct Recent<T, const MOST: usize> {
    slots: Vec<Slot<T>>,
}

#[derive(Clone, Copy)]
struct Slot<T> {
    text: [u8; LONGEST],
    length: u8,
    known: T,
}

impl<T: Copy + Default, const MOST: usize> Default for Recent<T, MOST> {
    fn default() -> Self {
        Recent { slots: vec![Slot { text: [0; LONGEST], length: 0, known: T::default() }; MOST] }
    }
}

impl<T: Copy, const MOST: usize> Recent<T, MOST> {
    /// What is known of a text that the line begins with, and its length.
    pub fn start_of(&self, line: &[u8]) -> Option<(T, usize)> {
        let slot = self.slots.get(Self::place(by_start(line)?))?;
        let text = slot.text();
        (!text.is_empty() && line.starts_with(text)).then_some((slot.known, text.len()))
    }

    /// What is known of a text.
    pub fn of(&self, text: &[u8]) -> Option<T> {
        let slot = self.slots.get(Self::place(by_ends(text)))?;
        (slot.text() == text && !text.is_empty()).then_some(slot.known)
    }

    /// Remembers the first bytes of a line.
    pub fn remember_start(&mut self, line: &[u8], length: usize, known: T) {
        self.remember(by_start(line), &line[..length], known);
    }

    pub fn remember_text(&mut self, text: &[u8], known: T) {
        self.remember(Some(by_ends(text)), text, known);
    }

    /// The upper bits of a product depend on all of its factor.
    fn place(product: u64) -> usize {
        (product >> (u64::BITS - MOST.ilog2())) as usize
    }

    fn remember(&mut self, product: Option<u64>, text: &[u8], known: T) {
        let Some(slot) = product.and_then(|product| self.slots.get_mut(Self::place(product))) else { return };
        if text.len() <= LONGEST {
            slot.text[..text.len()].copy_from_slice(text);
            (slot.length, slot.known) = (text.len() as u8, known);
        }
    }
}

impl<T> Slot<T> {
    fn text(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

/// Texts of which the hash suffices, and what is known of each, as many as `MOST`, a power of two. A text takes the place of another.
pub(crate) struct Hashed<T, const MOST: usize> {
    slots: Vec<(u64, T)>,
}

impl<T: Copy + Default, const MOST: usize> Default for Hashed<T, MOST> {
    fn default() -> Self {
        Hashed { slots: vec![(0, T::default()); MOST] }
    }
}

impl<T: Copy, const MOST: usize> Hashed<T, MOST> {
    pub fn of(&self, text: u64) -> Option<T> {
        let (known, what) = self.slots[Self::place(text)];
        (known == text).then_some(what)
    }

    pub fn remember(&mut self, text: u64, what: T) {
        self.slots[Self::place(text)] = (text, what);
    }

    fn place(text: u64) -> usize {
        (text >> (u64::BITS - MOST.ilog2())) as usize
    }
}

fn by_start(line: &[u8]) -> Option<u64> {
    let words = line.first_chunk::<START>()?.as_chunks::<8>().0;
    Some(words.iter().fold(0, |sum: u64, word| (sum ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR)))
}

fn by_ends(text: &[u8]) -> u64 {
    let short = || text.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    let first = text.first_chunk::<END>().map_or_else(short, |first| u64::from_le_bytes(*first));
    let last = text.last_chunk::<END>().map_or(0, |last| u64::from_le_bytes(*last));
    (first.wrapping_mul(FACTOR) ^ last ^ text.len() as u64).wrapping_mul(FACTOR)
}

/// Odd and without a pattern: 2^64 over the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_again_until_another_takes_its_place() {
        let mut recent = Recent::<u32, 64>::default();
        for pid in 0..10_000_u32 {
            let line = format!("node-{}:{pid}:{pid} [3] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via P2P", pid % 7);
            assert_eq!(recent.start_of(line.as_bytes()), None);
            let length = line.len() - 41;
            recent.remember_start(line.as_bytes(), length, pid);
            assert_eq!(recent.start_of(line.as_bytes()), Some((pid, length)));
        }
        recent.remember_text(b"NET/IB/3/GDRDMA", 7);
        assert_eq!(recent.of(b"NET/IB/3/GDRDMA"), Some(7));
        assert_eq!(recent.of(b"NET/IB/4/GDRDMA"), None);
        assert_eq!(recent.of(b"SHM"), None);
        recent.remember_text(b"SHM", 8);
        assert_eq!(recent.of(b"SHM"), Some(8));
    }
}

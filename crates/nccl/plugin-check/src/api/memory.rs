//! Memory that messages are sent from and received into.

/// Bytes around the usable part that nobody may write to.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xA5;

/// A piece of memory with guards before and behind it. It is never freed: a request under way may still write to it, and an
/// subprocess does not live long.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    start: *mut u8,
    len: usize,
}

impl Memory {
    /// Zeroed memory of `len` bytes.
    pub fn new(len: usize) -> Self {
        let mut all = vec![0; len + 2 * GUARD];
        all[..GUARD].fill(GUARD_BYTE);
        all[GUARD + len..].fill(GUARD_BYTE);
        let start = Box::leak(all.into_boxed_slice())[GUARD..].as_mut_ptr();
        Memory { start, len }
    }

    /// Memory that holds a message's pattern.
    pub fn filled(len: usize, seed: u64) -> Self {
        let memory = Memory::new(len);
        // SAFETY: nobody else knows this memory yet.
        unsafe { std::slice::from_raw_parts_mut(memory.start, len) }
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = pattern(seed, at));
        memory
    }

    pub fn start(self) -> *mut u8 {
        self.start
    }

    pub fn len(self) -> usize {
        self.len
    }

    pub fn setup(self, from: usize, len: usize) -> Memory {
        assert!(from + len <= self.len, "a setup lies within its memory");
        // SAFETY: within the allocation, as the line above says.
        Memory { start: unsafe { self.start.add(from) }, len }
    }

    /// Where the first `len` bytes differ from a message's pattern, if they do.
    pub fn differs(self, len: usize, seed: u64) -> Option<usize> {
        (0..len.min(self.len)).find(|&at| self.byte(at) != pattern(seed, at))
    }

    /// Whether every byte from `from` on is still zero.
    pub fn untouched_from(self, from: usize) -> bool {
        (from..self.len).all(|at| self.byte(at) == 0)
    }

    /// Whether nobody wrote around the whole of it. Not for parts.
    pub fn guards_hold(self) -> bool {
        // SAFETY: `new` made this room on both sides.
        let guard = |start: *const u8| (0..GUARD).all(|at| unsafe { start.add(at).read_volatile() } == GUARD_BYTE);
        // SAFETY: as above.
        guard(unsafe { self.start.sub(GUARD) }) && guard(unsafe { self.start.add(self.len) })
    }

    fn byte(self, at: usize) -> u8 {
        // SAFETY: callers stay below `len`; volatile, because a plugin's thread may have written it.
        unsafe { self.start.add(at).read_volatile() }
    }
}

/// A byte that depends on the message and on its place, so that neither a swap nor a shift goes unseen.
fn pattern(seed: u64, at: usize) -> u8 {
    let mixed =
        (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add((at as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93));
    // Never zero, so that bytes that were not received can be distinguished.
    (mixed >> 56) as u8 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_messages_and_places_differ() {
        let memory = Memory::filled(4096, 7);
        assert_eq!(memory.differs(4096, 7), None);
        assert!(memory.differs(4096, 8).is_some_and(|at| at < 16));
        assert!(memory.setup(1, 4000).differs(4000, 7).is_some());
    }

    #[test]
    fn a_byte_beside_the_room_is_seen() {
        let memory = Memory::new(10);
        assert!(memory.guards_hold() && memory.untouched_from(0));
        // SAFETY: in the guard behind the room, which is part of the allocation.
        unsafe { memory.start().add(10).write(0) };
        assert!(!memory.guards_hold());
    }
}

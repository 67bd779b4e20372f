//! How buffers are divided: over lanes, over ranks, and into chunks that are on their way at the same time.

use crate::mesh::Mesh;

/// Tests divide all sizes by two to this power, so that small buffers take many chunks.
pub(super) const SHRINK: u32 = if cfg!(test) { 8 } else { 0 };

/// Chunks that take one step of a ring one after the other, so that a chunk is reduced while others are on the wire. With
/// half as many, a wire of 4 Gbit/s ran dry now and then: 90 % of its rate instead of 94 %.
pub(super) const GROUP: usize = 8;

/// Positions of a plan that are looked at together: so many receives are posted ahead.
pub(super) const WINDOW: usize = 2 * GROUP;

/// Slots of the scratch memory of each lane: the partial results of a group, and some that are arriving.
pub(super) const SLOTS: usize = GROUP + 4;

/// Bytes of the slots of all lanes together, used from the one that was free last: few of them at a time. Chunks of 512 KiB
/// go over TCP a third faster than those of 128 KiB.
const SLOT_BYTES: usize = (6 << 20) >> SHRINK;

/// Bytes below which a chunk costs more in messages than it gains in overlap.
const CHUNK_BYTES_MIN: usize = (64 << 10) >> SHRINK;

/// Bytes of chunks that are received straight into place.
const CHUNK_BYTES_DIRECT: usize = (512 << 10) >> SHRINK;

/// Least bytes of a chunk that is reduced where there are two ranks.
const CHUNK_BYTES_MIN_PAIR: usize = (256 << 10) >> SHRINK;

/// Bytes for which it pays to use another lane.
const LANE_BYTES: usize = (128 << 10) >> SHRINK;

/// Divides `total` elements into `parts` of nearly equal size that begin at multiples of `unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    total: usize,
    parts: usize,
    unit: usize,
}

/// A range of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub start: usize,
    pub count: usize,
}

impl Split {
    pub(super) fn new(total: usize, parts: usize, unit: usize) -> Self {
        Split { total, parts: parts.max(1), unit: unit.max(1) }
    }

    /// Divides at multiples of 64 bytes.
    pub(super) fn aligned(total: usize, parts: usize, element: usize) -> Self {
        Self::new(total, parts, 64 / element.max(1))
    }

    fn start(&self, part: usize) -> usize {
        let units = self.total.div_ceil(self.unit);
        // Widened: units times parts may exceed 64 bits.
        let before = (units as u128 * part as u128 / self.parts as u128) as usize;
        (before * self.unit).min(self.total)
    }

    /// The elements of `part`.
    pub(super) fn range(&self, part: usize) -> Range {
        self.ranges(part, 1)
    }

    /// The elements of `parts` neighbouring parts from `part` on.
    pub(super) fn ranges(&self, part: usize, parts: usize) -> Range {
        let start = self.start(part);
        Range { start, count: self.start(part + parts) - start }
    }

    /// The most elements that a part has.
    pub(super) fn largest(&self) -> usize {
        (self.total.div_ceil(self.unit).div_ceil(self.parts) * self.unit).min(self.total)
    }
}

/// How a buffer goes over the lanes in chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Lanes to use, at least 1.
    pub lanes: usize,
    /// Elements of a chunk at most, at least 1.
    pub chunk: usize,
}

impl Cut {
    /// For streams of `count` elements of `element` bytes between the ranks of `mesh`: through slots or straight into place.
    ///
    /// Two ranks pass nothing on, so that no third one waits for the first chunk: theirs are larger. 512 KiB in one chunk go
    /// over a veth pair in two thirds of the time of eight.
    pub(super) fn new<M: Mesh + ?Sized>(mesh: &M, count: usize, element: usize, through_slots: bool) -> Self {
        Self::between(mesh.size(), mesh.lanes(), count * element, element, through_slots)
    }

    fn between(ranks: usize, lanes: usize, bytes: usize, element: usize, through_slots: bool) -> Self {
        let lanes = (bytes / LANE_BYTES).clamp(1, lanes.max(1));
        let most = match through_slots {
            true => ((SLOT_BYTES / (SLOTS * lanes)) & !(CHUNK_BYTES_MIN - 1)).max(CHUNK_BYTES_MIN),
            false => CHUNK_BYTES_DIRECT,
        };
        let least = match through_slots {
            _ if ranks > 2 => CHUNK_BYTES_MIN,
            true => CHUNK_BYTES_MIN_PAIR.min(most),
            false => most,
        };
        let chunk_bytes = (bytes / lanes / (2 * GROUP)).clamp(least, most);
        Cut { lanes, chunk: (chunk_bytes / element).max(1) }
    }

    /// Bytes of scratch memory that a flow over at most `lanes` lanes asks for.
    pub(super) fn scratch_bytes(lanes: usize) -> usize {
        // A chunk may begin at a multiple of 64 bytes, and a slot does: each may take that much more.
        (SLOT_BYTES + lanes * SLOTS * CHUNK_BYTES_MIN).max(lanes * SLOTS * CHUNK_BYTES_DIRECT) + lanes * SLOTS * 128
    }

    /// How many chunks `count` elements take.
    pub(super) fn chunks(&self, count: usize) -> usize {
        count.div_ceil(self.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        for (total, parts, unit) in [(0, 3, 16), (1, 3, 16), (1000, 7, 16), (64, 4, 16), (5, 9, 1), (48, 3, 0)] {
            let split = Split::new(total, parts, unit);
            let mut next = 0;
            for part in 0..parts {
                let range = split.range(part);
                assert_eq!(range.start, next, "{split:?} {part}");
                assert!(range.count <= split.largest(), "{split:?} {part}");
                next += range.count;
            }
            assert_eq!(next, total, "{split:?}");
        }
    }

    #[test]
    fn two_ranks_send_larger_chunks() {
        let chunks = |ranks, through_slots| {
            let bytes = 2 * CHUNK_BYTES_DIRECT;
            Cut::between(ranks, 1, bytes, 1, through_slots).chunks(bytes)
        };
        assert_eq!(
            [(2, false), (2, true), (3, false), (3, true)].map(|(ranks, slots)| chunks(ranks, slots)),
            [2, 4, 16, 16]
        );
    }

    #[test]
    fn chunks_fit_their_slots() {
        for count in [0, 1, 100, 10_000, 1 << 20, 1 << 30] {
            for element in [1, 2, 4, 8] {
                for (lanes, ranks) in (1..20).flat_map(|lanes| [(lanes, 2), (lanes, 3)]) {
                    let cut = Cut::between(ranks, lanes, count * element, element, true);
                    let slot = ((cut.chunk + 64 / element) * element).next_multiple_of(64);
                    assert!((1..=lanes).contains(&cut.lanes) && cut.chunk > 0, "{cut:?}");
                    assert!(cut.lanes * SLOTS * slot <= Cut::scratch_bytes(lanes), "{cut:?}");
                }
            }
        }
    }
}

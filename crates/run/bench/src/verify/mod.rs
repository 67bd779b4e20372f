//! The data of a check and what must come of it.
//!
//! Data are known from (rank, index, repetition) alone, so that a rank checks its own result without asking others.
//! Integers are compared bit by bit, for every reduction, wrapped around where the type wraps. Floating-point numbers
//! are compared as numbers: sums are of integers so small that every order of summing is exact, products of powers of
//! two and a single significand; so these, minima, maxima and copies must be exact too. Only an average among a
//! number of ranks that is no power of two has a bound: `Recipe::reduced` in `element.rs` states it.
//!
//! Data repeat a table of some thousand elements, begun at another place for each block of 1024 elements, each
//! repetition and each rank of what is copied. So they are made, and compared, at the speed of memory, and a block
//! that arrives in another's place is found but for one time in eight thousand.

mod element;
mod layout;

pub use layout::{Part, RankBuffers, Stream};

use crate::Result;
use crate::backend::Backend;
use busbw_collectives::{Data as Bytes, Room};
use busbw_model::{Datatype, RedOp};
use element::{Recipe, decode, mix};

/// Elements that follow one another in the table.
pub const BLOCK: usize = 1024;
/// Places at which a block may begin.
pub const STARTS: usize = 8192;
const TABLE: usize = STARTS + BLOCK;
/// Bytes that are made or compared at a time: they stay in a core's cache.
const CHUNK: usize = 256 * 1024;

/// Where the data of checks are made and compared by whoever carries the collective: in a GPU's memory.
pub trait OnDevice {
    /// Takes over what the data of a sweep are made of.
    fn load(&mut self, tables: &Tables<'_>) -> Result<()>;

    /// Puts parts of a repetition's data, one behind the other, to the beginning of `to`, on which no operation works.
    fn fill(&mut self, parts: &[Part], repetition: u64, to: Room) -> Result<()>;

    /// How many elements are not what parts, one behind the other from the beginning of `from` on, say.
    fn count_wrong(&mut self, parts: &[Part], repetition: u64, from: Bytes) -> Result<u64>;
}

/// What the data of a sweep are made of. Empty is what the sweep does not need.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    pub datatype: Datatype,
    /// What is copied, whoever gives it.
    pub copied: &'a [u8],
    /// What this rank gives to a reduction.
    pub given: &'a [u8],
    /// What must come of what all give.
    pub reduced: &'a [u8],
    /// How far the result may be from that.
    pub bounds: &'a [f64],
}

/// The data of one datatype and reduction, as one rank sees them.
pub struct Data {
    datatype: Datatype,
    element: usize,
    /// What is copied, whoever gives it.
    copied: Vec<u8>,
    /// What this rank gives to a reduction.
    given: Vec<u8>,
    /// What must come of what all give.
    reduced: Vec<u8>,
    /// How far the result may be from that, where it may.
    bounds: Vec<f64>,
    /// Which repetition the data are of: others have other data.
    repetition: u64,
    expected: Vec<u8>,
    found: Vec<u8>,
}

impl Data {
    /// Of `rank` among `nranks`; without reduction, data are only copied.
    pub fn new(datatype: Datatype, redop: Option<RedOp>, rank: usize, nranks: usize) -> Self {
        let element = datatype.size() as usize;
        let recipe = Recipe { datatype, redop: redop.unwrap_or(RedOp::Sum), nranks };
        let table = |make: &dyn Fn(usize) -> u64| {
            (0..TABLE).flat_map(|index| make(index).to_le_bytes().into_iter().take(element)).collect::<Vec<u8>>()
        };
        let (mut copied, mut given, mut reduced, mut bounds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        if redop.is_none() {
            copied = table(&|index| recipe.copied(index));
        } else {
            given = table(&|index| recipe.given(rank, index));
            let results: Vec<_> = (0..TABLE).map(|index| recipe.reduced(index)).collect();
            reduced = table(&|index| results[index].bits);
            if results.iter().any(|result| result.bound > 0.0) {
                bounds = results.iter().map(|result| result.bound).collect();
            }
        }
        let (expected, found) = (vec![0; CHUNK], vec![0; CHUNK]);
        Data { datatype, element, copied, given, reduced, bounds, repetition: 0, expected, found }
    }

    /// Hands the tables to a backend that makes and compares data itself.
    pub fn load_on(&self, backend: &mut dyn Backend) -> Result<()> {
        let Data { datatype, copied, given, reduced, bounds, .. } = self;
        let tables = Tables { datatype: *datatype, copied, given, reduced, bounds };
        backend.on_device().map_or(Ok(()), |device| device.load(&tables))
    }

    /// Goes over to the data of another repetition.
    pub fn set_repetition(&mut self, repetition: u64) {
        self.repetition = repetition;
    }

    /// Where in the table element `index` of a stream lies.
    fn position(&self, stream: Stream, index: usize) -> usize {
        let block = (index / BLOCK) as u64;
        let start = mix(mix(mix(block) ^ self.repetition) ^ stream.source()) as usize % STARTS;
        start + index % BLOCK
    }

    /// Makes the elements of a stream from `start` on.
    fn make(&self, stream: Stream, start: usize, out: &mut [u8]) {
        let table = match stream {
            Stream::From(_) => &self.copied,
            Stream::Given => &self.given,
            Stream::Reduced => &self.reduced,
            Stream::Zero => return out.fill(0),
        };
        let (mut index, mut rest) = (start, out);
        while !rest.is_empty() {
            let bytes = ((BLOCK - index % BLOCK) * self.element).min(rest.len());
            let (now, later) = rest.split_at_mut(bytes);
            let position = self.position(stream, index) * self.element;
            now.copy_from_slice(&table[position..position + bytes]);
            index += bytes / self.element;
            rest = later;
        }
    }

    /// Puts parts, one behind the other, to the beginning of `to`.
    pub fn write(&mut self, backend: &mut dyn Backend, parts: &[Part], to: Room) -> Result<()> {
        if let Some(device) = backend.on_device() {
            return device.fill(parts, self.repetition, to);
        }
        let mut at = 0;
        let mut chunk = std::mem::take(&mut self.expected);
        for piece in parts.iter().flat_map(|part| pieces(*part, CHUNK / self.element)) {
            let bytes = piece.count * self.element;
            self.make(piece.stream, piece.start, &mut chunk[..bytes]);
            backend.write(to.skip(at), &chunk[..bytes])?;
            at += bytes;
        }
        self.expected = chunk;
        Ok(())
    }

    /// How many elements are not what parts, one behind the other from the beginning of `from` on, say.
    pub fn count_wrong(&mut self, backend: &mut dyn Backend, parts: &[Part], from: Bytes) -> Result<u64> {
        if let Some(device) = backend.on_device() {
            return device.count_wrong(parts, self.repetition, from);
        }
        let (mut at, mut wrong) = (0, 0);
        let (mut expected, mut found) = (std::mem::take(&mut self.expected), std::mem::take(&mut self.found));
        for piece in parts.iter().flat_map(|part| pieces(*part, CHUNK / self.element)) {
            let bytes = piece.count * self.element;
            self.make(piece.stream, piece.start, &mut expected[..bytes]);
            backend.read(from.skip(at), &mut found[..bytes])?;
            if expected[..bytes] != found[..bytes] {
                wrong += self.compare(piece, &expected[..bytes], &found[..bytes]);
            }
            at += bytes;
        }
        (self.expected, self.found) = (expected, found);
        Ok(wrong)
    }

    /// Counts the elements of a piece that differ by more than they may, block by block.
    fn compare(&self, piece: Part, expected: &[u8], found: &[u8]) -> u64 {
        let (mut wrong, mut at) = (0, 0);
        while at < expected.len() {
            let index = piece.start + at / self.element;
            let end = expected.len().min(at + (BLOCK - index % BLOCK) * self.element);
            if expected[at..end] != found[at..end] {
                let bounds = match piece.stream {
                    Stream::Reduced if !self.bounds.is_empty() => &self.bounds[self.position(piece.stream, index)..],
                    _ => &[],
                };
                wrong += self.compare_block(&expected[at..end], &found[at..end], bounds);
            }
            at = end;
        }
        wrong
    }

    fn compare_block(&self, expected: &[u8], found: &[u8], bounds: &[f64]) -> u64 {
        let elements = expected.chunks_exact(self.element).zip(found.chunks_exact(self.element));
        let wrong = elements.enumerate().filter(|(index, (expected, found))| {
            if expected == found {
                return false;
            }
            let numbers = decode(self.datatype, bits(expected)).zip(decode(self.datatype, bits(found)));
            let Some((expected, found)) = numbers else { return true };
            // False also where the result is no number.
            let is_near = (expected - found).abs() <= bounds.get(*index).copied().unwrap_or(0.0);
            !is_near
        });
        wrong.count() as u64
    }
}

fn bits(element: &[u8]) -> u64 {
    element.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// The bytes of the element that `mulsum` multiplies this rank's elements with, in the lowest of eight.
pub fn premul_scalar(datatype: Datatype, rank: usize) -> [u8; 8] {
    element::encode(datatype, element::premul_scalar(rank)).to_le_bytes()
}

/// Cuts a part into pieces of at most `most` elements.
fn pieces(part: Part, most: usize) -> impl Iterator<Item = Part> {
    (0..part.count).step_by(most).map(move |offset| Part {
        stream: part.stream,
        start: part.start + offset,
        count: most.min(part.count - offset),
    })
}

#[cfg(test)]
mod tests;

//! The loops over memory: a step of elements from every input into registers, and from there to every output.

use crate::{Data, Room};
use std::ptr::copy_nonoverlapping;

use super::Store;
use super::element::Element;
use super::level::{Instructions, fence, prefetch};
use super::operator::{Number, Operator};

/// Bytes of a cache line: streamed stores that fill whole ones are not split on their way to memory.
const LINE: usize = 64;

/// Bytes that [`copy_cached`] reads once for all its targets: they stay in the first cache.
const BLOCK: usize = 16 * 1024;

/// Bytes by which [`Call::step`] asks for its inputs early, where they are so many that the CPU does not see the
/// streams by itself: one load instruction reads them in turn, which defeats prefetchers that learn by instruction.
const AHEAD: usize = 2048;

/// One call, but for its types. `ranks` divides the result; it is 1 but for a finished average.
pub(super) struct Reduction<'a> {
    pub(super) outs: &'a [Room],
    pub(super) ins: &'a [Data],
    pub(super) count: usize,
    pub(super) ranks: usize,
    pub(super) store: Store,
}

/// A step of elements on their way from registers to the outputs.
#[repr(align(64))]
pub(super) struct Step<E, const STEP: usize>([E; STEP]);

/// See [`super::combine`].
///
/// # Safety
/// Every buffer holds `count` elements, and the CPU has the instructions.
#[inline(always)]
pub(super) unsafe fn reduce<I: Instructions, E: Element, O: Operator, const STEP: usize>(reduction: &Reduction<'_>) {
    let Reduction { outs, ins, count, ranks, store } = *reduction;
    if ins.is_empty() || outs.is_empty() || count == 0 {
        return;
    }
    let head = match store {
        Store::Cached => None,
        Store::Streaming => elements_to_line::<E>(outs),
    };
    let call = Call { ins, outs, ranks, stream: head.is_some() };
    // SAFETY: every range lies within `count`, which the caller promises.
    unsafe {
        if count < STEP {
            return I::part::<E, O, STEP>(call, count);
        }
        // What whole steps leave over at either end is part of a step that overlaps them: worked out before an output
        // that is an input changes, and written last, which changes nothing where they overlap.
        let head = head.unwrap_or(0).min(count);
        let last = count - STEP;
        let first = (head > 0).then(|| I::edge::<E, O, STEP>(call, 0));
        let rest = ((count - head) % STEP > 0).then(|| I::edge::<E, O, STEP>(call, last));
        match (ins, outs) {
            // The lengths known here let the compiler unroll the loops over the lists; where the conversions are long
            // code, a second copy of them gains nothing.
            (&[first, second], &[out]) if !E::NARROW_BY_HAND => {
                Call { ins: &[first, second], outs: &[out], ..call }.steps::<I, E, O, STEP>(head, count);
            }
            _ => call.steps::<I, E, O, STEP>(head, count),
        }
        for (edge, at) in [(first, 0), (rest, last)] {
            if let Some(edge) = edge {
                call.write(&edge, at);
            }
        }
    }
    if call.stream {
        fence();
    }
}

/// How many elements lie before the first output's first whole line; none where no element starts a line.
fn elements_to_line<E>(outs: &[Room]) -> Option<usize> {
    let bytes = outs.first()?.as_ptr().addr().wrapping_neg() % LINE;
    bytes.is_multiple_of(size_of::<E>()).then_some(bytes / size_of::<E>())
}

/// The lists of a call.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    ins: &'a [Data],
    outs: &'a [Room],
    ranks: usize,
    stream: bool,
}

impl Call<'_> {
    /// As many steps as lie between two elements.
    #[inline(always)]
    unsafe fn steps<I: Instructions, E: Element, O: Operator, const STEP: usize>(self, from: usize, to: usize) {
        let mut at = from;
        while to - at >= STEP {
            // SAFETY: as the caller promises.
            unsafe { self.step::<I, E, O, STEP>(at) };
            at += STEP;
        }
    }

    /// The results of the step at `at`.
    ///
    /// # Safety
    /// Every buffer holds `STEP` elements from `at` on, and the CPU has the instructions.
    #[inline(always)]
    pub(super) unsafe fn edge<I: Instructions, E: Element, O: Operator, const STEP: usize>(
        self,
        at: usize,
    ) -> Step<E, STEP> {
        // SAFETY: as the caller promises.
        unsafe { self.results::<I, E, O, STEP>(|input| input.add(at * size_of::<E>())) }
    }

    /// Writes results through the caches.
    #[inline(always)]
    unsafe fn write<E: Element, const STEP: usize>(self, results: &Step<E, STEP>, at: usize) {
        for out in self.outs {
            // SAFETY: as the caller promises.
            unsafe { out.as_ptr().cast::<E>().add(at).cast::<[E; STEP]>().write_unaligned(results.0) };
        }
    }

    /// `STEP` elements from `at` on.
    #[inline(always)]
    unsafe fn step<I: Instructions, E: Element, O: Operator, const STEP: usize>(self, at: usize) {
        let offset = at * size_of::<E>();
        // SAFETY: as the caller promises.
        unsafe {
            let result = self.results::<I, E, O, STEP>(|input| {
                if self.ins.len() > 2 {
                    for line in (0..size_of::<[E; STEP]>()).step_by(LINE) {
                        prefetch(input.wrapping_add(offset + AHEAD + line));
                    }
                }
                input.add(offset)
            });
            for out in self.outs {
                let to = out.as_ptr().add(offset);
                if self.stream && to.addr().is_multiple_of(LINE) {
                    I::stream(to, result.0.as_ptr().cast(), size_of::<[E; STEP]>());
                } else {
                    to.cast::<[E; STEP]>().write_unaligned(result.0);
                }
            }
        }
    }

    /// The first `elements` elements, fewer than `STEP`, by way of a full step.
    ///
    /// # Safety
    /// Every buffer holds `elements` elements, and the CPU has the instructions.
    #[inline(always)]
    pub(super) unsafe fn part<I: Instructions, E: Element, O: Operator, const STEP: usize>(self, elements: usize) {
        if elements <= E::FEW {
            // SAFETY: as the caller promises.
            return unsafe { self.few::<E, O>(elements) };
        }
        let bytes = elements * size_of::<E>();
        let mut room = Step([E::default(); STEP]);
        // SAFETY: `elements` elements lie at every input and output, as the caller promises, and in the room.
        unsafe {
            let result = self.results::<I, E, O, STEP>(|input| {
                let room: *mut u8 = room.0.as_mut_ptr().cast();
                copy_nonoverlapping(input, room, bytes);
                room
            });
            for out in self.outs {
                copy_nonoverlapping(result.0.as_ptr().cast::<u8>(), out.as_ptr(), bytes);
            }
        }
    }

    #[inline(always)]
    unsafe fn few<E: Element, O: Operator>(self, elements: usize) {
        for index in 0..elements {
            // SAFETY: as the caller promises.
            unsafe {
                let number = |input: &Data| input.as_ptr().cast::<E>().add(index).read_unaligned().widen();
                let first = number(&self.ins[0]);
                let result = self.ins[1..].iter().map(number).fold(first, O::apply);
                let result = if self.ranks > 1 { result.divide(E::Number::divisor(self.ranks)) } else { result };
                for out in self.outs {
                    out.as_ptr().cast::<E>().add(index).write_unaligned(E::narrow(result));
                }
            }
        }
    }

    /// The results of a step, of which `at` tells where it lies in an input.
    #[inline(always)]
    unsafe fn results<I: Instructions, E: Element, O: Operator, const STEP: usize>(
        &self,
        mut at: impl FnMut(*const u8) -> *const u8,
    ) -> Step<E, STEP> {
        let mut numbers = [E::Number::default(); STEP];
        let mut others = [E::Number::default(); STEP];
        let mut result = Step([E::default(); STEP]);
        // SAFETY: as the caller promises.
        unsafe {
            E::load::<I, STEP>(at(self.ins[0].as_ptr()), &mut numbers);
            for input in &self.ins[1..] {
                E::load::<I, STEP>(at(input.as_ptr()), &mut others);
                for (number, other) in numbers.iter_mut().zip(others) {
                    *number = O::apply(*number, other);
                }
            }
            if self.ranks > 1 {
                let divisor = E::Number::divisor(self.ranks);
                for number in &mut numbers {
                    *number = number.divide(divisor);
                }
            }
            E::store::<I, STEP>(&numbers, &mut result.0);
        }
        result
    }
}

/// Copies through the caches, a block at a time to every target.
///
/// # Safety
/// Every target holds the bytes.
pub(super) unsafe fn copy_cached(to: &[Room], from: Data) {
    let (start, bytes) = (from.as_ptr(), from.len());
    let block = if to.len() == 1 { bytes } else { BLOCK };
    let mut at = 0;
    while at < bytes {
        let part = block.min(bytes - at);
        for target in to.iter().filter(|target| !from.is_at(**target)) {
            // SAFETY: the range lies within both, as the caller promises.
            unsafe { target.as_ptr().add(at).copy_from(start.add(at), part) };
        }
        at += part;
    }
}

/// Copies past the caches. Targets that lie otherwise than the first within a line are written through the caches.
///
/// # Safety
/// Every target holds the bytes, and the CPU has the instructions.
#[inline(always)]
pub(super) unsafe fn copy_streaming<I: Instructions>(to: &[Room], from: Data) {
    let (start, bytes) = (from.as_ptr(), from.len());
    let head = elements_to_line::<u8>(to).unwrap_or(0).min(bytes);
    let body = (bytes - head) / (4 * LINE) * (4 * LINE);
    // SAFETY: the three ranges make up the bytes. A target that is the source is left alone at the ends; in the body it is
    // read before it is written.
    unsafe {
        copy_cached(to, from.take(head));
        for at in (head..head + body).step_by(4 * LINE) {
            let step = start.add(at).cast::<[u8; 4 * LINE]>().read_unaligned();
            for target in to {
                let target = target.as_ptr().add(at);
                if target.addr().is_multiple_of(LINE) {
                    I::stream(target, step.as_ptr(), step.len());
                } else {
                    target.cast::<[u8; 4 * LINE]>().write_unaligned(step);
                }
            }
        }
        let tail = head + body;
        for target in to.iter().filter(|target| tail < bytes && !from.is_at(**target)) {
            target.as_ptr().add(tail).copy_from(start.add(tail), bytes - tail);
        }
    }
    fence();
}

//! Every datatype, operation, number of inputs and outputs, alignment, store and level against a slow reference.

use busbw_model::{Datatype, RedOp};
use half::{bf16, f16};
use proptest::prelude::*;

use super::float8::{F8E4M3, F8E5M2};
use super::kernel::Reduction;
use super::level::Level;
use super::{Store, combine, copy_at, reduce_at};
use crate::Room;

const REDOPS: [RedOp; 5] = [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg];
const STORES: [Store; 2] = [Store::Cached, Store::Streaming];

/// Bytes that lie before and after what may be written.
const FENCE: usize = 64;

/// A number of any datatype, as the reference computes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Integer(i128),
    Float(f32),
    Double(f64),
}

fn decode(datatype: Datatype, bytes: &[u8]) -> Value {
    fn of<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().unwrap()
    }
    match datatype {
        Datatype::Int8 => Value::Integer(i8::from_le_bytes(of(bytes)).into()),
        Datatype::Uint8 => Value::Integer(bytes[0].into()),
        Datatype::Int32 => Value::Integer(i32::from_le_bytes(of(bytes)).into()),
        Datatype::Uint32 => Value::Integer(u32::from_le_bytes(of(bytes)).into()),
        Datatype::Int64 => Value::Integer(i64::from_le_bytes(of(bytes)).into()),
        Datatype::Uint64 => Value::Integer(u64::from_le_bytes(of(bytes)).into()),
        Datatype::Half => Value::Float(f16::from_le_bytes(of(bytes)).to_f32()),
        Datatype::Bfloat16 => Value::Float(bf16::from_le_bytes(of(bytes)).to_f32()),
        Datatype::Float => Value::Float(f32::from_le_bytes(of(bytes))),
        Datatype::Double => Value::Double(f64::from_le_bytes(of(bytes))),
        Datatype::F8e4m3 => Value::Float(F8E4M3(bytes[0]).to_f32()),
        Datatype::F8e5m2 => Value::Float(F8E5M2(bytes[0]).to_f32()),
    }
}

fn encode(datatype: Datatype, value: Value) -> Vec<u8> {
    match (datatype, value) {
        (Datatype::Half, Value::Float(value)) => f16::from_f32(value).to_le_bytes().to_vec(),
        (Datatype::Bfloat16, Value::Float(value)) => bf16::from_f32(value).to_le_bytes().to_vec(),
        (Datatype::F8e4m3, Value::Float(value)) => vec![F8E4M3::from_f32(value).0],
        (Datatype::F8e5m2, Value::Float(value)) => vec![F8E5M2::from_f32(value).0],
        (_, Value::Float(value)) => value.to_le_bytes().to_vec(),
        (_, Value::Double(value)) => value.to_le_bytes().to_vec(),
        (_, Value::Integer(value)) => value.to_le_bytes()[..datatype.size() as usize].to_vec(),
    }
}

/// Wraps an integer to its datatype.
fn wrapped(datatype: Datatype, value: Value) -> Value {
    match value {
        Value::Integer(_) => decode(datatype, &encode(datatype, value)),
        _ => value,
    }
}

fn extreme<T: PartialOrd + Copy>(first: T, second: T, largest: bool) -> T {
    let first_is_nan = first.partial_cmp(&first).is_none();
    let second_wins = if largest { second > first } else { second < first };
    if first_is_nan || second_wins { second } else { first }
}

fn apply(redop: RedOp, first: Value, second: Value) -> Value {
    macro_rules! of {
        ($variant:ident, $a:ident, $b:ident, $sum:expr, $product:expr) => {
            Value::$variant(match redop {
                RedOp::Sum | RedOp::Avg | RedOp::MulSum => $sum,
                RedOp::Prod => $product,
                RedOp::Max => extreme($a, $b, true),
                RedOp::Min => extreme($a, $b, false),
            })
        };
    }
    match (first, second) {
        (Value::Integer(a), Value::Integer(b)) => of!(Integer, a, b, a + b, a.wrapping_mul(b)),
        (Value::Float(a), Value::Float(b)) => of!(Float, a, b, a + b, a * b),
        (Value::Double(a), Value::Double(b)) => of!(Double, a, b, a + b, a * b),
        _ => unreachable!("two values of one datatype"),
    }
}

fn quotient(value: Value, ranks: usize) -> Value {
    match value {
        Value::Integer(value) => Value::Integer(value / ranks as i128),
        Value::Float(value) => Value::Float(value / ranks as f32),
        Value::Double(value) => Value::Double(value / ranks as f64),
    }
}

/// One call.
#[derive(Debug, Clone)]
struct Case {
    datatype: Datatype,
    redop: RedOp,
    ins: usize,
    outs: usize,
    count: usize,
    ranks: usize,
    store: Store,
    /// The input that the first output is the same memory as.
    in_place: Option<usize>,
    /// Bytes by which buffers lie off a cache line: input or output `k` by `k`-th of these.
    offsets: [usize; 9],
    seed: u64,
}

/// Bytes at a chosen distance from a cache line.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize, offset: usize) -> Self {
        let memory = vec![0xa5; len + 3 * FENCE + offset];
        let start = memory.as_ptr().addr().wrapping_neg() % 64 + FENCE + offset;
        Buffer { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }

    fn room(&mut self) -> Room {
        // SAFETY: the bytes lie there until the buffer is dropped, and are looked at again after the call.
        unsafe { Room::new(self.memory.as_mut_ptr().add(self.start), self.len) }
    }

    /// Whether something was written beyond the ends.
    fn trampled(&self) -> bool {
        let end = self.start + self.len;
        self.memory[..self.start].iter().chain(&self.memory[end..]).any(|byte| *byte != 0xa5)
    }
}

/// A small generator, so that the same seed gives the same bytes everywhere.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 29)
}

/// Every bit pattern for one element of four, and numbers that do not soon overflow for the others.
fn fill(buffer: &mut [u8], datatype: Datatype, seed: u64) {
    let mut state = seed;
    for element in buffer.chunks_exact_mut(datatype.size() as usize) {
        let bits = random(&mut state);
        let small = (bits >> 32) as i8 as f32 / 16.0;
        let value = match datatype {
            _ if bits.is_multiple_of(4) => Value::Integer(bits.into()),
            Datatype::Double => Value::Double(small.into()),
            Datatype::Half | Datatype::Bfloat16 | Datatype::Float | Datatype::F8e4m3 | Datatype::F8e5m2 => {
                Value::Float(small)
            }
            _ => Value::Integer(bits.into()),
        };
        element.copy_from_slice(&encode(datatype, value));
    }
}

fn expected(case: &Case, ins: &[Vec<u8>]) -> Vec<u8> {
    let (datatype, size) = (case.datatype, case.datatype.size() as usize);
    let at = |input: &Vec<u8>, i: usize| decode(datatype, &input[i * size..][..size]);
    (0..case.count)
        .flat_map(|i| {
            let first = at(&ins[0], i);
            let sum = ins[1..].iter().fold(first, |a, input| wrapped(datatype, apply(case.redop, a, at(input, i))));
            let divides = case.redop == RedOp::Avg && case.ranks > 1;
            encode(datatype, if divides { quotient(sum, case.ranks) } else { sum })
        })
        .collect()
}

/// Whether two results are the same number, whatever a NaN carries.
fn same(datatype: Datatype, a: &[u8], b: &[u8]) -> bool {
    let is_nan = |bytes: &[u8]| match decode(datatype, bytes) {
        Value::Float(value) => value.is_nan(),
        Value::Double(value) => value.is_nan(),
        Value::Integer(_) => false,
    };
    a == b || (is_nan(a) && is_nan(b))
}

fn check(level: Level, case: &Case) {
    let bytes = case.count * case.datatype.size() as usize;
    let mut buffers: Vec<_> = case.offsets[..case.ins + case.outs].iter().map(|o| Buffer::new(bytes, *o)).collect();
    for (k, buffer) in buffers[..case.ins].iter_mut().enumerate() {
        fill(buffer.bytes(), case.datatype, case.seed.wrapping_mul(31).wrapping_add(k as u64));
    }
    let inputs: Vec<_> = buffers[..case.ins].iter_mut().map(|b| b.bytes().to_vec()).collect();
    let rooms: Vec<_> = buffers.iter_mut().map(Buffer::room).collect();
    let ins: Vec<_> = rooms[..case.ins].iter().map(|room| room.data()).collect();
    let mut outs = rooms[case.ins..].to_vec();
    if let Some(input) = case.in_place {
        outs[0] = rooms[input];
    }
    let ranks = if case.redop == RedOp::Avg { case.ranks.max(1) } else { 1 };
    let reduction = Reduction { outs: &outs, ins: &ins, count: case.count, ranks, store: case.store };
    // SAFETY: the buffers hold as much, and the CPU has the level.
    unsafe { reduce_at(level, case.datatype, case.redop, &reduction) };
    let expected = expected(case, &inputs);
    assert!(!buffers.iter().any(Buffer::trampled), "{level:?} {case:?} wrote beyond its buffers");
    for (k, buffer) in buffers.iter_mut().enumerate() {
        let written = k >= case.ins && (k > case.ins || case.in_place.is_none()) || case.in_place == Some(k);
        let size = case.datatype.size() as usize;
        let wanted = match k {
            _ if written => &expected,
            k if k < case.ins => &inputs[k],
            _ => continue,
        };
        for (i, (got, want)) in buffer.bytes().chunks(size).zip(wanted.chunks(size)).enumerate() {
            assert!(
                same(case.datatype, got, want),
                "{level:?} {case:?} buffer {k} element {i}: {got:x?} not {want:x?}"
            );
        }
    }
}

/// Offsets in whole elements, as nccl-tests' `-u` gives, in bytes, and none.
fn offsets(datatype: Datatype, seed: u64) -> [usize; 9] {
    let mut state = seed;
    std::array::from_fn(|_| match seed % 3 {
        0 => 0,
        1 => random(&mut state) as usize % 16 * datatype.size() as usize % 64,
        _ => random(&mut state) as usize % 64,
    })
}

#[test]
fn every_combination_is_what_the_reference_says() {
    let lists = || (1..=6).flat_map(|i| (1..=3).flat_map(move |o| STORES.map(|s| (i, o, s))));
    let kinds = Datatype::ALL.into_iter().flat_map(|d| REDOPS.map(|r| (d, r)));
    let all = kinds.flat_map(|kind| lists().map(move |list| (kind, list)));
    let mut seed = 0;
    for ((datatype, redop), (ins, outs, store)) in all {
        for level in Level::all() {
            seed += 1;
            let count = if seed % 16 == 0 { 1000 + seed as usize % 3000 } else { seed as usize * 7 % 201 };
            let ranks = [0, 1, ins, 3, 300][seed as usize % 5];
            let in_place = (seed % 4 == 0).then_some(seed as usize % ins);
            let offsets = offsets(datatype, seed);
            check(*level, &Case { datatype, redop, ins, outs, count, ranks, store, in_place, offsets, seed });
        }
    }
}

#[test]
fn every_length_is_what_the_reference_says() {
    for (datatype, count) in Datatype::ALL.into_iter().flat_map(|d| (0..=600).map(move |c| (d, c))) {
        for (level, store) in Level::all().iter().flat_map(|l| STORES.map(|s| (*l, s))) {
            let seed = count as u64;
            let (ins, outs) = (2, 1 + count % 2);
            let offsets = offsets(datatype, seed);
            let case =
                Case { datatype, redop: RedOp::Sum, ins, outs, count, ranks: 1, store, in_place: None, offsets, seed };
            check(level, &case);
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let lists = (1..=6_usize, 1..=3_usize, 0..3000_usize, prop_oneof![Just(0), 1..=9_usize, 100..=70_000_usize]);
    let types = (prop::sample::select(&Datatype::ALL[..]), prop::sample::select(&REDOPS[..]));
    let places = (prop::sample::select(&STORES[..]), prop::option::of(0..6_usize), any::<[u8; 9]>(), any::<u64>());
    (types, lists, places).prop_map(|((datatype, redop), (ins, outs, count, ranks), (store, place, offsets, seed))| {
        let in_place = place.map(|input| input % ins);
        let offsets = offsets.map(|offset| usize::from(offset) % 64);
        Case { datatype, redop, ins, outs, count, ranks, store, in_place, offsets, seed }
    })
}

proptest! {
    #[test]
    fn any_case_is_what_the_reference_says(case in cases()) {
        for level in Level::all() {
            check(*level, &case);
        }
    }

    #[test]
    fn copies_are_equal(bytes in 0..70_000_usize, to in 1..=3_usize, own in any::<bool>(), places in any::<[u8; 4]>()) {
        for (level, store) in Level::all().iter().flat_map(|l| STORES.map(|s| (*l, s))) {
            let mut buffers: Vec<_> = places[..=to].iter().map(|o| Buffer::new(bytes, usize::from(*o) % 64)).collect();
            fill(buffers[0].bytes(), Datatype::Uint8, bytes as u64);
            let from = buffers[0].bytes().to_vec();
            let mut rooms: Vec<_> = buffers.iter_mut().map(Buffer::room).collect();
            let source = rooms[0].data();
            if !own {
                rooms.remove(0);
            }
            // SAFETY: the CPU has the level.
            unsafe { copy_at(level, &rooms, source, store) };
            for buffer in &mut buffers {
                prop_assert!(buffer.bytes() == from && !buffer.trampled());
            }
        }
    }

    #[test]
    fn division_afterwards_is_division_at_once(ranks in 1..40_usize, count in 0..400_usize, seed in any::<u64>()) {
        // Narrow floats are rounded twice where the division comes later.
        for datatype in Datatype::ALL.into_iter().filter(|d| !matches!(d.size(), 1 | 2) || d.name().contains("int")) {
            let bytes = count * datatype.size() as usize;
            let [mut first, mut second, mut at_once, mut later] = [1, 2, 3, 4].map(|offset| Buffer::new(bytes, offset));
            fill(first.bytes(), datatype, seed);
            fill(second.bytes(), datatype, seed ^ 1);
            let ins = [first.room().data(), second.room().data()];
            let (once, twice) = (at_once.room(), later.room());
            combine(&[once], &ins, count, datatype, RedOp::Avg, ranks, Store::Cached);
            combine(&[twice], &ins, count, datatype, RedOp::Avg, 0, Store::Cached);
            combine(&[twice], &[twice.data()], count, datatype, RedOp::Avg, ranks, Store::Cached);
            let size = datatype.size() as usize;
            for (a, b) in at_once.bytes().chunks(size).zip(later.bytes().chunks(size)) {
                prop_assert!(same(datatype, a, b), "{datatype:?}: {a:x?} and {b:x?}");
            }
        }
    }
}

#[test]
fn quotients_of_all_bytes_by_all_ranks() {
    for (datatype, ranks) in [Datatype::Int8, Datatype::Uint8].into_iter().flat_map(|d| (1..=300).map(move |r| (d, r)))
    {
        let mut data: Vec<u8> = (0..=255).collect();
        let want: Vec<u8> =
            (0..=255_u8).flat_map(|byte| encode(datatype, quotient(decode(datatype, &[byte]), ranks))).collect();
        let (count, room) = (data.len(), room(&mut data));
        combine(&[room], &[room.data()], count, datatype, RedOp::Avg, ranks, Store::Cached);
        assert_eq!(data, want, "{datatype:?} by {ranks}");
    }
}

/// Bytes as a room, for a call.
fn room(bytes: &mut [u8]) -> Room {
    // SAFETY: the bytes outlive the call, and are looked at again after it.
    unsafe { Room::new(bytes.as_mut_ptr(), bytes.len()) }
}

#[test]
fn one_input_is_copied_as_it_is() {
    // A NaN that carries something, and infinity, which a sum would make the largest finite number.
    let mut data = [0xff_u8, 0x7d, 0x7c];
    let mut out = [0; 3];
    combine(&[room(&mut out)], &[room(&mut data).data()], 3, Datatype::F8e5m2, RedOp::Sum, 0, Store::Cached);
    assert_eq!(out, data);
}

#[test]
fn nothing_is_done_without_inputs_or_outputs() {
    let mut data = [7_u8; 8];
    for store in STORES {
        let room = room(&mut data);
        combine(&[room], &[], 8, Datatype::Uint8, RedOp::Sum, 0, store);
        combine(&[], &[room.data(), room.data()], 8, Datatype::Uint8, RedOp::Sum, 0, store);
        combine(&[], &[room.data()], 8, Datatype::Uint8, RedOp::Sum, 0, store);
    }
    assert_eq!(data, [7; 8]);
}

#[test]
fn a_buffer_that_is_too_short_is_refused() {
    let (mut long, mut short) = ([7_u8; 8], [7_u8; 7]);
    let (long, short) = (room(&mut long), room(&mut short));
    let sum = |out: Room, ins: &[Room]| {
        let ins: Vec<_> = ins.iter().map(|one| one.data()).collect();
        std::panic::catch_unwind(|| combine(&[out], &ins, 8, Datatype::Uint8, RedOp::Sum, 0, Store::Cached)).is_err()
    };
    let refused = [sum(long, &[long, long]), sum(short, &[long, long]), sum(long, &[long, short]), sum(short, &[long])];
    assert_eq!(refused, [false, true, true, true]);
}

//! What is given, reduced by plain arithmetic of the type, is what is expected; and what is wrong is counted.

use super::*;
use crate::backend::{Combine, Device, Memory};
use busbw_collectives::Operation;
use proptest::prelude::*;

const REDOPS: [RedOp; 5] = [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::Avg];

/// A backend that only copies from and to the host's memory.
struct MemoryOnly;

impl Backend for MemoryOnly {
    fn name(&self) -> &'static str {
        "memory"
    }
    fn rank(&self) -> usize {
        0
    }
    fn nranks(&self) -> usize {
        1
    }
    fn describe(&self) -> Device {
        Device::default()
    }
    fn available_bytes(&self) -> u64 {
        u64::MAX
    }
    fn alloc(&mut self, _: usize) -> Result<Memory> {
        unreachable!("tests bring memory of their own")
    }
    fn run(&mut self, _: &Operation<'_>) -> Result<()> {
        Ok(())
    }
    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
    fn barrier(&mut self) -> Result<()> {
        Ok(())
    }
    fn all_reduce_f64(&mut self, _: &mut [f64], _: Combine) -> Result<()> {
        Ok(())
    }
    fn gather(&mut self, mine: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        Ok(Some(vec![mine.to_vec()]))
    }
}

/// Bytes as a room, for a call.
fn whole(bytes: &mut [u8]) -> Room {
    // SAFETY: the bytes outlive the call, and are looked at again after it.
    unsafe { Room::new(bytes.as_mut_ptr(), bytes.len()) }
}

/// Rounds to the type after every step, as an engine without wider registers would.
fn step(recipe: Recipe, a: u64, b: u64) -> u64 {
    let datatype = recipe.datatype;
    let Some((x, y)) = decode(datatype, a).zip(decode(datatype, b)) else {
        let bits = 8 * datatype.size();
        let extend = |v: u64| ((v << (64 - bits)) as i64 >> (64 - bits)) as i128;
        let signed = matches!(datatype, Datatype::Int8 | Datatype::Int32 | Datatype::Int64);
        let (x, y) = if signed { (extend(a), extend(b)) } else { (i128::from(a), i128::from(b)) };
        let result = match recipe.redop {
            RedOp::Prod => x.wrapping_mul(y),
            RedOp::Max => x.max(y),
            RedOp::Min => x.min(y),
            _ => x + y,
        };
        return result as u64 & (u64::MAX >> (64 - bits));
    };
    let result = match recipe.redop {
        RedOp::Prod => x * y,
        RedOp::Max => x.max(y),
        RedOp::Min => x.min(y),
        _ => x + y,
    };
    element::encode(datatype, result)
}

proptest! {
    /// Whatever the order of ranks, stepwise rounding gives the expected bits, or for averages stays within the bound.
    #[test]
    fn any_order_of_reducing_gives_what_is_expected(
        datatype in prop::sample::select(&Datatype::ALL[..]),
        redop in prop::sample::select(&REDOPS[..]),
        nranks in prop_oneof![1usize..20, 60usize..70, 300usize..310],
        index in 0usize..TABLE,
        seed: u64,
    ) {
        let recipe = Recipe { datatype, redop, nranks };
        let mut order: Vec<usize> = (0..nranks).collect();
        order.sort_by_key(|rank| mix(seed ^ *rank as u64));
        let total = order.into_iter().map(|rank| recipe.given(rank, index)).reduce(|a, b| step(recipe, a, b)).unwrap();
        let want = recipe.reduced(index);
        match (redop, decode(datatype, total), decode(datatype, want.bits)) {
            (RedOp::Avg, Some(sum), Some(mean)) => {
                let got = decode(datatype, element::encode(datatype, sum / nranks as f64)).unwrap();
                prop_assert!((got - mean).abs() <= want.bound, "{got} is not {mean} within {}", want.bound);
            }
            (RedOp::Avg, ..) => {
                let bits = 8 * datatype.size();
                let extended = ((total << (64 - bits)) as i64 >> (64 - bits)) as i128;
                let signed = matches!(datatype, Datatype::Int8 | Datatype::Int32 | Datatype::Int64);
                let mean = if signed { extended } else { i128::from(total) } / nranks as i128;
                prop_assert_eq!(mean as u64 & (u64::MAX >> (64 - bits)), want.bits);
            }
            _ => prop_assert_eq!(total, want.bits),
        }
    }

    /// Dividing each number before summing, as NCCL does, stays within the bound of an average.
    #[test]
    fn averages_may_divide_first(
        datatype in prop::sample::select(&Datatype::ALL[6..]),
        nranks in 1usize..40,
        index in 0usize..TABLE,
    ) {
        let recipe = Recipe { datatype, redop: RedOp::Avg, nranks };
        let rounded = |value: f64| decode(datatype, element::encode(datatype, value)).unwrap();
        let factor = rounded(1.0 / nranks as f64);
        let shares = (0..nranks).map(|rank| rounded(factor * decode(datatype, recipe.given(rank, index)).unwrap()));
        let got = shares.reduce(|a, b| rounded(a + b)).unwrap();
        let want = recipe.reduced(index);
        let exact = decode(datatype, want.bits).unwrap();
        prop_assert!((got - exact).abs() <= want.bound, "{got} is not {exact} within {}", want.bound);
    }

    /// One element, changed anywhere in its bits, is one wrong element.
    #[test]
    fn one_corrupt_element_counts_as_one(
        datatype in prop::sample::select(&Datatype::ALL[..]),
        redop in prop::sample::select(vec![None, Some(RedOp::Sum), Some(RedOp::Prod), Some(RedOp::Max), Some(RedOp::Avg)]),
        nranks in prop::sample::select(vec![1usize, 2, 4, 8]),
        count in 1usize..300_000,
        start in 0usize..5_000,
        at: prop::sample::Index,
        repetition in 0u64..100,
    ) {
        let mut data = Data::new(datatype, redop, 0, nranks);
        data.set_repetition(repetition);
        let stream = if redop.is_some() { Stream::Reduced } else { Stream::From(3) };
        let parts = [Part { stream, start, count }, Part { stream: Stream::Zero, start: 0, count: 7 }];
        let element = datatype.size() as usize;
        let mut room = vec![0xa5; (count + 7) * element];
        data.write(&mut MemoryOnly, &parts, whole(&mut room)).unwrap();
        let before = data.count_wrong(&mut MemoryOnly, &parts, whole(&mut room).data()).unwrap();
        room[at.index(count) * element] ^= 1;
        let after = data.count_wrong(&mut MemoryOnly, &parts, whole(&mut room).data()).unwrap();
        prop_assert_eq!((before, after), (0, 1));
    }
}

#[test]
fn repetitions_and_ranks_have_data_of_their_own() {
    let mut data = Data::new(Datatype::Float, None, 0, 2);
    let mut make = |repetition, rank| {
        data.set_repetition(repetition);
        let mut out = vec![0; 4096];
        data.make(Stream::From(rank), 0, &mut out);
        out
    };
    let (a, b, c) = (make(0, 0), make(1, 0), make(0, 1));
    assert!(a != b && a != c && b != c);
    assert_eq!(a, make(0, 0));
}

#[test]
fn a_result_that_is_no_number_is_wrong() {
    let mut data = Data::new(Datatype::Float, Some(RedOp::Avg), 0, 3);
    let parts = [Part { stream: Stream::Reduced, start: 0, count: 10 }];
    let mut room = vec![0u8; 40];
    data.write(&mut MemoryOnly, &parts, whole(&mut room)).unwrap();
    room[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
    let wrong = data.count_wrong(&mut MemoryOnly, &parts, whole(&mut room).data()).unwrap();
    assert_eq!(wrong, 1);
}

//! Selections compared with a sort: random, tied, constant, non-finite, empty and tiny tensors of every format.

#![allow(clippy::unwrap_used)]

use busbw_compress::{Bf16, Bits, F16, F32, F64, Format, Selection, TooMany, select_above, topk};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::num::NonZeroUsize;

/// Large enough for samples, candidates and several parts.
const LARGE: usize = 200_000;

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// Places in the order that the definition says: by magnitude, NaN first, then by place.
fn sorted<F: Format>(bits: &[F::Bits]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..bits.len()).collect();
    places.sort_by_key(|place| Reverse(F::key(bits[*place])));
    places
}

fn expected<F: Format>(bits: &[F::Bits], k: usize) -> Selection<F::Bits> {
    let mut places = sorted::<F>(bits);
    places.truncate(k);
    picked(bits, places)
}

fn picked<B: Bits>(bits: &[B], mut places: Vec<usize>) -> Selection<B> {
    places.sort_unstable();
    Selection {
        indices: places.iter().map(|place| *place as i64).collect(),
        values: places.iter().map(|place| bits[*place]).collect(),
    }
}

/// Numbers that are the same in every run: a normal distribution, roughly, as gradients have.
fn normal(elements: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..elements).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect()
}

/// Tensors with a name, as numbers.
fn tensors() -> Vec<(&'static str, Vec<f64>)> {
    let random = normal(LARGE, 1);
    let with = |every: usize, what: f64| -> Vec<f64> {
        random.iter().enumerate().map(|(place, x)| if place % every == 7 { what } else { *x }).collect()
    };
    vec![
        ("random", random.clone()),
        ("small integers", random.iter().map(|x| x.round()).collect()),
        ("constant", vec![-0.25; LARGE]),
        ("zero", vec![0.0; LARGE]),
        ("two values", random.iter().map(|x| x.signum()).collect()),
        (
            "zero but for 1 in 400",
            random.iter().enumerate().map(|(i, x)| if i % 400 == 3 { *x } else { 0.0 }).collect(),
        ),
        ("ascending", (0..LARGE).map(|i| i as f64 / 1e3).collect()),
        ("large in one place", (0..LARGE).map(|i| if i < 4000 { 1e3 + i as f64 } else { 1e-3 }).collect()),
        ("NaN", with(100, f64::NAN)),
        ("infinite", with(1000, f64::NEG_INFINITY)),
        ("all NaN", vec![f64::NAN; LARGE]),
        ("small numbers", random.iter().map(|x| x * 1e-7).collect()),
    ]
}

fn every_tensor<F: Format>(from: fn(f64) -> F::Bits) {
    for (name, numbers) in tensors() {
        let bits: Vec<F::Bits> = numbers.into_iter().map(from).collect();
        let places = sorted::<F>(&bits);
        for k in [1, 30, LARGE / 1000, LARGE / 100, LARGE / 3, LARGE - 1, LARGE] {
            let expected = picked(&bits, places[..k].to_vec());
            for count in [1, 3] {
                let found = topk::<F>(&bits, k, threads(count)).unwrap();
                assert!(found == expected, "{name}: {k} elements with {count} threads");
            }
        }
    }
}

#[test]
fn float32_tensors() {
    every_tensor::<F32>(|x| (x as f32).to_bits());
}

#[test]
fn float64_tensors() {
    every_tensor::<F64>(f64::to_bits);
}

#[test]
fn float16_tensors() {
    every_tensor::<F16>(|x| half::f16::from_f64(x).to_bits());
}

#[test]
fn bfloat16_tensors() {
    every_tensor::<Bf16>(|x| half::bf16::from_f64(x).to_bits());
}

#[test]
fn what_there_is_none_of() {
    assert_eq!(topk::<F32>(&[], 0, threads(2)), Ok(Selection::default()));
    assert_eq!(topk::<F32>(&[1, 2], 0, threads(2)), Ok(Selection::default()));
    assert_eq!(select_above::<F32>(&[], 0, threads(2)), Selection::default());
    assert_eq!(topk::<F32>(&[1, 2], 3, threads(2)), Err(TooMany { k: 3, elements: 2 }));
}

#[test]
fn nan_with_any_payload_and_sign_ties_and_comes_before_infinity() {
    let bits = [f32::INFINITY.to_bits(), 0x7fc0_0001, 0xffff_ffff, 0x7f80_0001, 0];
    assert_eq!(topk::<F32>(&bits, 2, threads(1)).unwrap().indices, [1, 2]);
    assert_eq!(topk::<F32>(&bits, 4, threads(1)).unwrap().indices, [0, 1, 2, 3]);
}

#[test]
fn above_a_threshold_means_larger() {
    let bits = [1.0f32, -2.0, 2.5, f32::NAN, 0.0, -f32::INFINITY].map(f32::to_bits);
    let above = |threshold: f32| select_above::<F32>(&bits, threshold.to_bits(), threads(2)).indices;
    assert_eq!(above(2.0), [2, 3, 5]);
    assert_eq!(above(-2.0), [2, 3, 5]);
    assert_eq!(above(0.0), [0, 1, 2, 3, 5]);
    assert_eq!(above(f32::INFINITY), [3]);
    assert_eq!(above(f32::NAN), [] as [i64; 0]);
}

proptest! {
    #[test]
    fn any_bits_of_float16(bits in prop::collection::vec(any::<u16>(), 0..300), share in 0.0..=1.0) {
        let k = (bits.len() as f64 * share) as usize;
        prop_assert_eq!(topk::<F16>(&bits, k, threads(2)).unwrap(), expected::<F16>(&bits, k));
    }

    #[test]
    fn any_bits_of_float64(bits in prop::collection::vec(any::<u64>(), 0..300), share in 0.0..=1.0) {
        let k = (bits.len() as f64 * share) as usize;
        prop_assert_eq!(topk::<F64>(&bits, k, threads(2)).unwrap(), expected::<F64>(&bits, k));
    }

    #[test]
    fn any_threshold(bits in prop::collection::vec(any::<u32>(), 0..300), threshold in any::<u32>()) {
        let larger: Vec<usize> = (0..bits.len()).filter(|i| F32::key(bits[*i]) > F32::key(threshold)).collect();
        prop_assert_eq!(select_above::<F32>(&bits, threshold, threads(2)), picked(&bits, larger));
    }
}

//! The wording of a line, as a number: lines differ in wording when they differ in more than digits.
//!
//! Every line of a program has its wording found, so this looks at eight bytes at a time.

use memchr::memchr_iter;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// A byte of one in each byte, and the highest bit of each.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * ONES;
const ZEROS: u64 = b'0' as u64 * ONES;
/// Odd and without a pattern: 2^64 over the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// A text of no length has this, so that zeros in front of a text count.
const START: u64 = 0x2545_f491_4f6c_dd1d;

/// The wording of a line, whatever blanks it begins and ends with. A number counts as one digit, of whatever digits it is.
pub(crate) fn wording(line: &[u8]) -> u64 {
    let (words, rest) = line.trim_ascii().as_chunks::<8>();
    let mut text = Text { hash: START, open: 0, length: 0, in_number: false };
    words.iter().for_each(|word| text.push(u64::from_le_bytes(*word), 8));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    text.push(u64::from_le_bytes(last), rest.len());
    text.finish()
}

/// A number for a line that is the same only for lines of its wording that begin and end with the same blanks.
pub(crate) fn with_blanks(line: &[u8], wording: u64) -> u64 {
    let behind = line.trim_ascii_start();
    let (before, after) = (&line[..line.len() - behind.len()], &behind[behind.trim_ascii_end().len()..]);
    if before.is_empty() && after.is_empty() { wording } else { FxBuildHasher.hash_one((wording, before, after)) }
}

/// A number for a message that is the same only for messages of its wording, and with the same numbers if one may be hexadecimal.
pub(crate) fn wording_without_hex(message: &[u8]) -> u64 {
    let is_hex = |at: usize| at > 0 && message[at - 1].is_ascii_digit();
    if memchr_iter(b'x', message).any(is_hex) { FxBuildHasher.hash_one(message) } else { wording(message) }
}

/// Where the first digit of a text stands.
pub(crate) fn first_digit(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    let in_word = |(at, word): (usize, &[u8; 8])| {
        let digits = digits(u64::from_le_bytes(*word));
        (digits != 0).then(|| 8 * at + digits.trailing_zeros() as usize / 8)
    };
    let in_rest = || Some(8 * words.len() + rest.iter().position(u8::is_ascii_digit)?);
    words.iter().enumerate().find_map(in_word).or_else(in_rest)
}

/// A text with one digit for each number.
pub(crate) fn without_numbers(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b'0'..=b'9' if plain.last() == Some(&b'0') => {}
            b'0'..=b'9' => plain.push(b'0'),
            other => plain.push(*other),
        }
    }
    plain
}

/// A text whose numbers have one digit, as it grows.
struct Text {
    hash: u64,
    /// The last bytes, which are no whole word.
    open: u64,
    length: u32,
    in_number: bool,
}

impl Text {
    /// Adds the first `length` bytes of a word, whose others are zero.
    #[inline(always)]
    fn push(&mut self, word: u64, length: usize) {
        let digits = digits(word);
        if digits == 0 {
            self.in_number &= length == 0;
            return self.add(word, length as u32);
        }
        // A digit behind a digit is left out.
        let left_out = digits & (digits << 8 | u64::from(self.in_number) << 7);
        self.in_number = digits >> (8 * length - 1) & 1 == 1;
        let numbers = bytes_of(digits);
        let mut kept = (word & !numbers) | (ZEROS & numbers);
        let mut rest = left_out;
        while rest != 0 {
            let last = 63 - rest.leading_zeros();
            let before = (1 << (last - 7)) - 1;
            kept = (kept & before) | (kept >> 8 & !before);
            rest ^= 1 << last;
        }
        self.add(kept, length as u32 - left_out.count_ones());
    }

    #[inline(always)]
    fn add(&mut self, bytes: u64, count: u32) {
        let filled = self.length % 8;
        self.open |= bytes << (8 * filled);
        if filled + count >= 8 {
            self.mix(self.open);
            self.open = bytes.checked_shr(64 - 8 * filled).unwrap_or(0);
        }
        self.length += count;
    }

    #[inline(always)]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word) * u128::from(FACTOR);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(mut self) -> u64 {
        self.mix(self.open);
        self.mix(u64::from(self.length));
        self.hash
    }
}

/// The highest bit of each byte that is a digit.
#[inline(always)]
fn digits(word: u64) -> u64 {
    let value = word ^ ZEROS;
    !(((value & !HIGH) + 0x76 * ONES) | value) & HIGH
}

/// All bits of the bytes whose highest is set.
#[inline(always)]
fn bytes_of(high: u64) -> u64 {
    (high >> 7) * 0xff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_outer_blanks_make_no_wording() {
        let one = wording(b"step 9 of 1000, loss 0.25");
        assert_eq!(one, wording(b"  step 412 of 7, loss 12.4242424242\t"));
        assert_ne!(one, wording(b"step 9 of 1000, loss .25"));
        assert_ne!(one, wording(b"step 9 of 1000, loss 0.25\0"));
        assert_ne!(wording(b""), wording(b"\0"));
        assert_eq!(with_blanks(b"step 9", 5), 5);
        assert_ne!(with_blanks(b" step 9", 5), with_blanks(b"step 9 ", 5));
        assert_eq!(with_blanks(b"\tstep 9 ", 5), with_blanks(b"\tstep 10 ", 5));
    }

    proptest! {
        #[test]
        fn a_wording_is_that_of_the_text_without_numbers(one in "[ a09:é]{0,40}", other in "[ a09:é]{0,40}") {
            let [one, other] = [&one, &other].map(|text| text.as_bytes().trim_ascii());
            let same = without_numbers(one) == without_numbers(other);
            prop_assert_eq!(wording(one) == wording(other), same);
            prop_assert_eq!(wording(one), wording(&without_numbers(one)));
            prop_assert_eq!(first_digit(one), one.iter().position(u8::is_ascii_digit));
        }
    }
}

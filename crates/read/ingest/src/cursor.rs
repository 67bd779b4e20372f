//! A cursor over the bytes of one message: the readers of NCCL's grammar are written with it.
//!
//! Its methods are always inlined: a literal then compares as a machine word, which halves the time of reading a line.

use busbw_model::SourceLine;
use memchr::memmem::Finder;
use std::borrow::Cow;

/// What is left to read of a message. Every method leaves the cursor where it was when it finds nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Cursor { rest: text }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether nothing but white space is left.
    pub fn at_end(&self) -> bool {
        self.rest.iter().all(u8::is_ascii_whitespace)
    }

    #[inline(always)]
    pub fn eat(&mut self, literal: &[u8]) -> bool {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    pub fn expect(&mut self, literal: &[u8]) -> Option<()> {
        self.eat(literal).then_some(())
    }

    /// Takes spaces, if any.
    #[inline(always)]
    pub fn spaces(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Takes a decimal number of up to 19 digits, which fit 64 bits.
    #[inline(always)]
    pub fn number(&mut self) -> Option<u64> {
        let mut value: u64 = 0;
        let mut taken = 0;
        while let Some(digit) = self.rest.get(taken).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            taken += 1;
        }
        if taken == 0 || taken > 19 {
            return None; // nothing, or more digits than fit for sure
        }
        self.rest = &self.rest[taken..];
        Some(value)
    }

    /// Takes a decimal number that fits a smaller type.
    #[inline(always)]
    pub fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        let mut ahead = *self;
        let value = T::try_from(ahead.number()?).ok()?;
        *self = ahead;
        Some(value)
    }

    /// Takes `-1` or a rank: `Some(None)` and `Some(Some(rank))`.
    #[inline(always)]
    pub fn rank_or_none(&mut self) -> Option<Option<u32>> {
        if self.eat(b"-1") { Some(None) } else { self.small().map(Some) }
    }

    /// Takes hexadecimal digits with an optional `0x`.
    #[inline(always)]
    pub fn hex(&mut self) -> Option<u64> {
        let mut ahead = *self;
        ahead.eat(b"0x");
        let digits = ahead.take_while(|b| b.is_ascii_hexdigit());
        let significant = digits.iter().skip_while(|digit| **digit == b'0');
        let (value, count) = significant.fold((0, 0), |(value, count): (u64, u32), digit| {
            // A letter's low bits count from 1.
            let digit = (digit & 0xf) + if digit.is_ascii_digit() { 0 } else { 9 };
            (value << 4 | u64::from(digit), count + 1)
        });
        if digits.is_empty() || count > u64::BITS / 4 {
            return None;
        }
        *self = ahead;
        Some(value)
    }

    /// Takes bytes while they please.
    #[inline(always)]
    pub fn take_while(&mut self, pleases: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| !pleases(b)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Takes everything up to white space.
    #[inline(always)]
    pub fn word(&mut self) -> &'a [u8] {
        self.take_while(|b| !b.is_ascii_whitespace())
    }

    /// Moves behind the next occurrence of a literal.
    pub fn skip_past(&mut self, literal: &Finder) -> Option<()> {
        let at = literal.find(self.rest)?;
        self.rest = &self.rest[at + literal.needle().len()..];
        Some(())
    }

    /// Takes a bracketed word: `[3]`, `[b000]`.
    #[inline(always)]
    pub fn bracketed(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        ahead.expect(b"[")?;
        let inner = ahead.take_while(|b| b != b']' && b != b'[');
        ahead.expect(b"]")?;
        *self = ahead;
        Some(inner)
    }
}

/// Bytes as text, bad UTF-8 replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    lossy(bytes).into_owned()
}

/// Bytes as text, bad UTF-8 replaced. The check of text that is whole is many times faster than the replacing.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// A searcher for a literal that is built once: building one takes longer than searching a line.
macro_rules! finder {
    ($literal:expr) => {{
        static FINDER: std::sync::LazyLock<memchr::memmem::Finder<'static>> =
            std::sync::LazyLock::new(|| memchr::memmem::Finder::new($literal));
        &*FINDER
    }};
}
pub(crate) use finder;

/// Where a part of a line begins in it.
pub(crate) fn offset(part: &[u8], line: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize).min(line.len())
}

/// The text of a line as it is kept for evidence.
pub(crate) fn kept(line: &[u8]) -> Box<str> {
    let enough = &line[..line.len().min(SourceLine::MAX_TEXT + 8)];
    lossy(enough).trim_end().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_stays_where_nothing_fits() {
        let mut cursor = Cursor::new(b"99999 rest");
        assert_eq!(cursor.small::<u16>(), None);
        assert_eq!(cursor.rest(), b"99999 rest");
        assert_eq!(cursor.small::<u32>(), Some(99999));
    }

    #[test]
    fn numbers_over_64_bits_are_none() {
        assert_eq!(Cursor::new(b"99999999999999999999999").number(), None);
        let cases: [(&[u8], _); 5] = [
            (b"0x55d46f97ABD0 rank", Some(0x55d4_6f97_abd0)),
            (b"00000000000000000000ff", Some(0xff)),
            (b"ffffffffffffffff", Some(u64::MAX)),
            (b"10000000000000000", None),
            (b"0x", None),
        ];
        cases.iter().for_each(|(text, value)| assert_eq!(Cursor::new(text).hex(), *value));
    }
}

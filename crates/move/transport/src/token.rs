//! A token: what a connection must show before it is let in.

use std::fmt;
use std::str::FromStr;

/// Sixteen bytes that only those know who may connect: the ranks of a job, or who was handed a listener's handle. Sent first on every connection; one without it is dropped.
#[derive(Clone, Copy)]
pub struct Token([u8; 16]);

impl Token {
    /// Bytes of a token on the wire.
    pub const SIZE: usize = 16;

    /// A new token from the system's random source.
    pub fn random() -> crate::Result<Self> {
        let mut bytes = [0; Self::SIZE];
        getrandom::fill(&mut bytes)
            .map_err(|e| crate::Error::Config(format!("the system gives no random bytes for a token: {e}")))?;
        Ok(Token(bytes))
    }

    /// A token from bytes that were agreed on elsewhere.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Token(bytes)
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8; Self::SIZE] {
        &self.0
    }

    /// Whether `shown` is this token, in a time that does not depend on where they differ.
    pub fn matches(&self, shown: &[u8]) -> bool {
        shown.len() == Self::SIZE && self.0.iter().zip(shown).fold(0, |different, (a, b)| different | (a ^ b)) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

impl fmt::Display for Token {
    /// 32 hexadecimal digits, to hand it on in an environment variable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = crate::Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        let wrong = || crate::Error::Config("a job token is 32 hexadecimal digits".into());
        // `from_str_radix` would also take a sign for a digit.
        if text.len() != 2 * Self::SIZE || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; Self::SIZE];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Token(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_text_back() {
        let token = Token::random().unwrap();
        assert!(token.to_string().parse::<Token>().unwrap().matches(token.as_bytes()));
        assert!(!token.matches(Token::random().unwrap().as_bytes()));
        assert!(!token.matches(&token.as_bytes()[..15]));
    }

    #[test]
    fn refuses_what_is_no_token() {
        for text in ["", "00", &"g".repeat(32), &"+f".repeat(16), &"é".repeat(16)] {
            assert!(text.parse::<Token>().is_err(), "{text:?}");
        }
    }
}

//! A token: what both ends of a connection must hold.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::str::FromStr;

/// Sixteen bytes that only those know who may connect: the ranks of a job, or who was handed a listener's handle. It never
/// travels on the connection that it protects: both ends prove that they hold it ([`crate::handshake`]).
#[derive(Clone, Copy)]
pub struct Token([u8; 16]);

impl Token {
    /// Bytes of a token.
    pub const SIZE: usize = 16;
    /// Bytes of a proof.
    pub const PROOF: usize = 32;

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

    /// The bytes, for where a secret may be kept: never for a connection.
    pub fn as_bytes(&self) -> &[u8; Self::SIZE] {
        &self.0
    }

    /// What only a holder of the token can say of these parts: HMAC-SHA256, with the token as key, over each part's length in
    /// eight bytes, the lowest first, and the part.
    pub fn prove(&self, parts: &[&[u8]]) -> [u8; Self::PROOF] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `proof` is what [`Token::prove`] gives, in a time that does not depend on where they differ.
    pub fn is_proven(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // A key as long as a block is used as it is; shorter ones are filled with zeros (RFC 2104, section 2).
        let mut key = [0; 64];
        key[..Self::SIZE].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&key.into());
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
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
    fn proves_as_hmac_sha256_does() {
        // By Python: hmac.new(b"\x0b" * 16, (8).to_bytes(8, "little") + b"Hi There", "sha256").hexdigest()
        let token = Token::from_bytes([0x0b; 16]);
        let proof = token.prove(&[b"Hi There"]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "33c46d64c7b87cd5ebcf1c5ce664ca9c512806abb6325a9ff3c297c1198550b0");
        assert!(token.is_proven(&[b"Hi There"], &proof));
        for (parts, proof) in [
            (&[&b"Hi"[..], b" There"][..], &proof[..]),
            (&[b"Hi There"], &proof[..31]),
            (&[b"Hi There"], b""),
            (&[b"hi There"], &proof),
        ] {
            assert!(!token.is_proven(parts, proof), "{parts:?}");
        }
    }

    #[test]
    fn refuses_what_is_no_token() {
        for text in ["", "00", &"g".repeat(32), &"+f".repeat(16), &"é".repeat(16)] {
            assert!(text.parse::<Token>().is_err(), "{text:?}");
        }
    }
}

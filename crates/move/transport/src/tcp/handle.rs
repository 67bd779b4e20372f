//! What a listener tells those who are to connect: where it listens, and which token to hold there.

use super::wire::PROTOCOL;
use crate::{Error, Result, Token};
use std::net::{IpAddr, SocketAddr};

const MAGIC: [u8; 4] = *b"BBTH";

/// Where a [`super::Listener`] listens, and the token that it lets in. NCCL hands such a handle from rank to rank over its own
/// bootstrap, whose readers it makes peers; between ranks that have the token already, it travels without
/// ([`Handle::without_token`]).
#[derive(Debug, Clone, Copy)]
pub struct Handle {
    address: SocketAddr,
    token: Option<Token>,
    checksum: bool,
    most_sockets: u8,
}

impl Handle {
    /// Bytes of a handle; NCCL allows 128.
    pub const SIZE: usize = 42;

    pub(super) fn new(address: SocketAddr, token: Token, checksum: bool, most_sockets: u8) -> Self {
        Handle { address, token: Some(token), checksum, most_sockets }
    }

    /// The address to connect to. A link-local address has the listener's scope, which means nothing on another host.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a connection must hold, unless that is known without.
    pub(super) fn token(&self) -> Option<Token> {
        self.token
    }

    /// The same, for a [`super::Net`] that was made with the listener's token: nothing in it is secret.
    pub fn without_token(self) -> Self {
        Handle { token: None, ..self }
    }

    /// Whether the listener wants checksums.
    pub(super) fn checksum(&self) -> bool {
        self.checksum
    }

    /// How many data sockets the listener has descriptors for.
    pub(super) fn most_sockets(&self) -> usize {
        self.most_sockets.max(1).into()
    }

    /// The handle as bytes, with zeros where it has no token, for [`Handle::from_bytes`] on another host.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&PROTOCOL.version.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.address.port().to_le_bytes());
        bytes[9] = u8::from(self.checksum) << 7 | self.most_sockets;
        if let Some(token) = &self.token {
            bytes[26..].copy_from_slice(token.as_bytes());
        }
        match self.address.ip() {
            IpAddr::V4(v4) => {
                bytes[8] = 4;
                bytes[10..14].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                bytes[8] = 6;
                bytes[10..26].copy_from_slice(&v6.octets());
            }
        }
        bytes
    }

    /// Reads a handle; bytes after it are ignored.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the bytes are no handle, or that of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = |what: &str| Error::Protocol { peer: "a rank".into(), what: what.into() };
        let bytes: &[u8; Self::SIZE] =
            bytes.first_chunk().ok_or_else(|| wrong("an address that is too short to be one"))?;
        if bytes[..4] != MAGIC {
            return Err(wrong("an address that is none"));
        }
        if bytes[4..6] != PROTOCOL.version.to_le_bytes() {
            return Err(wrong("the address of another version of busbw"));
        }
        let port = u16::from_le_bytes([bytes[6], bytes[7]]);
        let ip: IpAddr = match bytes[8] {
            4 => [bytes[10], bytes[11], bytes[12], bytes[13]].into(),
            6 => <[u8; 16]>::try_from(&bytes[10..26]).map_err(|_| wrong("an address that is none"))?.into(),
            _ => return Err(wrong("an address of an unknown family")),
        };
        let token = <[u8; Token::SIZE]>::try_from(&bytes[26..]).map_err(|_| wrong("an address that is none"))?;
        Ok(Handle {
            address: SocketAddr::new(ip, port),
            token: (token != [0; Token::SIZE]).then(|| Token::from_bytes(token)),
            checksum: bytes[9] & 0x80 != 0,
            most_sockets: bytes[9] & 0x7F,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_bytes_back() {
        for address in ["10.77.0.1:4711", "[fe80::1]:1", "[2001:db8::7]:65535"] {
            let handle = Handle::new(address.parse().unwrap(), Token::random().unwrap(), true, 16);
            let read = Handle::from_bytes(&handle.to_bytes()).unwrap();
            assert_eq!((read.address, read.checksum, read.most_sockets()), (handle.address, true, 16));
            assert!(read.token.unwrap().matches(handle.token.unwrap().as_bytes()));
            let open = Handle::from_bytes(&handle.without_token().to_bytes()).unwrap();
            assert!(open.token.is_none() && open.address == handle.address);
        }
    }

    #[test]
    fn refuses_what_is_no_handle() {
        let good = Handle::new("10.77.0.1:4711".parse().unwrap(), Token::from_bytes([7; 16]), false, 16).to_bytes();
        let changed = |at: usize| {
            let mut bytes = good;
            bytes[at] ^= 0x55;
            bytes.to_vec()
        };
        for (bytes, says) in [
            (good[..41].to_vec(), "too short"),
            (changed(0), "is none"),
            (changed(4), "another version"),
            (changed(8), "unknown family"),
        ] {
            let error = Handle::from_bytes(&bytes).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

//! What stands on the wire: what a socket says with its proof of the token, the header of an inline message, the header of a
//! chunk.

use super::failure::Failure;
use crate::handshake::Protocol;
use crc32c::crc32c;

/// The handshake of every socket. The version changes with every change of what stands on the wire.
pub(super) const PROTOCOL: Protocol = Protocol { magic: *b"busbwtcp", version: 4, payload: Hello::SIZE };

/// Reads fields one after another; the caller has checked the length.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        let (head, rest) = self.0.split_at(N);
        field.copy_from_slice(head);
        self.0 = rest;
        field
    }
}

/// Writes fields one after another.
struct Writer<const N: usize>([u8; N], usize);

impl<const N: usize> Writer<N> {
    fn new() -> Self {
        Writer([0; N], 0)
    }

    fn put(mut self, field: &[u8]) -> Self {
        self.0[self.1..self.1 + field.len()].copy_from_slice(field);
        self.1 += field.len();
        self
    }

    /// Writes the checksum of what was written.
    fn seal(self) -> Self {
        let sum = crc32c(&self.0[..self.1]);
        self.put(&sum.to_le_bytes())
    }
}

/// Whether the last four bytes are the checksum of those before.
fn sealed(bytes: &[u8]) -> bool {
    bytes.split_last_chunk().is_some_and(|(fields, sum)| crc32c(fields) == u32::from_le_bytes(*sum))
}

/// What each socket of a connection says with its proof.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hello {
    /// Which socket of the connection: 0 is the control socket.
    pub index: u16,
    /// How many data sockets the connection has.
    pub data_sockets: u16,
    /// Messages up to this size come inline, on the control socket.
    pub inline_up_to: u32,
    /// A random number that the sockets of one connection share.
    pub connection: u64,
    /// What the connector says the connection is for.
    pub purpose: u64,
    /// Whether messages carry checksums.
    pub checksum: bool,
}

impl Hello {
    pub const SIZE: usize = 26;

    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        Writer::new()
            .put(&self.index.to_le_bytes())
            .put(&self.data_sockets.to_le_bytes())
            .put(&self.inline_up_to.to_le_bytes())
            .put(&self.connection.to_le_bytes())
            .put(&self.purpose.to_le_bytes())
            .put(&u16::from(self.checksum).to_le_bytes())
            .0
    }

    /// `None` for what makes no sense.
    pub fn from_bytes(bytes: &[u8], most_sockets: usize) -> Option<Self> {
        let mut fields = Fields(bytes.first_chunk::<{ Self::SIZE }>()?);
        let hello = Hello {
            index: u16::from_le_bytes(fields.take()),
            data_sockets: u16::from_le_bytes(fields.take()),
            inline_up_to: u32::from_le_bytes(fields.take()),
            connection: u64::from_le_bytes(fields.take()),
            purpose: u64::from_le_bytes(fields.take()),
            checksum: u16::from_le_bytes(fields.take()) != 0,
        };
        let sockets = 1..=most_sockets;
        let possible = sockets.contains(&usize::from(hello.data_sockets)) && hello.index <= hello.data_sockets;
        possible.then_some(hello)
    }
}

/// Stands before each message of the control socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct InlineHeader {
    pub message: u64,
    pub len: u32,
    pub tag: u32,
    /// The checksum of the message, where one is asked for.
    pub sum: u32,
}

impl InlineHeader {
    pub const SIZE: usize = 24;

    /// `checked` with a checksum of the header itself.
    pub fn to_bytes(self, checked: bool) -> [u8; Self::SIZE] {
        let fields = Writer::new()
            .put(&self.message.to_le_bytes())
            .put(&self.len.to_le_bytes())
            .put(&self.tag.to_le_bytes())
            .put(&self.sum.to_le_bytes());
        if checked { fields.seal().0 } else { fields.0 }
    }

    pub fn from_bytes(bytes: &[u8; Self::SIZE], checked: bool) -> Result<Self, Failure> {
        check_header(bytes, checked)?;
        let mut fields = Fields(bytes);
        Ok(InlineHeader {
            message: u64::from_le_bytes(fields.take()),
            len: u32::from_le_bytes(fields.take()),
            tag: u32::from_le_bytes(fields.take()),
            sum: u32::from_le_bytes(fields.take()),
        })
    }
}

/// Stands before each chunk on a data socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkHeader {
    pub message: u64,
    /// Where in the message the chunk begins.
    pub offset: u64,
    /// Bytes of the whole message.
    pub total: u64,
    pub len: u32,
    pub tag: u32,
    /// The checksum of the chunk, where one is asked for.
    pub sum: u32,
}

impl ChunkHeader {
    pub const SIZE: usize = 40;

    /// `checked` with a checksum of the header itself.
    pub fn to_bytes(self, checked: bool) -> [u8; Self::SIZE] {
        let fields = Writer::new()
            .put(&self.message.to_le_bytes())
            .put(&self.offset.to_le_bytes())
            .put(&self.total.to_le_bytes())
            .put(&self.len.to_le_bytes())
            .put(&self.tag.to_le_bytes())
            .put(&self.sum.to_le_bytes());
        if checked { fields.seal().0 } else { fields.0 }
    }

    pub fn from_bytes(bytes: &[u8; Self::SIZE], checked: bool) -> Result<Self, Failure> {
        check_header(bytes, checked)?;
        let mut fields = Fields(bytes);
        Ok(ChunkHeader {
            message: u64::from_le_bytes(fields.take()),
            offset: u64::from_le_bytes(fields.take()),
            total: u64::from_le_bytes(fields.take()),
            len: u32::from_le_bytes(fields.take()),
            tag: u32::from_le_bytes(fields.take()),
            sum: u32::from_le_bytes(fields.take()),
        })
    }
}

/// A damaged header could say anything, also of which message it is.
fn check_header(bytes: &[u8], checked: bool) -> Result<(), Failure> {
    if checked && !sealed(bytes) { Err(Failure::Corrupt("a message's header".into())) } else { Ok(()) }
}

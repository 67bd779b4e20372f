//! The interface of every transport: NCCL's isend, irecv and test.

use crate::Result;

/// A posted send or receive of one connection: its number there, counted from 0 in the order of posting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(pub u64);

/// The sending end of a connection.
pub trait Sender: Send {
    /// Posts `len` bytes at `data`; `None` when too many requests are under way already, to be tried again after
    /// [`Sender::test`]. `tag` must be that of the receive it meets.
    ///
    /// # Safety
    /// The bytes stay readable and unchanged until the request is done.
    unsafe fn isend(&mut self, data: *const u8, len: usize, tag: u32) -> Result<Option<Request>>;

    /// Moves what can be moved, without waiting; then the size of the message if the request is done, `None` if not yet.
    fn test(&mut self, request: Request) -> Result<Option<usize>>;
}

/// The receiving end of a connection.
pub trait Receiver: Send {
    /// Posts room for at most `len` bytes; `None` when too many requests are under way already.
    ///
    /// # Safety
    /// The room stays writable, and is not looked at, until the request is done.
    unsafe fn irecv(&mut self, room: *mut u8, len: usize, tag: u32) -> Result<Option<Request>>;

    /// Moves what can be moved, without waiting; then the number of bytes received if the request is done, `None` if not yet.
    fn test(&mut self, request: Request) -> Result<Option<usize>>;
}

/// How the ranks of a job tell each other small things (addresses, handles) before they are connected.
pub trait Exchange {
    /// This rank's number among those that exchange.
    fn rank(&self) -> usize;

    /// How many ranks exchange.
    fn size(&self) -> usize;

    /// Gives `mine` to every rank and takes theirs: item `r` is what rank `r` gave. Every rank calls it, in the same order.
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;
}

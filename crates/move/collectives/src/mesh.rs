//! What an algorithm sees of the ranks: peers it can send to and receive from, without knowing by which transport.

use crate::{Data, Room};
use busbw_transport::Result;

/// A posted send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Index of the connection, in the mesh.
    pub connection: u32,
    /// Number of the request within its connection.
    pub number: u64,
}

/// Ranks that can reach one another. Rank numbers are those of the mesh: 0 to `size() - 1`.
///
/// Between two ranks, the messages of one lane arrive in the order in which they were sent; lanes are independent (a lane
/// is what NCCL calls a channel: several lanes use several connections, and several NICs where there are).
///
/// Posting never waits for the peer, not even for its connection: before it posts the other end, it may be waiting for what
/// this rank has still to send to a third.
pub trait Mesh {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// How many lanes there are between hosts; at least 1.
    fn lanes(&self) -> usize;

    /// Posts `data` to `peer`: nobody writes there until the request is done. Sizes of a send and its receive must be equal.
    fn send(&mut self, peer: usize, lane: usize, data: Data) -> Result<Request>;

    /// Posts room for as many bytes from `peer`: nobody looks at it until the request is done.
    fn receive(&mut self, peer: usize, lane: usize, room: Room) -> Result<Request>;

    /// Whether a request is done, after moving what can be moved. A request may be asked for again after it is done.
    fn test(&mut self, request: Request) -> Result<bool>;

    /// Waits until a request is done.
    fn wait(&mut self, request: Request) -> Result<()>;

    /// Called between passes over requests of which none has got on: gives the core to others, and fails when the job has
    /// failed.
    fn pause(&mut self) -> Result<()>;

    /// `len` bytes of this rank's own for chunks on their way, aligned to 64 bytes, the same place at each call of equal or
    /// smaller length. What they hold is lost with the next operation.
    fn scratch(&mut self, len: usize) -> Room;
}

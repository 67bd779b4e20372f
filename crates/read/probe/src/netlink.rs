//! Lists that the kernel gives over netlink(7): a request, and the pieces of its answer.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer};
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Of linux/netlink.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bytes of a message's header; what it says stands behind it.
pub const HEADER: usize = 16;

/// A socket to one part of the kernel.
pub struct Netlink(Socket);

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Netlink")
    }
}

impl Netlink {
    /// Opens a socket of a protocol of `netlink_sys::protocols`.
    ///
    /// # Errors
    /// The kernel lacks that part, or forbids such sockets, as containers may.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel has its answer ready when the request returns: an answer that is not there will not come.
        socket.set_non_blocking(true)?;
        Ok(Netlink(socket))
    }

    /// Asks for a list, and hands over the payload of each message of the answer, of at most so many pieces. `failed` says what an
    /// error's payload means.
    ///
    /// # Errors
    /// The socket's, those of `failed`, and an answer of more pieces.
    pub fn list(
        &mut self,
        request: &[u8],
        most_pieces: usize,
        failed: impl Fn(&[u8]) -> io::Result<()>,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.0.send(request, 0)?;
        for _ in 0..most_pieces {
            let (piece, _) = self.0.recv_from_full()?;
            let mut rest = &piece[..];
            while let Ok(message) = NetlinkBuffer::new_checked(rest) {
                match message.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return failed(message.payload()),
                    _ => each(message.payload()),
                }
                rest = rest.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
            }
        }
        Err(io::ErrorKind::FileTooLarge.into())
    }
}

/// A request for a list, with room for so many bytes behind its header.
pub fn request(kind: u16, room: usize) -> Vec<u8> {
    let length = HEADER + room;
    let mut bytes = vec![0; length];
    let mut message = NetlinkBuffer::new(&mut bytes);
    message.set_length(u32::try_from(length).unwrap_or_default());
    message.set_message_type(kind);
    message.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
    bytes
}

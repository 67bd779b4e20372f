//! The control socket of a receiving end: small messages, whole, one after the other.
//!
//! It is read into a buffer of our own, because a message may be smaller than its room: what the kernel wrote behind it
//! would be of the next one, and NCCL's rooms are not ours to scribble in. Only what is missing of a message whose beginning
//! is there goes straight into its room.

use super::failure::Failure;
use super::rooms::{Landing, ReceiveShared};
use super::socket::{self, Received};
use super::way_back::WayBack;
use super::wire::InlineHeader;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The control socket and what was read from it.
pub(super) struct Control {
    fd: Arc<OwnedFd>,
    /// Who sends on it as well.
    way: Option<WayBack>,
    /// The message before was answered on the same socket.
    answered: bool,
    ended: bool,
    buffer: Box<[u8]>,
    /// What is in the buffer and not used yet lies from `from` to `to`.
    from: usize,
    to: usize,
    landing: Option<Landing>,
    /// What was read last is still in the socket too: the last so many bytes of the buffer.
    unacknowledged: usize,
    /// Messages that landed since.
    landed: u32,
}

/// What a step came to.
pub(super) enum Step {
    /// So many bytes moved.
    Moved(usize),
    /// Nothing can be done now.
    Nothing,
}

impl Control {
    /// Room for some messages of the smallest kinds. What is longer is copied only so far.
    const BUFFER: usize = 8 << 10;

    pub fn new(fd: Arc<OwnedFd>, way: Option<WayBack>) -> Self {
        let buffer = vec![0; Self::BUFFER].into_boxed_slice();
        Control {
            fd,
            way,
            answered: false,
            ended: false,
            buffer,
            from: 0,
            to: 0,
            landing: None,
            unacknowledged: 0,
            landed: 0,
        }
    }

    /// Whether the peer has closed it, and all that came before is used.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Lets the connection that goes the other way send on it.
    pub fn lend(&mut self, way: &WayBack) {
        way.lend(&self.fd);
        self.way = Some(way.clone());
    }

    /// Where it comes from.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Whether the next step needs the socket.
    pub fn reads_next(&self) -> bool {
        self.landing.is_some() || self.to - self.from < InlineHeader::SIZE
    }

    /// Whether a message has landed that is still to be acknowledged: to whoever waits for it, it comes first.
    pub fn owes(&self) -> bool {
        self.unacknowledged > 0
    }

    /// Lands what is buffered, or else reads.
    pub fn step(&mut self, shared: &ReceiveShared) -> Result<Step, Failure> {
        if self.landing.is_none() {
            match self.buffer[self.from..self.to].first_chunk() {
                Some(header) => return self.begin(InlineHeader::from_bytes(header, shared.checked)?, shared),
                None if self.ended => return Ok(Step::Nothing),
                None => {}
            }
        }
        self.read(shared)
    }

    /// A header is there: lands what is there of its message.
    fn begin(&mut self, header: InlineHeader, shared: &ReceiveShared) -> Result<Step, Failure> {
        let len = header.len as usize;
        let Some(room) = shared.begin(header.message, len, header.tag)? else { return Ok(Step::Nothing) };
        shared.claim(header.message, &room, 0, len)?;
        self.from += InlineHeader::SIZE;
        let mut landing = Landing::new(header.message, &room, 0, len, header.sum);
        let there = len.min(self.to - self.from);
        let early = &self.buffer[self.from..self.from + there];
        // SAFETY: the room has `len` writable bytes, by the promise of `irecv`, and is none of ours.
        unsafe { std::ptr::copy_nonoverlapping(early.as_ptr(), landing.rest().0, there) };
        self.from += there;
        if landing.land(there, shared)? {
            self.landed()?;
        } else {
            self.landing = Some(landing);
            self.acknowledge()?;
        }
        Ok(Step::Moved(InlineHeader::SIZE + there))
    }

    /// One receive: what is missing of a message, and what comes behind it.
    fn read(&mut self, shared: &ReceiveShared) -> Result<Step, Failure> {
        let Some(landing) = &mut self.landing else { return self.look() };
        let (next, missing) = landing.rest();
        (self.from, self.to) = (0, 0);
        let mut parts = [socket::part(next, missing), socket::part(self.buffer.as_mut_ptr(), self.buffer.len())];
        // SAFETY: the room is writable by the promise of `irecv`, and only the control socket brings this message; the
        // buffer is ours, and all of it was used.
        match unsafe { socket::receive(&self.fd, &mut parts, 0) }? {
            Received::Bytes(received) => {
                self.to = received.saturating_sub(missing);
                if landing.land(received.min(missing), shared)? {
                    self.landed()?;
                }
                Ok(Step::Moved(received))
            }
            Received::Nothing => Ok(Step::Nothing),
            Received::Ended => Err(Failure::Closed),
        }
    }

    /// Reads what is there into the buffer, and leaves it in the socket, unless an answer carries its acknowledgement.
    fn look(&mut self) -> Result<Step, Failure> {
        let begin = self.from.min(self.to - self.unacknowledged);
        self.buffer.copy_within(begin..self.to, 0);
        (self.from, self.to) = (self.from - begin, self.to - begin);
        let free = &mut self.buffer[self.to - self.unacknowledged..];
        let mut parts = [socket::part(free.as_mut_ptr(), free.len())];
        let leave = if self.answered && self.unacknowledged == 0 { 0 } else { libc::MSG_PEEK };
        // SAFETY: the buffer is ours.
        match unsafe { socket::receive(&self.fd, &mut parts, leave) }? {
            Received::Bytes(there) if there > self.unacknowledged => {
                let moved = there - self.unacknowledged;
                self.to += moved;
                self.unacknowledged = if leave == 0 { 0 } else { there };
                Ok(Step::Moved(moved))
            }
            Received::Nothing | Received::Bytes(_) => {
                self.acknowledge()?;
                Ok(Step::Nothing)
            }
            Received::Ended if self.to > self.from => Err(Failure::Closed),
            Received::Ended => {
                self.ended = true;
                Ok(Step::Nothing)
            }
        }
    }

    fn landed(&mut self) -> Result<(), Failure> {
        self.landing = None;
        self.answered = self.way.as_ref().is_some_and(WayBack::answered);
        self.landed += 1;
        // Two that nobody acknowledges, where nobody asks for more either, are sent again within milliseconds (TCP's tail loss
        // probe); one waits for longer than the kernel delays its acknowledgement.
        if self.landed > 1 { self.acknowledge() } else { Ok(()) }
    }

    /// Takes out of the socket what was read of it.
    ///
    /// Bytes go one way only, so that no answer carries TCP's acknowledgements: the kernel sends a packet for them when the
    /// socket is emptied, which costs as much as a message. So it is done when nothing else is there to do: while the answer
    /// is on its way.
    fn acknowledge(&mut self) -> Result<(), Failure> {
        self.landed = 0;
        while self.unacknowledged > 0 {
            let again = &mut self.buffer[self.to - self.unacknowledged..self.to];
            let mut parts = [socket::part(again.as_mut_ptr(), again.len())];
            // SAFETY: the buffer is ours; the same bytes come to the same place.
            match unsafe { socket::receive(&self.fd, &mut parts, 0) }? {
                Received::Bytes(received) => self.unacknowledged -= received,
                Received::Nothing | Received::Ended => self.unacknowledged = 0,
            }
        }
        Ok(())
    }
}

impl Drop for Control {
    /// A socket that is closed with bytes in it resets the connection.
    fn drop(&mut self) {
        let _ = self.acknowledge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::GroupedRoom;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// A control socket whose peer sends `messages`, the rooms that these land in, and the peer.
    fn control(messages: &[&str]) -> (Control, ReceiveShared, Vec<Vec<u8>>, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let shared = ReceiveShared::new(false);
        let mut rooms: Vec<_> = messages.iter().map(|text| vec![0; text.len()]).collect();
        for (message, (text, room)) in (0..).zip(messages.iter().zip(&mut rooms)) {
            shared.post(message, &[GroupedRoom { data: room.as_mut_ptr(), len: room.len(), tag: 0 }]);
            let header = InlineHeader { message, len: text.len() as u32, tag: 0, sum: 0 };
            theirs.write_all(&[&header.to_bytes(false)[..], text.as_bytes()].concat()).unwrap();
        }
        (Control::new(Arc::new(ours.into()), None), shared, rooms, theirs)
    }

    /// How many bytes are in its socket.
    fn in_socket(control: &Control) -> usize {
        let mut bytes = [0; 256];
        let mut parts = [socket::part(bytes.as_mut_ptr(), bytes.len())];
        // SAFETY: the bytes are of this stack.
        match unsafe { socket::receive(&control.fd, &mut parts, libc::MSG_PEEK) }.unwrap() {
            Received::Bytes(there) => there,
            Received::Nothing | Received::Ended => 0,
        }
    }

    fn moves(control: &mut Control, shared: &ReceiveShared) -> bool {
        matches!(control.step(shared).unwrap(), Step::Moved(_))
    }

    #[test]
    fn one_message_is_acknowledged_once_nothing_else_is_there() {
        let (mut control, shared, rooms, _peer) = control(&["one"]);
        while !control.owes() || !control.reads_next() {
            assert!(moves(&mut control, &shared));
        }
        assert_eq!((rooms, in_socket(&control)), (vec![b"one".to_vec()], InlineHeader::SIZE + 3));
        assert!(!moves(&mut control, &shared));
        assert_eq!(in_socket(&control), 0);
    }

    #[test]
    fn two_messages_are_acknowledged_at_once() {
        let (mut control, shared, rooms, _peer) = control(&["one", "three"]);
        while shared.complete(1).is_none() {
            assert!(moves(&mut control, &shared));
        }
        assert_eq!((rooms, in_socket(&control)), (vec![b"one".to_vec(), b"three".to_vec()], 0));
    }

    #[test]
    fn a_header_may_come_in_two_parts_behind_a_message() {
        let (mut control, shared, mut rooms, mut peer) = control(&["one"]);
        let mut room = vec![0; 5];
        shared.post(1, &[GroupedRoom { data: room.as_mut_ptr(), len: room.len(), tag: 0 }]);
        let header = InlineHeader { message: 1, len: 5, tag: 0, sum: 0 }.to_bytes(false);
        peer.write_all(&header[..10]).unwrap();
        while moves(&mut control, &shared) {}
        assert_eq!(in_socket(&control), 0);
        peer.write_all(&[&header[10..], b"three"].concat()).unwrap();
        drop(peer);
        while moves(&mut control, &shared) {}
        rooms.push(room);
        assert_eq!(rooms, [b"one".to_vec(), b"three".to_vec()]);
        assert!(!moves(&mut control, &shared) && control.ended());
    }
}

//! Frames: how processes of a job say whole messages over a stream. A frame is the length of a message in four bytes, the
//! lowest first, and then the message as postcard writes it.

use serde::{Serialize, de::DeserializeOwned};
use std::io::{Error, ErrorKind, Read, Result};

/// Bytes of the length.
const LENGTH: usize = 4;

/// A message as a frame.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a message of more than `LONGEST` bytes, which the other side would refuse.
pub fn frame<const LONGEST: usize>(message: &impl Serialize) -> Result<Vec<u8>> {
    let wrong = |what: String| Error::new(ErrorKind::InvalidInput, what);
    let mut bytes = postcard::to_extend(message, vec![0; LENGTH]).map_err(|e| wrong(e.to_string()))?;
    let length = bytes.len() - LENGTH;
    match u32::try_from(length) {
        Ok(told) if length <= LONGEST => bytes[..LENGTH].copy_from_slice(&told.to_le_bytes()),
        _ => return Err(wrong(format!("a message of {length} bytes is too long (at most {LONGEST})"))),
    }
    Ok(bytes)
}

/// Waits for a frame, and reads not a byte more.
///
/// # Errors
/// The stream's; [`ErrorKind::InvalidData`] for what is no frame of at most `LONGEST` bytes.
pub fn read<const LONGEST: usize, T: DeserializeOwned>(stream: &mut impl Read) -> Result<T> {
    let mut inbox = Inbox::new(LONGEST);
    let mut bytes = vec![0; LENGTH];
    loop {
        stream.read_exact(&mut bytes)?;
        inbox.push(&bytes);
        if let Some(message) = inbox.message().map_err(|what| Error::new(ErrorKind::InvalidData, what))? {
            return Ok(message);
        }
        bytes.resize(inbox.missing(), 0);
    }
}

/// Bytes that arrived, to be taken out as frames.
pub struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
    longest: usize,
}

impl Inbox {
    /// For messages of at most `longest` bytes: one that says it is longer is refused when its length is there.
    pub fn new(longest: usize) -> Self {
        Inbox { bytes: Vec::new(), taken: 0, longest }
    }

    /// Takes longer messages, or shorter ones only, from now on.
    pub fn set_longest(&mut self, longest: usize) {
        self.longest = longest;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, once it is whole. `Err` says what came that is none.
    pub fn message<T: DeserializeOwned>(&mut self) -> std::result::Result<Option<T>, String> {
        let Some((length, rest)) = self.begun() else { return Ok(None) };
        if length > self.longest {
            return Err(format!("a frame of {length} bytes"));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let message = postcard::from_bytes(frame).map_err(|e| format!("a frame that cannot be read ({e})"))?;
        self.taken += LENGTH + length;
        Ok(Some(message))
    }

    /// The length of the next message, and what is there of it.
    fn begun(&self) -> Option<(usize, &[u8])> {
        let (length, rest) = self.bytes[self.taken..].split_first_chunk::<LENGTH>()?;
        Some((u32::from_le_bytes(*length) as usize, rest))
    }

    /// Bytes that the next message lacks.
    fn missing(&self) -> usize {
        self.begun().map_or(LENGTH, |(length, rest)| length.saturating_sub(rest.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Message = (u64, String);

    /// Longer than any of them.
    const LONGEST: usize = 200;

    fn messages() -> [Message; 3] {
        [(1 << 40, "a".into()), (0, String::new()), (7, "b".repeat(100))]
    }

    #[test]
    fn frames_arrive_whole_however_they_are_cut() {
        let bytes: Vec<u8> = messages().iter().flat_map(|message| frame::<LONGEST>(message).unwrap()).collect();
        for cut in 0..bytes.len() {
            let mut inbox = Inbox::new(LONGEST);
            let mut seen = Vec::new();
            for piece in [&bytes[..cut], &bytes[cut..]] {
                inbox.push(piece);
                while let Some(message) = inbox.message::<Message>().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, messages());
        }
    }

    #[test]
    fn a_reader_takes_one_frame_and_leaves_the_next() {
        let bytes: Vec<u8> = messages().iter().flat_map(|message| frame::<LONGEST>(message).unwrap()).collect();
        let mut stream = &bytes[..];
        for message in messages() {
            assert_eq!(read::<LONGEST, Message>(&mut stream).unwrap(), message);
        }
        assert_eq!(read::<LONGEST, Message>(&mut stream).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_frame_is_refused_on_either_side() {
        for bytes in [&[255, 255, 255, 255, 0][..], &[1, 0, 0, 0, 99], b"GET / HTTP/1.1\r\n\r\n"] {
            let mut inbox = Inbox::new(LONGEST);
            inbox.push(bytes);
            assert!(inbox.message::<Message>().is_err(), "{bytes:?}");
            assert_eq!(read::<LONGEST, Message>(&mut &bytes[..]).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        let error = frame::<50>(&messages()[2]).unwrap_err().to_string();
        assert_eq!(error, "a message of 102 bytes is too long (at most 50)");
    }
}

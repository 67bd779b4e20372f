//! What a peer sends over the sockets of a TCP connection, against posted rooms: chunks that overlap, lie outside, are of the
//! wrong size, message or tag, and any bytes.
//!
//! Beyond not panicking: a room whose request is done is its owner's again, so nothing may be written there (it is freed, which the
//! sanitizer watches), and every byte of its message has come.

#![no_main]

use busbw_transport::tcp::fuzzing::receiver;
use busbw_transport::tcp::{GroupedRoom, RecvComm};
use busbw_transport::{Receiver, Request};
use crc32c::crc32c;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::os::unix::net::UnixStream;

const INLINE_UP_TO: usize = 64;
const DATA_SOCKETS: usize = 2;
/// What every byte of a message is; rooms are zero before.
const SENT: u8 = 0xab;

#[derive(Arbitrary, Debug)]
struct Connection {
    checksum: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Tags and sizes of rooms.
    Post(Vec<(u8, u16)>),
    Inline {
        message: u8,
        tag: u8,
        len: u8,
        sent: u8,
    },
    Chunk {
        socket: u8,
        message: u8,
        tag: u8,
        offset: u16,
        total: u16,
        len: u16,
        sent: u16,
    },
    /// Numbers that no honest peer says.
    Huge {
        message: u64,
        offset: u64,
        total: u64,
        len: u32,
        tag: u32,
    },
    Bytes {
        socket: u8,
        bytes: Vec<u8>,
    },
    Test,
    Close {
        socket: u8,
    },
}

struct Posted {
    request: Request,
    rooms: Vec<Box<[u8]>>,
}

fuzz_target!(|connection: Connection| run(&connection));

fn run(connection: &Connection) {
    let (theirs, ours): (Vec<_>, Vec<_>) =
        (0..=DATA_SOCKETS).map(|_| UnixStream::pair().expect("a pair of sockets")).unzip();
    for socket in theirs.iter().chain(&ours) {
        socket.set_nonblocking(true).expect("a socket that does not block");
    }
    let mut ours = ours.into_iter().map(Into::into);
    let control = ours.next().expect("the control socket");
    let mut receiver = receiver(control, ours.collect(), INLINE_UP_TO, connection.checksum).expect("a receiver");
    let (mut posted, mut honest, mut cut) = (Vec::new(), true, [false; 1 + DATA_SOCKETS]);
    for step in &connection.steps {
        let (socket, bytes, whole) = match step {
            Step::Post(rooms) => {
                post(&mut receiver, rooms, &mut posted);
                continue;
            }
            Step::Test => {
                if test(&mut receiver, &mut posted, honest).is_err() {
                    return;
                }
                continue;
            }
            Step::Close { socket } => {
                let _ = theirs[usize::from(*socket) % theirs.len()].shutdown(std::net::Shutdown::Both);
                continue;
            }
            Step::Inline { message, tag, len, sent } => {
                (0, inline(connection.checksum, *message, *tag, *len, *sent), sent >= len)
            }
            Step::Chunk { socket, message, tag, offset, total, len, sent } => {
                let numbers = [(*message).into(), (*offset).into(), (*total).into()];
                let chunk = chunk(connection.checksum, numbers, (*len).into(), (*tag).into(), (*sent).into());
                (1 + usize::from(*socket) % DATA_SOCKETS, chunk, sent >= len)
            }
            Step::Huge { message, offset, total, len, tag } => {
                (1, chunk(connection.checksum, [*message, *offset, *total], *len, *tag, 100), *len <= 100)
            }
            Step::Bytes { socket, bytes } => {
                honest = false;
                (usize::from(*socket) % theirs.len(), bytes.clone(), true)
            }
        };
        // What follows a message that was cut is taken for its rest, and what was not sent whole has a rest that is of no header.
        honest &= !cut[socket] && (&theirs[socket]).write(&bytes).is_ok_and(|count| count == bytes.len());
        cut[socket] |= !whole;
    }
    let _ = test(&mut receiver, &mut posted, honest);
}

fn post(receiver: &mut RecvComm, wanted: &[(u8, u16)], posted: &mut Vec<Posted>) {
    let mut rooms: Vec<Box<[u8]>> = wanted.iter().map(|(_, len)| vec![0; usize::from(*len) % 5000].into()).collect();
    let grouped: Vec<GroupedRoom> = rooms
        .iter_mut()
        .zip(wanted)
        .map(|(room, (tag, _))| GroupedRoom { data: room.as_mut_ptr(), len: room.len(), tag: (*tag).into() })
        .collect();
    // SAFETY: rooms live until their request is done or the receiver has ended.
    if let Ok(Some(request)) = unsafe { receiver.irecv_group(&grouped) } {
        posted.push(Posted { request, rooms });
    }
}

/// Tests all requests, and frees the rooms of those that are done.
fn test(receiver: &mut RecvComm, posted: &mut Vec<Posted>, honest: bool) -> Result<(), ()> {
    for _ in 0..4 {
        for at in (0..posted.len()).rev() {
            let done = receiver.test(posted[at].request).map_err(drop)?;
            if done.is_none() {
                continue;
            }
            let Posted { request, rooms } = posted.swap_remove(at);
            let sizes: Vec<usize> = receiver.sizes(request, rooms.len()).collect();
            for (room, size) in rooms.iter().zip(sizes) {
                assert!(size <= room.len(), "a message of {size} bytes in a room of {}", room.len());
                assert!(!honest || room[..size].iter().all(|&byte| byte == SENT), "a message that is not all there");
            }
        }
    }
    Ok(())
}

fn inline(checksum: bool, message: u8, tag: u8, len: u8, sent: u8) -> Vec<u8> {
    let data = vec![SENT; len.into()];
    let header = [
        &u64::from(message).to_le_bytes()[..],
        &u32::from(len).to_le_bytes(),
        &u32::from(tag).to_le_bytes(),
        &crc32c(&data).to_le_bytes(),
    ];
    with_header(checksum, header.concat(), &data[..data.len().min(sent.into())])
}

fn chunk(checksum: bool, [message, offset, total]: [u64; 3], len: u32, tag: u32, sent: usize) -> Vec<u8> {
    let data = vec![SENT; (len as usize).min(70_000)];
    let header = [
        &message.to_le_bytes()[..],
        &offset.to_le_bytes(),
        &total.to_le_bytes(),
        &len.to_le_bytes(),
        &tag.to_le_bytes(),
        &crc32c(&data).to_le_bytes(),
    ];
    with_header(checksum, header.concat(), &data[..data.len().min(sent)])
}

/// A header whose own checksum is right, or none: nobody would find one by chance.
fn with_header(checksum: bool, header: Vec<u8>, data: &[u8]) -> Vec<u8> {
    let sum = if checksum { crc32c(&header) } else { 0 };
    [&header[..], &sum.to_le_bytes(), data].concat()
}

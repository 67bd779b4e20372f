//! What a rank of the same host says over its socket and in the memory that it shares: windows that are not there, descriptors
//! of memory that can shrink, headers of messages that cannot be.

#![no_main]

use busbw_transport::shm::fuzzing::{PeerHeader, pair};
use busbw_transport::{Receiver, Request};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::os::fd::OwnedFd;

#[derive(Arbitrary, Debug)]
struct Connection {
    cross_memory: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Receive { len: u16, tag: u8 },
    Publish { len: u16, window: u8, offset: u16, tag: u8, carried: u8 },
    Anything { len: u64, window: u64, offset: u64, tag: u32, carried: u32 },
    Chunks(u8),
    Window { id: u8, pages: u8 },
    Words { words: Vec<u64>, memory: Option<Memory> },
    Message { kind: u8, id: u8, bytes: u16, memory: Option<Memory> },
    Bytes(Vec<u8>),
    Boast,
    Test,
}

#[derive(Arbitrary, Debug)]
struct Memory {
    bytes: u16,
    sealed: bool,
}

impl Memory {
    fn file(&self) -> OwnedFd {
        let file = memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("memory");
        nix::unistd::ftruncate(&file, self.bytes.into()).expect("a size");
        if self.sealed {
            fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("a seal");
        }
        file
    }
}

fuzz_target!(|connection: Connection| run(&connection));

fn run(connection: &Connection) {
    let (mut stranger, mut receiver) = pair(connection.cross_memory).expect("a pair");
    let mut posted: Vec<(Request, Box<[u8]>)> = Vec::new();
    // More would wait for the rank to read.
    for step in connection.steps.iter().take(200) {
        match step {
            Step::Receive { len, tag } => {
                let mut room: Box<[u8]> = vec![0; (*len).into()].into();
                // SAFETY: the room lives until its request is done or the receiver has ended.
                let request = unsafe { receiver.irecv(room.as_mut_ptr(), room.len(), (*tag).into()) };
                if let Ok(Some(request)) = request {
                    posted.push((request, room));
                }
            }
            Step::Publish { len, window, offset, tag, carried } => {
                let (len, window, offset) = ((*len).into(), (*window).into(), (*offset).into());
                stranger.publish(PeerHeader { len, window, offset, tag: (*tag).into(), carried: u32::from(*carried) % 5 });
            }
            Step::Anything { len, window, offset, tag, carried } => {
                let (len, window, offset, tag, carried) = (*len, *window, *offset, *tag, *carried);
                stranger.publish(PeerHeader { len, window, offset, tag, carried });
            }
            Step::Chunks(filled) => stranger.fill((*filled).into()),
            Step::Window { id, pages } => drop(stranger.show((*id).into(), (usize::from(*pages) % 8) << 12)),
            Step::Words { words, memory } => {
                let bytes: Vec<u8> = words.iter().take(60).flat_map(|word| word.to_ne_bytes()).collect();
                let _ = stranger.send(&bytes, memory.as_ref().map(Memory::file).as_ref());
            }
            Step::Message { kind, id, bytes, memory } => {
                let words = [u64::from(*kind) % 6, (*id).into(), (*bytes).into()];
                let _ = stranger
                    .send(words.map(u64::to_ne_bytes).as_flattened(), memory.as_ref().map(Memory::file).as_ref());
            }
            Step::Bytes(bytes) => drop(stranger.send(&bytes[..bytes.len().min(600)], None::<&OwnedFd>)),
            Step::Boast => stranger.boast(),
            Step::Test => {
                // Requests are done in their order.
                while let Some((request, room)) = posted.first() {
                    match receiver.test(*request) {
                        Ok(Some(size)) => assert!(size <= room.len(), "{size} bytes in a room of {}", room.len()),
                        Ok(None) => break,
                        Err(_) => return,
                    }
                    posted.remove(0);
                }
            }
        }
    }
}

//! What ranks that were let in say to the rendezvous server, in any order and number: messages of the protocol with any numbers, and
//! any bytes. What the server answers must be messages. The same bytes are what a server may say to a rank.

#![no_main]

use busbw_launch::frames::frame;
use busbw_launch::fuzzing::{Next, converse, told};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;

const FLAGS: &str = "all_reduce -b 8";

#[derive(Arbitrary, Debug)]
struct Job {
    size: u8,
    /// Whether all ranks have come as they should before the rest follows.
    complete: bool,
    said: Vec<RankInput>,
}

#[derive(Arbitrary, Debug)]
struct RankInput {
    connection: u8,
    milliseconds: u16,
    what: InputKind,
}

#[derive(Arbitrary, Debug)]
enum InputKind {
    Message(Message),
    /// A part of a step that others may know of too.
    Part {
        number: u8,
        step: Step,
        members: u8,
        index: u8,
        data: Vec<u8>,
    },
    Bytes(Vec<u8>),
    End,
}

/// `ToServer`, which postcard writes by the order of variants and fields.
#[derive(Arbitrary, Debug, Serialize)]
enum Message {
    Hello { rank: u32, size: u32, info: RankInfo },
    Beat { progress: u64, waiting: bool },
    Give(Part),
    Fail(String),
    Goodbye,
}

#[derive(Arbitrary, Debug, Serialize)]
struct RankInfo {
    host: String,
    pid: u32,
    flags: String,
    host_id: u64,
    address: IpAddr,
}

#[derive(Arbitrary, Debug, Serialize, Clone, Copy)]
enum Step {
    AllGather,
    Barrier,
    Gather(u32),
}

#[derive(Arbitrary, Debug, Serialize)]
struct Part {
    key: Key,
    step: Step,
    members: u32,
    index: u32,
    data: Vec<u8>,
}

#[derive(Arbitrary, Debug, Serialize)]
struct Key {
    group: Vec<(u32, i64)>,
    number: u64,
}

fuzz_target!(|job: Job| {
    let size = usize::from(job.size % 5) + 1;
    let arrivals = (0..if job.complete { size } else { 0 }).map(|rank| {
        let info = RankInfo {
            host: format!("node{rank}"),
            pid: 1,
            flags: FLAGS.into(),
            host_id: rank as u64 % 3,
            address: IpAddr::from([10, 0, 0, 1]),
        };
        (rank, Duration::ZERO, message(&Message::Hello { rank: rank as u32, size: size as u32, info }))
    });
    let said = job.said.iter().map(|said| {
        let next = match &said.what {
            InputKind::Message(said) => message(said),
            InputKind::Part { number, step, members, index, data } => {
                let key = Key { group: Vec::new(), number: (number % 3).into() };
                let (members, index) = ((members % 7).into(), (index % 7).into());
                message(&Message::Give(Part { key, step: *step, members, index, data: data.clone() }))
            }
            InputKind::Bytes(bytes) => {
                told(bytes);
                Next::Bytes(bytes.clone())
            }
            InputKind::End => Next::End,
        };
        (usize::from(said.connection) % (size + 2), Duration::from_millis(said.milliseconds.into()), next)
    });
    converse(size, FLAGS, arrivals.chain(said)).expect("a server");
});

fn message(message: &Message) -> Next {
    Next::Bytes(frame::<{ 1 << 20 }>(message).expect("a message that is short enough"))
}

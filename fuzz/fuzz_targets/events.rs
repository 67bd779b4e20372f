//! Any words as a ring of events that a process of the job wrote, through what `busbw profile` makes of them.

#![no_main]

use busbw_events::{CAPACITY, Drained, Reader};
use busbw_profile::Ledger;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Where the first page has its words, and places begin.
const PROCESS: u64 = 8;
const SINCE_1970: u64 = 16;
const TAKEN: u64 = 128;
const LOST: u64 = 256;
const PLACES: u64 = 4096;
const PLACE: u64 = 64;
/// More places than this tell nothing more.
const MOST: usize = 500;

#[derive(Arbitrary, Debug)]
struct Written {
    process: u64,
    since_1970: u64,
    /// How many events the head claims; as many as there are where it claims nothing.
    taken: Option<u64>,
    lost: u64,
    events: Vec<([u64; 7], Turn)>,
    ended: bool,
}

#[derive(Arbitrary, Debug)]
enum Turn {
    Written,
    Unfinished,
    Anything(u64),
}

thread_local! {
    /// Memory of a ring's size, whose pages are there from run to run.
    static MEMORY: File = {
        let memory = File::from(memfd_create(c"fuzz", MFdFlags::MFD_CLOEXEC).expect("memory"));
        memory.set_len(PLACES + CAPACITY * PLACE).expect("a size");
        memory
    };
}

fuzz_target!(|written: Written| MEMORY.with(|memory| run(memory, &written)));

fn run(memory: &File, written: &Written) {
    let events = &written.events[..written.events.len().min(MOST)];
    let put = |at: u64, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        memory.write_all_at(&bytes, at).expect("room");
    };
    put(0, &[u64::from_le_bytes(*b"busbwev1")]);
    put(PROCESS, &[written.process]);
    put(SINCE_1970, &[written.since_1970]);
    put(TAKEN, &[written.taken.unwrap_or(events.len() as u64)]);
    put(LOST, &[written.lost]);
    for (number, (words, turn)) in (0..).zip(events) {
        let turn = match turn {
            Turn::Written => 1,
            Turn::Unfinished => 0,
            Turn::Anything(turn) => *turn,
        };
        put(PLACES + number * PLACE, &[&[turn], &words[..]].concat());
    }
    read(memory, written, events.len());
    put(PLACES, &vec![0; events.len() * 8]);
}

fn read(memory: &File, written: &Written, events: usize) {
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let mut reader = Reader::open(&path).expect("a file that can be mapped").expect("a ring");
    let mut ledger = Ledger::default();
    let ring = ledger.add();
    let (pid, mut seen) = (reader.process(), 0);
    // As many looks as a ring can need that nobody writes into.
    for _ in 0..3 {
        let drained = reader.drain(written.ended, |record| {
            seen += 1;
            ledger.feed(ring, pid, &record);
        });
        ledger.settle(None);
        drop(ledger.take());
        if drained == Drained::All {
            break;
        }
    }
    assert!(seen <= events, "{seen} events of {events}");
    assert!(reader.lost() >= written.lost, "what was lost is told");
}

//! Speed of the reductions beside a plain copy: GB/s of bytes read, on one core.
//!
//! `cargo run --release -p busbw-collectives --example reduce_speed [datatype...]`

use std::time::Instant;

use busbw_collectives::Room;
use busbw_collectives::reduction::{Store, combine, copy};
use busbw_model::{Datatype, RedOp, median};

const DATATYPES: [Datatype; 12] = [
    Datatype::Float,
    Datatype::Half,
    Datatype::Bfloat16,
    Datatype::Double,
    Datatype::Int8,
    Datatype::Uint8,
    Datatype::Int32,
    Datatype::Uint32,
    Datatype::Int64,
    Datatype::Uint64,
    Datatype::F8e4m3,
    Datatype::F8e5m2,
];

/// Bytes of each buffer.
const SIZES: [usize; 3] = [32 << 10, 1 << 20, 64 << 20];

/// Bytes of the largest buffer.
const LARGEST: usize = SIZES[2];

/// Rounds, in which all that is compared takes turns; the median counts.
const ROUNDS: usize = 9;

/// Bytes that one measurement reads at least.
const WORK: usize = 64 << 20;

/// Something to measure: how many buffers it reads, and what it does with this many bytes of each.
type Subject<'a> = (String, usize, Box<dyn Fn(usize) + 'a>);

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |datatype: &&Datatype| names.is_empty() || names.iter().any(|name| name == datatype.name());
    let mut buffers: Vec<Buffer> = (0..6).map(|_| Buffer::new()).collect();
    println!("GB/s read by one core; buffers of 32 KiB, 1 MiB and 64 MiB");
    println!("{:32} {:>8} {:>8} {:>8}", "", "32 KiB", "1 MiB", "64 MiB");
    for datatype in DATATYPES.iter().filter(chosen) {
        let subjects = subjects(&mut buffers, *datatype);
        let columns = SIZES.map(|bytes| measure(&subjects, bytes));
        for (row, (name, ..)) in subjects.iter().enumerate() {
            let [small, middle, large] = columns.each_ref().map(|column| column[row]);
            println!("{name:32} {small:8.1} {middle:8.1} {large:8.1}");
        }
    }
}

/// 64 MiB that begin at a page, with small integers' bytes.
struct Buffer(Vec<u8>);

impl Buffer {
    fn new() -> Self {
        Buffer(vec![1; LARGEST + 4096])
    }

    fn room(&mut self) -> Room {
        let start = self.0.as_ptr().addr().wrapping_neg() % 4096;
        // SAFETY: the buffers live as long as what is measured, on one thread.
        unsafe { Room::new(self.0[start..].as_mut_ptr(), LARGEST) }
    }
}

fn subjects(buffers: &mut [Buffer], datatype: Datatype) -> Vec<Subject<'static>> {
    let rooms: Vec<Room> = buffers.iter_mut().map(Buffer::room).collect();
    let mut subjects: Vec<Subject<'static>> = Vec::new();
    for (store, name) in [(Store::Cached, "cached"), (Store::Streaming, "streaming")] {
        let (from, to) = (rooms[0].data(), rooms[4]);
        let subject = Box::new(move |bytes| copy(&[to], from.take(bytes), store));
        subjects.push((format!("copy {name}"), 1, subject));
        for (ins, outs) in [(2, 1), (2, 2), (4, 1)] {
            for redop in if ins == 2 && outs == 1 { vec![RedOp::Sum, RedOp::Max, RedOp::Avg] } else { vec![RedOp::Sum] }
            {
                let from: Vec<_> = rooms[..ins].iter().map(|room| room.data()).collect();
                let to = rooms[4..4 + outs].to_vec();
                let subject = Box::new(move |bytes: usize| {
                    let count = bytes / datatype.size() as usize;
                    combine(&to, &from, count, datatype, redop, 3, store)
                });
                let name = format!("{} {} {ins} to {outs} {name}", datatype.name(), redop.name());
                subjects.push((name, ins, subject));
            }
        }
    }
    let (first, second) = (rooms[0], rooms[1].data());
    let subject = Box::new(move |bytes: usize| {
        let count = bytes / datatype.size() as usize;
        combine(&[first], &[first.data(), second], count, datatype, RedOp::Max, 0, Store::Cached)
    });
    subjects.push((format!("{} max in place cached", datatype.name()), 2, subject));
    subjects
}

/// Median GB/s of each subject, taken in turns.
fn measure(subjects: &[Subject<'_>], bytes: usize) -> Vec<f64> {
    let mut rates = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for ((_, ins, subject), rates) in subjects.iter().zip(&mut rates) {
            let times = (WORK / (bytes * ins)).max(1);
            let start = Instant::now();
            for _ in 0..times {
                subject(bytes);
            }
            rates.push((times * bytes * ins) as f64 / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    rates.into_iter().filter_map(|rates| median(rates.into_iter())).collect()
}

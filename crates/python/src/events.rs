//! Events for `busbw profile`, where it started this process or may look on it later.

use busbw_events::{Function, Kind, Source, What, Writer, writer};
use busbw_model::{Collective, Datatype};
use pyo3::pyfunction;
use std::hash::{DefaultHasher, Hash, Hasher};

fn own() -> Option<&'static Writer> {
    writer().ok().flatten().filter(|writer| writer.is_own())
}

/// Notes a group of ranks; the number by which its operations name it, or None where nobody reads. `name` is the same on all its
/// ranks, and that of no other group of this job or another.
#[pyfunction]
#[pyo3(signature = (name, ranks, nodes, rank))]
pub fn begin_group(name: &str, ranks: u32, nodes: u32, rank: u32) -> Option<u32> {
    let writer = own()?;
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let what = What::Communicator { hash: hasher.finish(), ranks, nodes, rank, source: Source::Torch };
    Some(writer.begin(Kind::Communicator, 0, what) as u32)
}

/// Notes that an operation begins; its number, 0 where nothing is noted. `count` is of elements, as NCCL's functions count them.
#[pyfunction]
#[pyo3(signature = (group, collective, datatype, count))]
pub fn begin_operation(group: u32, collective: &str, datatype: &str, count: u64) -> u64 {
    let (Some(writer), Some(collective)) = (own(), Collective::from_name(collective)) else { return 0 };
    let what = What::Operation {
        communicator: group,
        function: Function::Collective(collective),
        datatype: Datatype::from_name(datatype),
        algorithm: u8::MAX,
        protocol: u8::MAX,
        channels: 0,
        count,
    };
    writer.begin(Kind::Operation, 0, what)
}

/// Notes that an operation is over.
#[pyfunction]
pub fn end_operation(number: u64) {
    if let Some(writer) = own().filter(|_| number > 0) {
        writer.note(number, 0, What::Stop);
    }
}

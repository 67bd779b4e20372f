//! Events of a communicator's operations, where somebody wants to read them (`busbw profile`).

use crate::Operation;
use crate::algorithms::Algorithm;
use busbw_events::{Function, Kind, Source, What, Writer, writer};
use busbw_model::Collective;
use busbw_transport::Result;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Where this rank's operations are written down.
pub(crate) struct Recorded {
    writer: &'static Writer,
    communicator: u32,
}

impl Recorded {
    /// Notes a communicator; `None` where nobody reads. `all`: what every rank told of itself, by which the ranks' events belong together.
    pub fn begin(rank: usize, ranks: usize, nodes: usize, all: &impl Hash) -> Option<Self> {
        // A rank on another host may have the variable and not the folder: it works on, and the reader misses it.
        let writer = writer().ok().flatten()?;
        let mut hasher = DefaultHasher::new();
        all.hash(&mut hasher);
        let hash = hasher.finish();
        let (ranks, nodes, rank) = (ranks as u32, nodes as u32, rank as u32);
        let what = What::Communicator { hash, ranks, nodes, rank, source: Source::Engine };
        let communicator = writer.begin(Kind::Communicator, 0, what) as u32;
        Some(Recorded { writer, communicator })
    }

    /// Runs an operation between two events.
    pub fn run(&self, operation: &Operation, algorithm: Algorithm, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let what = What::Operation {
            communicator: self.communicator,
            function: Function::Collective(operation.collective),
            datatype: Some(operation.datatype),
            algorithm: algorithm as u8,
            protocol: u8::MAX,
            channels: 0,
            count: count(operation) as u64,
        };
        let id = self.writer.begin(Kind::Operation, 0, what);
        let done = run();
        self.writer.note(id, 0, What::Stop);
        done
    }
}

/// Elements as the event counts them: those of an all-to-all-v are all that the ranks exchange.
fn count(operation: &Operation) -> usize {
    match operation.collective {
        Collective::AllToAllV => operation.counts.iter().sum(),
        _ => operation.count,
    }
}

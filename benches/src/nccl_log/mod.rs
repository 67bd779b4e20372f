//! A deterministic generator of NCCL logs, for benchmarks: `nccl-log-gen`.
//!
//! The log is that of `all_reduce_perf` on rail-wired nodes under `NCCL_DEBUG=INFO`. The lines have the shapes of
//! published logs of NCCL 2.27; rings, trees and connections fit each other as NCCL would have built them, so that a
//! reader that follows them finds no contradiction. Nothing is random but process numbers, pointers, timings and the
//! order in which ranks get to print.

mod graph;
mod interleave;
mod lines;
mod speaker;
mod table;

use crate::random::{Random, mix};
use busbw_model::Bytes;
use interleave::write_phase;
use serde::Serialize;
use speaker::{Communicator, INIT_PHASES, Phase};
use std::io::{self, Write};

/// The only NCCL release whose lines are known here.
pub const NCCL_RELEASE: &str = "2.27";
/// NCCL's own limit (`MAXCHANNELS` in `src/include/device.h`, 2.27).
const MAX_CHANNELS: u32 = 64;
/// More GPUs in one node than any server has.
const MAX_GPUS_PER_NODE: u32 = 64;
/// Ranks that keep every number of the generator within 32 bits, and the file below a terabyte.
const MAX_RANKS: u32 = 1 << 20;

/// Which launcher's label stands in front of every line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Prefix {
    /// No label.
    None,
    /// `[1,12]<stdout>:` of `mpirun --tag-output`.
    Mpirun,
    /// `  12: ` of `srun --label`.
    Srun,
}

/// What log to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Ranks of a communicator, a multiple of `gpus_per_node` unless all fit one node.
    pub ranks: u32,
    /// GPUs, and NICs, of a node.
    pub gpus_per_node: u32,
    /// Channels of a communicator.
    pub channels: u32,
    /// Write further communicators until the log has this size. Without it there is one.
    pub bytes: Option<Bytes>,
    /// The log depends on the shape and on this number only.
    pub seed: u64,
    /// The launcher's label.
    pub prefix: Prefix,
    /// Cut ring orders and lines where NCCL's buffers end (128 and 1024 bytes in 2.27). Without it they are whole.
    pub cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Size of the log.
    pub bytes: u64,
    /// Communicators in it, each a run with processes and a table of its own.
    pub communicators: u64,
}

/// Why no log was written.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error("{what} is {value}; choose a number from {least} to {most}")]
    OutOfRange { what: &'static str, value: u32, least: u32, most: u32 },
    #[error("{ranks} ranks do not fill nodes of {gpus_per_node} GPUs; choose a multiple of {gpus_per_node}")]
    PartialNode {
        /// `--ranks`.
        ranks: u32,
        /// `--gpus-per-node`.
        gpus_per_node: u32,
    },
    #[error("the log cannot be written: {0}")]
    Write(#[from] io::Error),
}

impl Shape {
    /// GPUs of a node, fewer than asked for when one node is not filled.
    fn gpus(&self) -> u32 {
        self.gpus_per_node.min(self.ranks)
    }

    fn nodes(&self) -> u32 {
        self.ranks / self.gpus()
    }

    fn check(&self) -> Result<(), GenerateError> {
        let ranges = [
            ("--ranks", self.ranks, MAX_RANKS),
            ("--gpus-per-node", self.gpus_per_node, MAX_GPUS_PER_NODE),
            ("--channels", self.channels, MAX_CHANNELS),
        ];
        for (what, value, most) in ranges {
            if value == 0 || value > most {
                return Err(GenerateError::OutOfRange { what, value, least: 1, most });
            }
        }
        if !self.ranks.is_multiple_of(self.gpus()) {
            return Err(GenerateError::PartialNode { ranks: self.ranks, gpus_per_node: self.gpus_per_node });
        }
        Ok(())
    }
}

/// Writes the log of `shape`.
///
/// ```
/// use busbw_benches::nccl_log::{Prefix, Shape, write_log};
/// let shape = Shape { ranks: 16, gpus_per_node: 8, channels: 4, bytes: None, seed: 1, prefix: Prefix::None, cut: false };
/// let mut log = Vec::new();
/// let written = write_log(&shape, &mut log)?;
/// assert_eq!((written.bytes, written.communicators), (log.len() as u64, 1));
/// # Ok::<(), busbw_benches::nccl_log::GenerateError>(())
/// ```
pub fn write_log(shape: &Shape, out: &mut dyn Write) -> Result<Written, GenerateError> {
    shape.check()?;
    let mut out = Counter { inner: io::BufWriter::with_capacity(1 << 20, out), bytes: 0 };
    let mut communicators = 0;
    loop {
        write_run(&Communicator::new(shape, communicators), &mut out)?;
        communicators += 1;
        if shape.bytes.is_none_or(|wanted| out.bytes >= wanted.0) {
            break;
        }
    }
    out.flush()?;
    Ok(Written { bytes: out.bytes, communicators })
}

/// One run of `all_reduce_perf`: the devices, all that the ranks print, the table.
fn write_run(comm: &Communicator<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut random = Random::new(mix(&[comm.shape.seed, comm.index]));
    table::preamble(comm, out)?;
    for phase in INIT_PHASES {
        write_phase(comm, phase, &mut random, out)?;
    }
    let mean_busbw_gbs = table::rows(comm, &mut random, out)?;
    write_phase(comm, Phase::Destroy, &mut random, out)?;
    table::footer(comm, mean_busbw_gbs, out)
}

/// A writer that counts.
struct Counter<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

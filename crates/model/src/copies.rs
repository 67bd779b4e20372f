//! How fast the GPUs of a host copy to each other and to the host's memory, as nvbandwidth and p2pBandwidthLatencyTest measure it.

use crate::place::{Place, SourceLine};

/// A table: what is copied in each column from, or to, what stands in the row.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyTable {
    /// The line above its columns.
    pub place: Place,
    /// The line above its columns, without the unit: `memcpy CE GPU(row) -> GPU(column) bandwidth`.
    pub what: String,
    /// The copies that were measured, row by row.
    pub copies: Vec<CopyRate>,
}

/// One cell of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyRate {
    /// The number of the row: a GPU's, or that of the CPU.
    pub row: u32,
    /// The GPU of the column.
    pub column: u32,
    /// GB/s, above 0.
    pub gb_s: f64,
    /// The row, as evidence.
    pub source: SourceLine,
}

impl CopyTable {
    /// Whether the rows are GPUs, too; else the host's memory.
    pub fn is_between_gpus(&self) -> bool {
        self.what.contains("GPU(row)") || self.what.contains("directional P2P=")
    }

    /// Adds copies. Within a GPU's own memory none goes to another.
    pub fn extend(&mut self, copies: Vec<CopyRate>) {
        let between = self.is_between_gpus();
        self.copies.extend(copies.into_iter().filter(|copy| !between || copy.row != copy.column));
    }
}

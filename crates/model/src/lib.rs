//! The nouns of collective communication.
//!
//! busbw's readers produce these values and its rules judge them. Nothing here reads or writes anything.
//! Units are types ([`Bytes`], [`Micros`], [`GBps`]); where a field is a plain number its name ends in the unit.

mod collective;
mod place;
mod rdma;
mod table;
mod topology;
mod units;

pub use collective::{Collective, Datatype, RedOp};
pub use place::{Place, SourceLine};
pub use rdma::{CheckResult, PerfRow, PerfTest, RdmaCheckItem, RdmaSample, RdmaValue};
pub use table::{BenchDevice, BenchRow, BenchSettings, BenchTable, Check, IterationStats, Measure, OutOfBounds};
pub use topology::{
    DeviceKind, PathType, SystemDump, SystemNode, TopoDevice, TopoMatrix, XmlCpu, XmlGpu, XmlGraph, XmlGraphs, XmlNet,
    XmlNic, XmlPci, XmlTopology,
};
pub use units::{Bytes, GBps, Micros, ParseBytesError};

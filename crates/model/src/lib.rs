//! The nouns of collective communication.
//!
//! busbw's readers produce these values and its rules judge them. Nothing here reads or writes anything.
//! Units are types ([`Bytes`], [`Micros`], [`GBps`]); where a field is a plain number its name ends in the unit.
//!
//! A [`Run`] is everything that a set of inputs says; a [`Diagnosis`] is what the rules conclude from it.

mod cluster;
mod collective;
mod communicator;
mod finding;
mod nccl;
mod place;
mod rdma;
mod run;
mod table;
mod topology;
mod units;

pub use cluster::{Gpu, Nic, Node};
pub use collective::{Collective, Datatype, RedOp};
pub use communicator::{
    Channel, ChannelSet, Communicator, Crossing, Edge, EdgeEnd, EdgeUse, GdrUse, Rank, Ring, Transport, TransportKind,
    TreeLinks,
};
pub use finding::{Code, Diagnosis, Evidence, Expected, Finding, Gain, Severity, Verdict};
pub use nccl::{
    EnvOrigin, EnvSetting, ErrorStep, GraphPattern, Library, NcclLog, NetworkLine, NetworkStatement, Speaker,
    TuningChoice, VersionLine, Warning,
};
pub use place::{Place, SourceLine};
pub use rdma::{CheckResult, PerfRow, PerfTest, RdmaCheckItem, RdmaSample, RdmaValue};
pub use run::{Input, InputKind, Problem, Remark, RemarkKind, Run};
pub use table::{BenchDevice, BenchRow, BenchSettings, BenchTable, Check, IterationStats, Measure, OutOfBounds};
pub use topology::{
    DeviceKind, PathType, SystemDump, SystemNode, TopoDevice, TopoMatrix, XmlCpu, XmlGpu, XmlGraph, XmlGraphs, XmlNet,
    XmlNic, XmlPci, XmlTopology,
};
pub use units::{Bytes, GBps, Micros, ParseBytesError};

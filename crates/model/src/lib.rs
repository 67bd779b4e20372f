//! The nouns of collective communication.
//!
//! busbw's readers produce these values and its rules judge them. Nothing here reads or writes anything.
//! Units are types ([`Bytes`], [`Micros`], [`GBps`]); where a field is a plain number its name ends in the unit.
//!
//! A [`Run`] is everything that a set of inputs says; a [`Diagnosis`] is what the rules conclude from it.

#![warn(missing_docs)] // others build on this crate
#![forbid(unsafe_code)]

#[macro_use]
mod named;

mod algorithm;
pub mod answer;
mod check;
mod cluster;
mod collective;
mod communicator;
mod comparison;
mod copies;
pub mod counters;
mod culprit;
mod diagnostics;
mod end;
mod environment;
mod finding;
mod host;
mod host_list;
mod inspector;
mod known_fault;
mod link;
mod load;
pub mod metrics;
mod nccl;
mod net_plugin;
pub mod node;
mod peers;
mod place;
mod profile;
mod program;
mod ras;
mod rdma;
mod run;
mod skew;
mod stack;
mod statement;
mod statistics;
mod table;
pub mod text;
mod topology;
mod torch;
mod tuning;
mod tuning_table;
mod units;
mod version;
mod watch;
mod words;

pub use algorithm::{Algorithm, Protocol};
pub use check::{Area, CheckItem, Checked, OddOne, Outcome};
pub use cluster::{Gpu, Nic, Node};
pub use collective::{Collective, Datatype, RedOp};
pub use communicator::{
    Channel, ChannelSet, Communicator, Crossing, Edge, EdgeEnd, EdgeUse, GdrUse, Rank, Ring, Stage, Transport,
    TransportKind, Tree, TreeLinks,
};
pub use comparison::{
    Carrier, ComparedCell, ComparedFinding, ComparedRow, ComparedRun, Contest, Difference, DifferenceKind, Faster,
    LargestCompared, RunComparison, SizeRange, SmallMessages, short_names,
};
pub use copies::{CopyRate, CopyTable};
pub use culprit::{Culprit, CulpritClass, Slower, Suspects, Waiting};
pub use diagnostics::{DiagLine, DiagTag};
pub use end::{CollectiveCall, EndTeller, Ended, ProgramFrame, RankEnd, RankOutput};
pub use environment::{Variable, VariableStanding};
pub use finding::{
    Advice, Alternative, Code, Diagnosis, Evidence, Expected, ExpectedRow, ExpectedTable, Finding, Gain, Judged,
    Judgement, Reached, SavedFinding, Severity, Subject, Verdict,
};
pub use host::{FactLine, LinkLayer, PcieLink};
pub use host_list::HostList;
pub use inspector::{InspectorRank, InspectorRow, InspectorRun, Spread};
pub use known_fault::{Advised, BestVersion, Component, Consequence, Exposure, KnownFact, KnownFault, PrintedVersion};
pub use link::{Link, LinkEnd, LinkFigures, LinkLatency, LinkRun, LinkTransport, MeasuredLink};
pub use load::{Direction, Load, LoadError, Peak, SHAPES, Sums, amounts};
pub use nccl::{
    EnvOrigin, EnvSetting, ErrorStep, GraphPattern, Library, LogPrefix, NcclLog, NcclVersion, NetworkLine,
    NetworkStatement, TuningChoice, VersionLine, Warning,
};
pub use net_plugin::{
    Breach, NetworkOffer, PartOffer, PluginBandwidth, PluginDevice, PluginFigures, PluginOffer, PluginReport,
    PluginRun, RuleOutcome, RuleReport, UnusablePlugin,
};
pub use node::NodeFacts;
pub use peers::{Blame, PeerGroup, SlowPeer};
pub use place::{Place, SourceLine};
pub use profile::{
    Profile, ProfileSource, ProfiledOperation, ProfiledRank, StepTimes, Straggler, StragglerClass, WorstOperation,
};
pub use program::NO_LIBRARIES;
pub use ras::{
    RasCommunicator, RasError, RasGroup, RasJob, RasLaunched, RasProcess, RasRank, RasReport, RasShare, RasStatus,
};
pub use rdma::{CheckResult, PerfRow, PerfTest, RdmaCheckItem, RdmaSample, RdmaValue};
pub use run::{Input, InputKind, Problem, Run};
pub use skew::{BusyHost, BusyRank, HostMoved, Moved, Skew};
pub use stack::{Frame, Socket, Stack, StoppedProcess, UnendedLauncher};
pub use statement::{LogLevel, Speaker, Statement, pod_row};
pub use statistics::{median, upper_quartile};
pub use table::{
    BenchDevice, BenchRow, BenchSettings, BenchTable, Check, Contradiction, HostMemory, IterationStats, Measure,
    OutOfBounds,
};
pub use topology::{
    DeviceKind, PathType, PciSpot, SystemDump, SystemNode, TopoDevice, TopoMatrix, XmlCpu, XmlGpu, XmlGraph, XmlGraphs,
    XmlNet, XmlNic, XmlPci, XmlTopology,
};
pub use torch::{
    CollectiveMismatch, FlightCall, FlightCalls, FlightDump, FlightEntry, FlightKind, GroupName, MismatchKind,
    ProcessGroup, RankStanding, Standing, TorchEvent, TorchStatement, TorchWork, WorkState,
};
pub use tuning::{Measured, Setting, TrialCount, TunedSetting, TunedStanding, TunedVariable, Tuning};
pub use tuning_table::{TunedChoice, TunedOperation, TuningTable, TuningTableError};
pub use units::{Bytes, GBps, Micros, ParseBytesError, ParseTimeError, counted, gbit, time};
pub use version::Version;
pub use watch::{ProcessEnd, ProcessState, Stall, WatchSource, Watched, WatchedPeer, WatchedRank};
pub use words::Words;

//! A run as the rules look at it: each table with its curve, its nodes and the communicator that it measured.

use crate::curve::Curve;
use crate::elsewhere::Elsewhere;
use crate::ends::Ends;
use crate::lines::{self, Line};
use crate::peers;
use crate::ranks::Ranks;
use crate::refute::Refuters;
use crate::rules::launch_command::hosts_of;
use crate::rules::signatures::book::Book;
use crate::sweeps;
use crate::words::KNOWN;
use busbw_model::{
    BenchTable, Communicator, DeviceKind, PathType, PeerGroup, Run, SourceLine, TopoMatrix, TransportKind,
};
use busbw_predict::cluster::{NicsOfHost, joined_by_nvlink, usual_with_rdma};

/// From so many ranks on several hosts took part: hosts with 16 GPUs below one operating system are few (DGX-2,
/// a2-megagpu-16g).
const SEVERAL_HOSTS: u32 = 16;

/// What is judged.
pub struct Case<'a> {
    pub run: &'a Run,
    /// The NICs of a host, where somebody told.
    pub nics: Option<NicsOfHost>,
    /// The tables that have rows, in order; those of a sweep as one.
    pub tests: Vec<Test<'a>>,
    /// The lines that signatures look at.
    pub lines: Vec<Line<'a>>,
    /// The causes that programs print.
    pub book: &'a Book,
    pub refuters: Refuters,
    /// What is not about the run.
    pub elsewhere: Elsewhere,
    /// How the processes ended, as far as nothing refutes it.
    pub ends: Ends<'a>,
    /// What is known of each rank at the end.
    pub ranks: Ranks<'a>,
    /// Nodes and pairs that were measured alike.
    pub peers: Vec<PeerGroup>,
}

/// A table with rows and what is known about where it was measured.
pub struct Test<'a> {
    /// Of a sweep, that with the largest size.
    pub table: &'a BenchTable,
    /// All of a sweep: one, but for scripts that run each size alone.
    pub sweep: Vec<&'a BenchTable>,
    /// Of all of these.
    pub curve: Curve<'a>,
    /// The communicator: of as many ranks, from the same input or the only one.
    pub comm: Option<&'a Communicator>,
    pub nodes: Option<u32>,
    /// GPUs' name, if the device list says so.
    pub gpu: Option<&'a str>,
}

/// How ranks of different nodes talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Socket,
    /// RDMA, by NCCL's own transport or a plugin that does what it does.
    Rdma,
    /// A plugin of another kind, whose name the log gives.
    Plugin,
}

impl<'a> Case<'a> {
    pub fn new(run: &'a Run) -> Self {
        Case::by(run, Book::built_in())
    }

    /// Prepares a run, to be judged by the causes of a book.
    pub fn by(run: &'a Run, book: &'a Book) -> Self {
        let refuters = Refuters::of(run);
        let (lines, elsewhere) = (lines::of(run), Elsewhere::of(run, &refuters));
        let tests = sweeps::of(run).into_iter().filter_map(|sweep| Test::new(run, sweep, &lines)).collect();
        let ends = Ends::of(run, &refuters);
        let ranks = Ranks::of(run, &ends);
        Case { run, nics: None, tests, lines, book, refuters, elsewhere, ends, ranks, peers: peers::groups(run) }
    }

    /// Whether any line, variable or matrix names what only machines with RDMA have, or the GPUs stand in such machines.
    pub fn has_rdma(&self) -> bool {
        let named = |text: &str| KNOWN.rdma.iter().any(|sign| text.contains(sign));
        let set = |name: &str| self.run.nccl.env_value(name);
        let in_matrix = self.run.topo_matrices.iter().any(|matrix| matrix.of_kind(DeviceKind::Nic).next().is_some());
        in_matrix
            || self.gpus().any(usual_with_rdma)
            || set("NCCL_IB_HCA").is_some()
            || set("NCCL_IB_DISABLE").is_some_and(|e| e.value.trim() == "0")
            || self.run.nodes.iter().flat_map(|n| &n.nics).any(|n| matches!(n.link.as_deref(), Some("IB" | "RoCE")))
            || self.lines.iter().any(|line| named(&line.text))
    }

    /// Whether NVLink joins GPUs of a node, as a matrix shows or their name shows.
    pub fn has_nvlink(&self) -> bool {
        let joined = |matrix: &TopoMatrix| {
            let gpus: Vec<&str> = matrix.of_kind(DeviceKind::Gpu).map(|device| device.name.as_str()).collect();
            gpus.iter().any(|a| gpus.iter().any(|b| matches!(matrix.path(a, b), Some(PathType::NvLink(_)))))
        };
        self.run.topo_matrices.iter().any(joined) || self.gpus().any(joined_by_nvlink)
    }

    /// The names of GPUs in device lists, logs and facts of machines.
    fn gpus(&self) -> impl Iterator<Item = &str> {
        let listed = self.run.tables.iter().flat_map(|table| &table.devices).map(|device| device.name.as_str());
        let used = self.run.nodes.iter().flat_map(|node| &node.gpus).filter_map(|gpu| gpu.name.as_deref());
        let seen = self.run.machines.iter().flat_map(|machine| &machine.gpu.devices).map(|gpu| gpu.name.as_str());
        listed.chain(used).chain(seen)
    }

    /// The header of a matrix, as evidence.
    pub fn line_of(&self, matrix: &TopoMatrix) -> SourceLine {
        let place = matrix.place;
        let names = || matrix.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(" ");
        self.run.line(place).unwrap_or_else(|| SourceLine { place, text: names().into() })
    }

    pub fn largest(&self) -> Option<&'a Communicator> {
        self.run.communicators.first()
    }
}

impl<'a> Test<'a> {
    /// Whether its ranks ran on CPU cores, as those of `busbw bench` do without `--backend nccl`.
    pub fn on_cores(&self) -> bool {
        self.gpu.is_some_and(|name| name.starts_with("CPU "))
    }

    /// Whether one run measured all its sizes: else each may have been disturbed by itself, and they do not compare.
    pub fn is_one_run(&self) -> bool {
        self.sweep.len() == 1
    }

    fn new(run: &'a Run, sweep: Vec<&'a BenchTable>, lines: &[Line]) -> Option<Self> {
        let table = *sweep.last()?;
        let curve = Curve::over(&sweep)?;
        let same_size = |comm: &&Communicator| table.nranks.is_none() || comm.nranks == table.nranks;
        let here = |comm: &&Communicator| comm.place.input == table.place.input;
        let comm = run
            .communicators
            .iter()
            .filter(same_size)
            .find(here)
            .or_else(|| run.communicators.iter().find(|comm| run.tables.len() == 1 && same_size(comm)));
        let hosts = table.hosts().len() as u32;
        let shown = comm.and_then(|c| c.nnodes).or((hosts > 0).then_some(hosts));
        let nodes = shown.or_else(|| hosts_of(table, lines));
        let gpu = table.devices.first().map(|d| d.name.as_str()).filter(|name| !name.is_empty());
        Some(Test { table, sweep, curve, comm, nodes, gpu })
    }

    /// Whether it crosses nodes: so do as many ranks as hardly a node has GPUs.
    pub fn crosses_nodes(&self) -> bool {
        match self.nodes {
            Some(nodes) => nodes > 1,
            None => !self.on_cores() && self.table.nranks.is_some_and(|ranks| ranks >= SEVERAL_HOSTS),
        }
    }

    /// The network that its communicator logged.
    pub fn network(&self) -> Option<Network> {
        network_of(self.comm?)
    }
}

/// The network that a communicator's connections between nodes use.
pub fn network_of(comm: &Communicator) -> Option<Network> {
    comm.transports.iter().find_map(|t| match &t.kind {
        TransportKind::Net(name) if name.eq_ignore_ascii_case("socket") => Some(Network::Socket),
        TransportKind::Net(name) if name.starts_with("IB") || t.gdr => Some(Network::Rdma),
        TransportKind::Net(_) => Some(Network::Plugin),
        TransportKind::CollNet => Some(Network::Rdma),
        _ => None,
    })
}

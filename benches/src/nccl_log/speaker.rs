//! What one rank prints, phase by phase. The texts are those of NCCL 2.27.5 (`src/init.cc`, `src/transport/*.cc`),
//! checked against logs that people published.

use super::graph::{Graph, Link};
use super::lines::Lines;
use super::{Prefix, Shape};
use crate::random::mix;

/// NCCL's own version line.
const VERSION: &str = "NCCL version 2.27.5+cuda12.9";
/// The buffer in which NCCL assembles a ring order (`dumpLine` in `src/graph/rings.cc`, 2.27.5).
const RING_LINE_LENGTH: usize = 128;

/// The parts of an initialisation that ranks enter together, because a collective of the bootstrap lies between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Bootstrap,
    Network,
    Topology,
    Graphs,
    Rings,
    Trees,
    Complete,
    Destroy,
}

/// The phases before the table, in order.
pub(super) const INIT_PHASES: [Phase; 7] =
    [Phase::Bootstrap, Phase::Network, Phase::Topology, Phase::Graphs, Phase::Rings, Phase::Trees, Phase::Complete];

/// One communicator: one run of the program, with processes of its own.
#[derive(Debug)]
pub(super) struct Communicator<'a> {
    pub shape: &'a Shape,
    pub graph: Graph,
    /// Communicators in the file before this one.
    pub index: u64,
}

/// One rank of a communicator and the buffers that its lines are built from.
pub(super) struct Speaker<'a> {
    comm: &'a Communicator<'a>,
    rank: u32,
    local: u32,
    label: Vec<u8>,
    main_prefix: Vec<u8>,
    init_prefix: Vec<u8>,
}

impl<'a> Communicator<'a> {
    pub fn new(shape: &'a Shape, index: u64) -> Self {
        Communicator { shape, graph: Graph::new(shape.nodes(), shape.gpus(), shape.channels), index }
    }

    fn hash(&self, what: u64, which: u32) -> u64 {
        mix(&[self.shape.seed, self.index, what, u64::from(which)])
    }

    fn id(&self) -> u64 {
        self.hash(1, 0)
    }

    /// The address of a rank's `ncclComm`, in the range where Linux puts a heap.
    fn pointer(&self, rank: u32) -> u64 {
        0x5500_0000_0000 | (self.hash(2, rank) & 0xff_ffff_fff0)
    }

    pub fn node_of(&self, rank: u32) -> u32 {
        rank / self.shape.gpus()
    }

    pub fn local_of(&self, rank: u32) -> u32 {
        rank % self.shape.gpus()
    }

    pub fn host(&self, rank: u32) -> String {
        format!("worker-{}", self.node_of(rank))
    }

    /// The processes of a node start one after the other.
    pub fn pid(&self, rank: u32) -> u64 {
        let first = 4096 + self.hash(3, self.node_of(rank)) % 900_000;
        first + u64::from(self.local_of(rank))
    }

    /// The thread that initialises the communicator; its helpers have the numbers after it.
    fn init_thread(&self, rank: u32) -> u64 {
        let local = u64::from(self.local_of(rank));
        self.pid(rank) - local + u64::from(self.shape.gpus()) + 32 + 4 * local
    }

    /// The launcher's label in front of a rank's lines.
    pub fn label(&self, rank: u32) -> String {
        match self.shape.prefix {
            Prefix::None => String::new(),
            Prefix::Mpirun => format!("[1,{rank}]<stdout>:"),
            Prefix::Srun => format!("{rank:>width$}: ", width = (self.shape.ranks - 1).to_string().len()),
        }
    }
}

/// The PCI bus of a local GPU, spread as on an eight-GPU server.
pub(super) fn pci_bus(local: u32) -> u32 {
    0x53 + 0x11 * (local % 8) + local / 8
}

fn address(node: u32) -> String {
    format!("10.{}.{}.{}", 64 + node / 62_500, node / 250 % 250, node % 250 + 2)
}

impl<'a> Speaker<'a> {
    pub fn new(comm: &'a Communicator<'a>, rank: u32) -> Self {
        let (host, pid, local) = (comm.host(rank), comm.pid(rank), comm.local_of(rank));
        let prefix = |thread: u64| format!("{host}:{pid}:{thread} [{local}] NCCL INFO ").into_bytes();
        Speaker {
            comm,
            rank,
            local,
            label: comm.label(rank).into_bytes(),
            main_prefix: prefix(pid),
            init_prefix: prefix(comm.init_thread(rank)),
        }
    }

    /// Writes the rank's lines of one phase. `links` is scratch space.
    pub fn speak(&self, phase: Phase, lines: &mut Lines, links: &mut Vec<Link>) {
        match phase {
            Phase::Bootstrap => self.bootstrap(lines),
            Phase::Network => self.network(lines),
            Phase::Topology => self.topology(lines),
            Phase::Graphs => self.graphs(lines),
            Phase::Rings => {
                self.comm.graph.ring_links(self.rank, links);
                self.connections(links, lines);
                self.say(lines, format_args!("Connected all rings, use ring PXN 0 GDR 1"));
            }
            Phase::Trees => {
                self.comm.graph.tree_links(self.rank, links);
                self.connections(links, lines);
                self.say(lines, format_args!("Connected all trees"));
            }
            Phase::Complete => self.complete(lines),
            Phase::Destroy => self.destroy(lines),
        }
    }

    fn open<'l>(&self, lines: &'l mut Lines) -> &'l mut Lines {
        lines.begin(&self.label, &self.init_prefix)
    }

    /// A line of the thread that initialises the communicator.
    fn say(&self, lines: &mut Lines, message: std::fmt::Arguments<'_>) {
        self.open(lines).format(message).end();
    }

    /// A line of the process's main thread.
    fn say_main(&self, lines: &mut Lines, message: std::fmt::Arguments<'_>) {
        lines.begin(&self.label, &self.main_prefix).format(message).end();
    }

    /// A line of one of the rank's helper threads.
    fn say_helper(&self, lines: &mut Lines, helper: u64, name: &str) {
        let (host, pid, thread) =
            (self.comm.host(self.rank), self.comm.pid(self.rank), self.comm.init_thread(self.rank) + helper);
        let (dev, core) = (self.local, self.comm.hash(4 + helper, self.rank) % 192);
        let prefix = format!("{host}:{pid}:{thread} [{dev}] NCCL INFO ");
        lines.begin(&self.label, prefix.as_bytes());
        lines.format(format_args!("[{name}] Device {dev} CPU core {core}")).end();
    }

    fn bootstrap(&self, lines: &mut Lines) {
        let address = address(self.comm.node_of(self.rank));
        self.say_main(lines, format_args!("NCCL_SOCKET_IFNAME set by environment to eth0"));
        self.say_main(lines, format_args!("Bootstrap: Using eth0:{address}<0>"));
        self.say_main(lines, format_args!("cudaDriverVersion 12090"));
        self.say_main(lines, format_args!("{VERSION}"));
    }

    fn network(&self, lines: &mut Lines) {
        self.say(lines, format_args!("NET/Plugin: Could not find: libnccl-net.so. "));
        self.say(lines, format_args!("NCCL_SOCKET_IFNAME set by environment to eth0"));
        self.say(lines, format_args!("NCCL_IB_HCA set to mlx5"));
        self.open(lines).text("NET/IB : Using");
        for device in 0..u64::from(self.comm.shape.gpus()) {
            lines.text(" [").number(device).text("]mlx5_").number(device).text(":1/IB");
        }
        lines.format(format_args!(" [RO]; OOB eth0:{}<0>", address(self.comm.node_of(self.rank)))).end();
        self.say(lines, format_args!("Initialized NET plugin IB"));
        self.say(lines, format_args!("Assigned NET plugin IB to comm"));
        self.say(lines, format_args!("Using network IB"));
        self.say(lines, format_args!("DMA-BUF is available on GPU device {}", self.local));
        self.init_line(lines, "Init START");
    }

    fn init_line(&self, lines: &mut Lines, state: &str) {
        let (comm, rank, dev) = (self.comm, self.rank, self.local);
        self.say(
            lines,
            format_args!(
                "ncclCommInitRankConfig comm {:#x} rank {rank} nranks {} cudaDev {dev} nvmlDev {dev} busId {:x}000 \
                 commId {:#x} - {state}",
                comm.pointer(rank),
                comm.shape.ranks,
                pci_bus(dev),
                comm.id()
            ),
        );
    }

    fn topology(&self, lines: &mut Lines) {
        // Each part below a tenth of a second, as the bootstrap of a few nodes takes.
        let part = |which: u64| (self.comm.hash(10 + which, self.rank) % 90_000) as f64 / 1e6;
        let (create, send, receive, ring, delay) = (part(0) / 1e3, part(1) / 10.0, part(2), part(3), part(4) / 1e4);
        self.say(
            lines,
            format_args!(
                "Bootstrap timings total {:.6} (create {create:.6}, send {send:.6}, recv {receive:.6}, ring {ring:.6}, \
                 delay {delay:.6})",
                create + send + receive + ring + delay
            ),
        );
        let cores = if self.local * 2 < self.comm.shape.gpus() { "0-47,96-143" } else { "48-95,144-191" };
        self.say(lines, format_args!("Setting affinity for GPU {} to {cores}", self.local));
        self.say(
            lines,
            format_args!("NVLS multicast support is not available on dev {} (NVLS_NCHANNELS 0)", self.local),
        );
    }

    fn graphs(&self, lines: &mut Lines) {
        let (comm, shape, rank) = (self.comm, self.comm.shape, self.rank);
        self.say(
            lines,
            format_args!(
                "comm {:#x} rank {rank} nRanks {} nNodes {} localRanks {} localRank {} MNNVL 0",
                comm.pointer(rank),
                shape.ranks,
                shape.nodes(),
                shape.gpus(),
                self.local
            ),
        );
        if rank == 0 {
            for channel in 0..shape.channels {
                self.ring_order(channel, lines);
            }
        }
        self.open(lines).text("Trees");
        for channel in 0..shape.channels {
            let tree = comm.graph.tree(channel, rank);
            lines.text(" [").number(u64::from(channel)).text("] ");
            lines.rank_or_none(tree.down[0]).text("/").rank_or_none(tree.down[1]).text("/").rank_or_none(tree.down[2]);
            lines.text("->").number(u64::from(rank)).text("->").rank_or_none(tree.up);
        }
        lines.end();
        self.say(lines, format_args!("P2P Chunksize set to 131072"));
        self.say(lines, format_args!("PROFILER/Plugin: Could not find: libnccl-profiler.so. "));
        if rank == 0 {
            let direct = u32::from(shape.gpus() > 1);
            self.say(lines, format_args!("Check P2P Type isAllDirectP2p {direct} directMode 0"));
        }
        self.say_helper(lines, 1, "Proxy Service");
        self.say_helper(lines, 2, "Proxy Service UDS");
        // Without this, 2.27 connects when a collective first needs it, and the edges land inside the table.
        self.say(lines, format_args!("NCCL_RUNTIME_CONNECT set by environment to 0."));
    }

    fn ring_order(&self, channel: u32, lines: &mut Lines) {
        let (graph, ranks) = (self.comm.graph, self.comm.shape.ranks);
        let width = (ranks - 1).to_string().len();
        let mut order = format!("Channel {channel:02}/{:02} :", self.comm.shape.channels);
        let mut rank = 0;
        for _ in 0..ranks {
            order.push_str(&format!(" {rank:>width$}"));
            rank = graph.ring_next(channel, rank);
        }
        if self.comm.shape.cut && order.len() >= RING_LINE_LENGTH {
            order.truncate(RING_LINE_LENGTH - 4);
            order.push_str("...");
        }
        self.say(lines, format_args!("{order}"));
    }

    /// The lines of all connections: P2P prints the sending end only, the network both.
    fn connections(&self, links: &[Link], lines: &mut Lines) {
        let (comm, rank, local) = (self.comm, u64::from(self.rank), u64::from(self.local));
        let mut uses_network = false;
        for link in links {
            let is_remote = comm.node_of(link.peer) != comm.node_of(self.rank);
            if is_remote && !std::mem::replace(&mut uses_network, true) {
                self.say_helper(lines, 3, "Proxy Progress");
            }
            if !is_remote && !link.sends {
                continue;
            }
            let peer = (u64::from(link.peer), u64::from(comm.local_of(link.peer)));
            let (from, to) = if link.sends { ((rank, local), peer) } else { (peer, (rank, local)) };
            self.open(lines).text("Channel ").two_digits(u64::from(link.channel)).text("/0 : ");
            lines.number(from.0).text("[").number(from.1).text("] -> ");
            lines.number(to.0).text("[").number(to.1).text("]");
            match (is_remote, link.sends) {
                (false, _) => lines.text(" via P2P/CUMEM"),
                (true, true) => lines.text(" [send] via NET/IB/").number(local).text("/GDRDMA"),
                (true, false) => lines.text(" [receive] via NET/IB/").number(local).text("/GDRDMA"),
            };
            lines.end();
        }
    }

    fn complete(&self, lines: &mut Lines) {
        let (shape, ranks, channels) = (self.comm.shape, self.comm.shape.ranks, self.comm.shape.channels);
        let p2p_channels = channels.next_power_of_two();
        let per_peer = if shape.nodes() > 1 { p2p_channels.min(2) } else { p2p_channels };
        self.say(lines, format_args!("threadThresholds 8/8/64 | {}/8/64 | 512 | 512", u64::from(ranks) * 8));
        self.say(
            lines,
            format_args!(
                "{channels} coll channels, {channels} collnet channels, 0 nvls channels, {p2p_channels} p2p channels, \
                 {per_peer} p2p channels per peer"
            ),
        );
        if self.rank == 0 {
            self.say(lines, format_args!("CC Off, workFifoBytes 1048576"));
        }
        self.say(lines, format_args!("TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin."));
        self.init_line(lines, "Init COMPLETE");
        let part = |which: u64, most: u64| (self.comm.hash(20 + which, self.rank) % most) as f64 / 100.0;
        let (kernels, alloc, bootstrap, connections) = (part(0, 40), part(1, 60), part(2, 20), part(3, 90));
        self.say(
            lines,
            format_args!(
                "Init timings - ncclCommInitRankConfig: rank {} nranks {ranks} total {:.2} (kernels {kernels:.2}, \
                 alloc {alloc:.2}, bootstrap {bootstrap:.2}, allgathers 0.01, topo 0.09, graphs 0.02, connections \
                 {connections:.2}, rest 0.01)",
                self.rank,
                kernels + alloc + bootstrap + connections + 0.13
            ),
        );
    }

    fn destroy(&self, lines: &mut Lines) {
        let (comm, rank, dev) = (self.comm, self.rank, self.local);
        self.say_main(
            lines,
            format_args!(
                "comm {:#x} rank {rank} nranks {} cudaDev {dev} busId {:x}000 - Destroy COMPLETE",
                comm.pointer(rank),
                comm.shape.ranks,
                pci_bus(dev)
            ),
        );
    }
}

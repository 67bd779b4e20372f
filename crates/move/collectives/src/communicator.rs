//! A communicator: ranks that run collectives together, on one host or many.

use crate::algorithms::{self, Algorithm, Choice, Layout};
use crate::connections::Connections;
use crate::host::HostGroup;
use crate::links::Links;
use crate::mesh::Mesh;
use crate::operation::Operation;
use crate::recorded::Recorded;
use crate::subset::Subset;
use busbw_model::Collective;
use busbw_transport::host::{CoreSet, Host, spare_cores};
use busbw_transport::interfaces;
use busbw_transport::shm::{Buffer, Group};
use busbw_transport::tcp::{self, Net};
use busbw_transport::wait::Cores;
use busbw_transport::{Cancellation, Exchange, Result, Token};
use std::sync::Arc;
use std::time::SystemTime;

/// How to make a communicator.
pub struct Options {
    pub token: Token,
    /// Ends every wait when the job fails.
    pub cancel: Arc<Cancellation>,
    pub host: Host,
    pub choice: Choice,
    /// How TCP connections are striped.
    pub tcp: tcp::Config,
    /// By which interfaces other hosts are reached: the value of `NCCL_SOCKET_IFNAME`, where it is set.
    pub interface_names: Option<String>,
    /// By which kind of addresses: the value of `NCCL_SOCKET_FAMILY`, where it is set.
    pub address_family: Option<String>,
}

/// Ranks that run collectives together. One value per rank; operations are called by every rank in the same order.
pub struct Communicator {
    rank: usize,
    size: usize,
    layout: Layout,
    choice: Choice,
    host: HostGroup,
    links: Links<Connections>,
    /// The ranks with this one's number on their hosts, by host.
    rail: Vec<usize>,
    /// The ranks of this host are connected among each other, which only algorithms other than the direct ones need.
    host_is_connected: bool,
    last_choice: Option<((Collective, usize), Algorithm)>,
    /// Where its operations are written down, if somebody reads.
    recorded: Option<Recorded>,
}

/// What each rank tells the others when a communicator is made.
struct Greeting {
    name: String,
    host_id: u64,
    machine: String,
    cores: CoreSet,
    /// By which this communicator differs from others of the same ranks.
    nonce: u128,
}

impl Communicator {
    /// Joins the ranks that `exchange` connects. `local` connects those of them that are on this host, in the same order.
    ///
    /// # Errors
    /// When a rank cannot be reached, an interface cannot be chosen, or memory cannot be shared; the message says which.
    pub fn join(exchange: &mut dyn Exchange, local: &mut dyn Exchange, options: Options) -> Result<Self> {
        let (rank, size) = (exchange.rank(), exchange.size());
        let greetings = greet(exchange, &options.host)?;
        let cores_left = cores_left(&greetings, &greetings[rank].machine);
        let cores = if cores_left.is_some() { Cores::Own } else { Cores::Shared };
        let layout = Layout::new(&greetings.iter().map(|greeting| greeting.host_id).collect::<Vec<_>>());
        let names = greetings.iter().enumerate().map(|(r, g)| format!("rank {r} on host {}", g.name)).collect();
        let mut connections = Connections::new(rank, names);
        let mut lanes = 1;
        if layout.hosts() > 1 {
            let (names, family) = (options.interface_names.as_deref(), options.address_family.as_deref());
            let chosen = interfaces::choose(&interfaces::list()?, names, family)?;
            let config = tcp::Config { spare_cores: cores_left.unwrap_or(0), ..options.tcp };
            let net = Net::new(chosen, config, options.token, Arc::clone(&options.cancel), cores)?;
            lanes = connections.open(net, exchange)?;
        }
        let group = Group::join(local, options.token, Arc::clone(&options.cancel), cores)?;
        let host = HostGroup::new(group)?;
        let rail = rail(&layout, rank);
        let told: Vec<_> = greetings.iter().map(|greeting| (greeting.host_id, greeting.nonce)).collect();
        let recorded = Recorded::begin(rank, size, layout.hosts(), &told);
        let links = Links::new(rank, size, lanes, connections, options.cancel, cores);
        Ok(Communicator {
            rank,
            size,
            layout,
            choice: options.choice,
            host,
            links,
            rail,
            host_is_connected: false,
            last_choice: None,
            recorded,
        })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// What carries the bytes, for people: `shared memory`, `TCP over eth0, eth1`.
    pub fn transports(&self) -> String {
        let local = (self.layout.hosts() < self.size).then(|| "shared memory".to_owned());
        let devices = self.links.connector().devices();
        let remote = (!devices.is_empty()).then(|| format!("TCP over {}", devices.join(", ")));
        local.into_iter().chain(remote).collect::<Vec<_>>().join(" and ")
    }

    /// Why a collective does not go by the algorithm that was asked for, where it does not.
    pub fn note(&self, collective: Collective) -> Option<String> {
        algorithms::choose(collective, usize::MAX / 2, &self.layout, &self.choice).note
    }

    /// Memory that the other ranks of this host can map. Other memory works as well, and costs copies.
    pub fn alloc(&mut self, bytes: usize) -> Result<Buffer> {
        self.host.alloc(bytes)
    }

    /// Runs an operation, until this rank's part of it is done: its result is there and what it gave may be changed.
    ///
    /// # Errors
    /// When a rank has died or disagrees about the operation, or a buffer is too short; nothing can be run after that.
    pub fn run(&mut self, operation: &Operation) -> Result<()> {
        let algorithm = self.algorithm(operation);
        match self.recorded.take() {
            None => self.carry_out(operation, algorithm),
            Some(recorded) => {
                let done = recorded.run(operation, algorithm, || self.carry_out(operation, algorithm));
                self.recorded = Some(recorded);
                done
            }
        }
    }

    fn carry_out(&mut self, operation: &Operation, algorithm: Algorithm) -> Result<()> {
        match algorithm {
            Algorithm::Direct => self.host.run(operation),
            Algorithm::TwoLevel => {
                let me = self.layout.host_rank(self.rank);
                let mut rails = Subset::new(&mut self.links, &self.rail, me.host);
                algorithms::two_level(&self.layout, self.rank, &mut self.host, &mut rails, operation)
            }
            other => {
                self.connect_host()?;
                algorithms::run(&mut self.links, other, operation)
            }
        }
    }

    /// The algorithm for an operation: most are like the one before.
    fn algorithm(&mut self, operation: &Operation) -> Algorithm {
        let kind = (operation.collective, operation.bytes().max(largest_pair(operation)));
        match self.last_choice {
            Some((last, algorithm)) if last == kind => algorithm,
            _ => {
                let chosen = algorithms::choose(kind.0, kind.1, &self.layout, &self.choice);
                self.last_choice = Some((kind, chosen.algorithm));
                chosen.algorithm
            }
        }
    }

    fn connect_host(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.host_is_connected, true) {
            let here = self.layout.host_rank(self.rank).host;
            let ranks: Vec<usize> = (0..self.size).filter(|&rank| self.layout.host_rank(rank).host == here).collect();
            let lanes = self.links.lanes();
            self.links.connector_mut().connect_host(self.host.group(), &ranks, lanes)?;
        }
        Ok(())
    }
}

impl algorithms::HostCollectives for HostGroup {
    fn run(&mut self, op: &Operation<'_>) -> Result<()> {
        HostGroup::run(self, op)
    }
}

/// The ranks with `rank`'s number on their hosts, by host. Hosts that have none are left out.
fn rail(layout: &Layout, rank: usize) -> Vec<usize> {
    let local = layout.host_rank(rank).local;
    let mut ranks: Vec<usize> = (0..layout.ranks()).filter(|&other| layout.host_rank(other).local == local).collect();
    ranks.sort_by_key(|&other| layout.host_rank(other).host);
    ranks
}

/// Bytes of the largest segment of an all-to-all-v.
fn largest_pair(operation: &Operation) -> usize {
    operation.counts.iter().max().map_or(0, |count| count * operation.element())
}

fn greet(exchange: &mut dyn Exchange, host: &Host) -> Result<Vec<Greeting>> {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let mine = [&host.name, &host.id.to_string(), &host.machine, &host.cores.to_string(), &since_1970.to_string()];
    let mine = mine.map(|part| part.replace('\n', " ")).join("\n");
    let all = exchange.all_gather(mine.as_bytes())?;
    Ok(all.iter().map(|theirs| Greeting::parse(&String::from_utf8_lossy(theirs))).collect())
}

impl Greeting {
    fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(str::to_owned);
        let mut next = || lines.next().unwrap_or_default();
        Greeting {
            name: next(),
            host_id: next().parse().unwrap_or_default(),
            machine: next(),
            cores: CoreSet::parse(&next()),
            nonce: next().parse().unwrap_or_default(),
        }
    }
}

/// Cores per rank of a machine that no rank needs; `None` where ranks share cores.
fn cores_left(greetings: &[Greeting], machine: &str) -> Option<usize> {
    let ranks: Vec<CoreSet> = greetings.iter().filter(|g| g.machine == machine).map(|g| g.cores.clone()).collect();
    spare_cores(&ranks)
}

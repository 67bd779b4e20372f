//! TCP between hosts: every connection striped over helper threads × sockets.
//!
//! A connection carries messages one way. It has one control socket, on which small messages travel whole, and several
//! data sockets, on which long messages travel as chunks. The data sockets take chunks in turn, and one that has not drained
//! misses its turn: a slow path carries less, and no flow meets a cloud's single-flow limit before the others. Each chunk
//! says where in its message it belongs, so that it is received straight into the posted room. Two connections between the
//! same two ranks may share a control socket ([`WayBack`]).
//!
//! With helper threads, each moves its share of the data sockets. Without (the ranks need the cores), whoever calls `test`
//! moves them all. Where it is to be found out (`Config::measured`), a connection begins without, and gets helpers one by
//! one as long as each makes it faster.

mod config;
mod connect;
mod failure;
#[cfg(fuzzing)]
pub mod fuzzing;
mod growth;
mod handle;
mod helpers;
mod listen;
mod liveness;
mod receive;
mod receive_control;
mod receive_lane;
mod requests;
mod rest;
mod rooms;
mod send;
mod send_lane;
mod socket;
#[cfg(test)]
mod tests;
mod turn;
mod way_back;
mod wire;
mod workers;
mod zero_copy;

pub use config::Config;
pub use connect::Connecting;
pub use handle::Handle;
pub use listen::Listener;
pub use receive::RecvComm;
pub use rooms::GroupedRoom;
pub use send::SendComm;
pub use way_back::WayBack;

use crate::interfaces::Interface;
use crate::wait::Cores;
use crate::{Cancellation, Error, Result, Token};
use config::Stripes;
use growth::{Budget, Growth};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Most messages of one connection under way: NCCL's 32 requests (`NCCL_NET_MAX_REQUESTS`) of [`MOST_GROUPED`] receives.
pub const MOST_REQUESTS: usize = 256;
/// Most receives posted together.
pub const MOST_GROUPED: usize = 8;

/// The transport over a host's chosen interfaces: one device for each.
pub struct Net {
    interfaces: Vec<Interface>,
    shared: Arc<Shared>,
}

/// What every listener and connection is made with.
#[derive(Clone)]
struct Shared {
    config: Config,
    token: Token,
    cancel: Arc<Cancellation>,
    cores: Cores,
    /// For helpers that are found by measuring.
    budget: Budget,
}

impl Shared {
    /// How a new connection's helpers are found, where they are.
    fn growth(&self) -> Option<Growth> {
        self.config.most_measured(self.cores).map(|most| Growth::new(most, self.budget.clone()))
    }
}

impl Net {
    /// A transport whose listeners let in who holds `token`, which their handles carry. What is moved is counted on `cancel`.
    ///
    /// # Errors
    /// [`Error::Config`] for settings out of range, or without an interface.
    pub fn new(
        interfaces: Vec<Interface>,
        config: Config,
        token: Token,
        cancel: Arc<Cancellation>,
        cores: Cores,
    ) -> Result<Self> {
        config.check()?;
        if interfaces.is_empty() {
            return Err(Error::Config("no network interface to use; set NCCL_SOCKET_IFNAME".into()));
        }
        let budget = Budget::new(config.spare_cores);
        Ok(Net { interfaces, shared: Arc::new(Shared { config, token, cancel, cores, budget }) })
    }

    /// The same devices, with other settings and another token for the listeners to come.
    ///
    /// # Errors
    /// [`Error::Config`] for settings out of range.
    pub fn with(&self, config: Config, token: Token) -> Result<Self> {
        config.check()?;
        let shared = Shared { config, token, ..Shared::clone(&self.shared) };
        Ok(Net { interfaces: self.interfaces.clone(), shared: Arc::new(shared) })
    }

    /// The settings that the network was made with.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The interfaces, one device each: a device's number is its place here.
    pub fn devices(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Listens on a device's own address, on a port that the system chooses.
    pub fn listen(&self, device: usize) -> Result<Listener> {
        Listener::new(self.device(device)?.clone(), Arc::clone(&self.shared))
    }

    /// Starts a connection from a device to a listener; `purpose` is told to the other side. Where the handle has no token,
    /// the listener has this transport's. Never waits: see [`Connecting::poll`].
    pub fn connect(&self, device: usize, handle: &Handle, purpose: u64) -> Result<Connecting> {
        let interface = self.device(device)?.clone();
        let several_devices = self.interfaces.len() > 1;
        let stripes = self.shared.config.stripes(self.shared.cores, sockets_left());
        let stripes = Stripes { sockets: stripes.sockets.min(handle.most_sockets()), ..stripes };
        Connecting::start(
            interface,
            Arc::clone(&self.shared),
            connect::Plan { peer: *handle, purpose, stripes, several_devices },
        )
    }

    fn device(&self, device: usize) -> Result<&Interface> {
        self.interfaces.get(device).ok_or_else(|| {
            Error::Config(format!("there is no network device {device}; there are {}", self.interfaces.len()))
        })
    }
}

/// How many sockets this process may still open, keeping half of its descriptors for the rest.
pub fn sockets_left() -> usize {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_or(1024, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
    // New descriptors get the lowest free number, so that it tells how many are open without counting thousands.
    let open = std::fs::File::open("/dev/null").map_or(limit, |file| file.as_raw_fd() as usize);
    (limit / 2).saturating_sub(open)
}

/// Gives a socket the service and the watch that the settings ask for.
fn settle(fd: &OwnedFd, config: &Config, peer: SocketAddr) {
    // Optional: without it small messages wait for the acknowledgement of those before.
    let _ = socket::set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    if let Some(timeout) = config.timeout {
        liveness::keep_alive(fd, timeout);
    }
    if let Some(class) = config.traffic_class {
        let (level, option) = match peer {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        // Optional: without a traffic class the packets use the default.
        let _ = socket::set_option(fd, level, option, class.into());
    }
}

/// The address of an interface, with the scope that a link-local one needs.
fn socket_address(interface: &Interface, ip: IpAddr, port: u16) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, port, 0, interface.index).into(),
        ip => SocketAddr::new(ip, port),
    }
}

/// Deals items to `hands` in turn.
fn deal<T>(items: Vec<T>, hands: usize) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..hands.min(items.len())).map(|_| Vec::new()).collect();
    let hands = dealt.len().max(1);
    for (i, item) in items.into_iter().enumerate() {
        dealt[i % hands].push(item);
    }
    dealt
}

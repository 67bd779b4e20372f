//! Connecting: all sockets of a connection at once, without waiting.

use super::config::Stripes;
use super::send::{Parts, SendComm};
use super::wire::{Hello, PROTOCOL};
use super::{Config, Handle, Shared, settle, socket, socket_address};
use crate::handshake::{Connector, Failure};
use crate::interfaces::Interface;
use crate::{Error, Result};
use socket2::{Domain, SockAddr, Socket, Type};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Where to, what for and how.
pub(super) struct Plan {
    pub peer: Handle,
    pub purpose: u64,
    pub stripes: Stripes,
    /// Whether the host has other devices that the packets could leave by.
    pub several_devices: bool,
}

/// A connection that is being made. The sending end exists once the listener has let every socket in, for which both sides must
/// be polled.
pub struct Connecting {
    sockets: Vec<Pending>,
    peer: SocketAddr,
    since: Instant,
    threads: usize,
    checksum: bool,
    interface: Interface,
    shared: Arc<Shared>,
}

struct Pending {
    stream: TcpStream,
    connector: Connector,
    /// Whether TCP has connected.
    connected: bool,
    /// Whether the listener has let it in.
    admitted: bool,
}

impl Connecting {
    pub(super) fn start(interface: Interface, shared: Arc<Shared>, plan: Plan) -> Result<Self> {
        let peer = socket_address(&interface, plan.peer.address().ip(), plan.peer.address().port());
        let mut connection = [0; 8];
        getrandom::fill(&mut connection)
            .map_err(|e| Error::Config(format!("the system gives no random bytes for a connection: {e}")))?;
        let token = plan.peer.token().unwrap_or(shared.token);
        let checksum = shared.config.checksum || plan.peer.checksum();
        let mut sockets = Vec::new();
        let fds = open_all(&interface, peer, &shared.config, &plan)?;
        let data_sockets = fds.len() as u16 - 1;
        for (index, fd) in (0..).zip(fds) {
            let hello = Hello {
                index,
                data_sockets,
                inline_up_to: shared.config.inline_up_to as u32,
                connection: u64::from_ne_bytes(connection),
                purpose: plan.purpose,
                checksum,
            };
            let connector = Connector::new(PROTOCOL, hello.to_bytes().to_vec(), move |_| Ok(token))?;
            sockets.push(Pending { stream: fd.into(), connector, connected: false, admitted: false });
        }
        Ok(Connecting {
            sockets,
            peer,
            since: Instant::now(),
            threads: plan.stripes.threads,
            checksum,
            interface,
            shared,
        })
    }

    /// The sending end, once every socket was let in; `None` until then. Never waits.
    ///
    /// # Errors
    /// [`Error::System`] when the peer cannot be reached, naming its address and the interface; [`Error::Protocol`] and
    /// [`Error::Closed`] when the two do not let each other in.
    pub fn poll(&mut self) -> Result<Option<SendComm>> {
        let mut polled: Vec<libc::pollfd> = self
            .sockets
            .iter()
            .map(|socket| libc::pollfd {
                // poll(2) ignores negative descriptors.
                fd: if socket.admitted { -1 } else { socket.stream.as_raw_fd() },
                events: if socket.connected { libc::POLLIN } else { libc::POLLOUT },
                revents: 0,
            })
            .collect();
        // SAFETY: the array has as many entries as the count says.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
        for (socket, polled) in self.sockets.iter_mut().zip(&polled) {
            if polled.revents != 0 {
                let failed = |why: Failure| why.error(self.peer, || what(&self.interface, self.peer));
                socket.connected = true;
                socket.admitted = socket.connector.poll(&mut socket.stream).map_err(failed)?.is_some();
            }
        }
        if self.sockets.is_empty() || !self.sockets.iter().all(|socket| socket.admitted) {
            return match self.shared.config.timeout {
                Some(timeout) if self.since.elapsed() > timeout => {
                    Err(Error::system(what(&self.interface, self.peer), std::io::ErrorKind::TimedOut.into()))
                }
                _ => Ok(None),
            };
        }
        let mut fds = std::mem::take(&mut self.sockets).into_iter().map(|socket| OwnedFd::from(socket.stream));
        let Some(control) = fds.next() else { return Ok(None) };
        let parts = Parts {
            control,
            data: fds.collect(),
            threads: self.threads,
            address: self.peer.to_string(),
            cancel: Arc::clone(&self.shared.cancel),
            checksum: self.checksum,
            growth: self.shared.growth(),
        };
        SendComm::new(parts, &self.shared.config).map(Some)
    }
}

fn what(interface: &Interface, peer: SocketAddr) -> String {
    format!("connect to {peer} from {} ({})", interface.name, interface.address)
}

/// The control socket and the data sockets on their way to `peer`: fewer than planned where descriptors do not suffice.
fn open_all(interface: &Interface, peer: SocketAddr, config: &Config, plan: &Plan) -> Result<Vec<OwnedFd>> {
    let bound = plan.several_devices && interface.same_subnet(peer.ip());
    let mut fds = Vec::new();
    while fds.len() <= plan.stripes.sockets {
        match open(interface, peer, config, bound) {
            Ok(fd) => fds.push(fd),
            Err(error) if short_of_descriptors(&error) && fds.len() > 2 => {
                // Uses half of the descriptors that could be opened, and leaves the rest to others.
                fds.truncate((fds.len() / 2).max(2));
                break;
            }
            Err(error) if short_of_descriptors(&error) => {
                let doing = format!("{} (raise the limit of open files, ulimit -n)", what(interface, peer));
                return Err(Error::system(doing, error));
            }
            Err(error) => return Err(Error::system(what(interface, peer), error)),
        }
    }
    Ok(fds)
}

fn short_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// A socket on its way to `peer`, from the interface's own address.
fn open(interface: &Interface, peer: SocketAddr, config: &Config, bound: bool) -> std::io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if bound {
        // Old kernels require a privilege for this; without it the routing table chooses the interface.
        let _ = socket.bind_device(Some(interface.name.as_bytes()));
    }
    let own = socket_address(interface, interface.address, 0);
    let fd = OwnedFd::from(socket);
    socket::set_congestion(&fd, &config.congestion);
    settle(&fd, config, peer);
    // The port is chosen at connect, so that connections to different peers may share one; old kernels choose it at once.
    let _ = socket::set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
    let socket = Socket::from(fd);
    if own.is_ipv4() == peer.is_ipv4() {
        socket.bind(&SockAddr::from(own))?;
    }
    match socket.connect(&SockAddr::from(peer)) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

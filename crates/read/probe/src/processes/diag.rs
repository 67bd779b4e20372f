//! TCP connections as the kernel's sock_diag(7) lists them: what /proc/net/tcp has, and how many bytes each has carried (`tcp_info` of
//! linux/tcp.h).

use super::connection::{Connection, Timer};
use crate::Root;
use crate::netlink::{self, HEADER, Netlink};
use netlink_packet_core::NlasIterator;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use nix::sched::{CloneFlags, setns};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg` of linux/inet_diag.h.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
/// `INET_DIAG_INFO`, as an attribute; as a wish its bit is one lower.
const INFO: u16 = 2;
/// `tcpi_bytes_acked` and `tcpi_bytes_received`: in the kernel since 4.1.
const ACKED: usize = 120;
const RECEIVED: usize = 128;
/// All states but LISTEN (10), TIME_WAIT (6) and NEW_SYN_RECV (12).
const STATES: u32 = 0xfff & !(1 << 10) & !(1 << 6);
/// More pieces of an answer than any host has sockets for.
const MOST_PIECES: usize = 1 << 16;

/// Asks for the connections of one network.
#[derive(Debug)]
pub(super) struct Lister(Netlink);

impl Lister {
    /// For the network that a process is in: a socket belongs to the network in which it was made, whoever uses it.
    ///
    /// # Errors
    /// It is another network than this process's, and this user may not enter it (CAP_SYS_ADMIN).
    pub fn of(root: &Root, pid: u32) -> io::Result<Self> {
        let network = |pid: &str| root.link_name(&format!("/proc/{pid}/ns/net"));
        if !root.is_live() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if network("self") == network(&pid.to_string()) {
            return Self::open();
        }
        let file = root.open(&format!("/proc/{pid}/ns/net"))?;
        // Only this thread goes there, and it ends.
        let entered = std::thread::spawn(move || {
            setns(&file, CloneFlags::CLONE_NEWNET).map_err(Into::into).and_then(|()| Self::open())
        });
        entered.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    fn open() -> io::Result<Self> {
        Netlink::open(NETLINK_SOCK_DIAG).map(Lister)
    }

    /// All connections.
    ///
    /// # Errors
    /// The kernel has no such list (`tcp_diag` is not loaded).
    pub fn list(&mut self) -> io::Result<Vec<Connection>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let unknown = |_: &[u8]| Err(io::ErrorKind::Unsupported.into());
            self.0.list(&request(family as u8), MOST_PIECES, unknown, |payload| found.extend(connection(payload)))?;
        }
        Ok(found)
    }
}

fn request(family: u8) -> Vec<u8> {
    let mut bytes = netlink::request(BY_FAMILY, REQUEST);
    bytes[HEADER..HEADER + 3].copy_from_slice(&[family, libc::IPPROTO_TCP as u8, 1 << (INFO - 1)]);
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&STATES.to_ne_bytes());
    bytes
}

fn connection(payload: &[u8]) -> Option<Connection> {
    let number = |at: usize| Some(u32::from_ne_bytes(*payload.get(at..)?.first_chunk()?));
    let port = |at: usize| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    let address = |at: usize| -> Option<IpAddr> {
        Some(match i32::from(*payload.first()?) {
            libc::AF_INET => Ipv4Addr::from(*payload.get(at..)?.first_chunk::<4>()?).into(),
            _ => Ipv6Addr::from(*payload.get(at..)?.first_chunk::<16>()?).to_canonical(),
        })
    };
    let (timer, retransmits) = (*payload.get(2)?, *payload.get(3)?);
    let found = Connection {
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        state: *payload.get(1)?,
        unread: number(56)?.into(),
        unacknowledged: number(60)?.into(),
        inode: number(68)?.into(),
        timer: Timer::of(timer),
        retransmits: retransmits.into(),
        carried: carried(payload.get(ANSWER..)?),
    };
    (found.inode != 0).then_some(found)
}

/// Of the attributes behind a connection, its counters.
fn carried(attributes: &[u8]) -> Option<u64> {
    let info = NlasIterator::new(attributes).map_while(Result::ok).find(|attribute| attribute.kind() == INFO)?;
    let number = |at: usize| Some(u64::from_ne_bytes(*info.value().get(at..)?.first_chunk()?));
    Some(number(ACKED)? + number(RECEIVED)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_of_this_process_is_listed_with_what_it_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut far, _) = listener.accept().expect("somebody came");
        near.write_all(&[7; 1000]).expect("room");
        far.read_exact(&mut [0; 400]).expect("bytes");
        let mut lister = Lister::of(&Root::live(), std::process::id()).expect("its own network");
        let listed = lister.list().expect("a list");
        let (here, there) = (near.local_addr().expect("bound"), near.peer_addr().expect("connected"));
        let one = listed.iter().find(|one| one.local == here && one.remote == there).expect("it is listed");
        assert_eq!(
            (one.state, one.carried, one.unacknowledged),
            (1, Some(1000 + u64::from(one.carried == Some(1001))), 0)
        );
        let other = listed.iter().find(|one| one.local == there && one.remote == here).expect("its other end");
        assert_eq!((other.unread, other.carried), (600, Some(1000)));
    }
}

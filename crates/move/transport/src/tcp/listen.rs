//! Listening: lets in the connections that show the listener's token, and drops all others without disturbing those.

use super::receive::RecvComm;
use super::send::Parts;
use super::socket::{self, Received};
use super::wire::Hello;
use super::{Config, Handle, Shared, settle, socket_address, sockets_left};
use crate::interfaces::Interface;
use crate::{Error, Result};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits for connections on one device's address.
pub struct Listener {
    socket: Socket,
    handle: Handle,
    strangers: Vec<Stranger>,
    joining: HashMap<u64, Joining>,
    dropped: VecDeque<String>,
    shared: Arc<Shared>,
}

/// A socket that has not shown who it is.
struct Stranger {
    fd: OwnedFd,
    from: SocketAddr,
    since: Instant,
    hello: [u8; Hello::SIZE],
    received: usize,
}

/// A connection of which not every socket is there.
struct Joining {
    sockets: Vec<Option<OwnedFd>>,
    missing: usize,
    hello: Hello,
    from: SocketAddr,
    since: Instant,
}

impl Listener {
    /// A connection that says nothing for so long is dropped.
    const SILENCE: Duration = Duration::from_secs(10);
    /// A connection whose other sockets do not follow for so long is dropped.
    const INCOMPLETE: Duration = Duration::from_secs(120);
    /// Connections in the kernel's queue; the system's own limit may be lower.
    const BACKLOG: i32 = 16384;
    /// Why connections were dropped is kept for so many of the latest.
    const MOST_TOLD: usize = 64;

    pub(super) fn new(interface: Interface, shared: Arc<Shared>) -> Result<Self> {
        let address = socket_address(&interface, interface.address, 0);
        let socket = listen(address)
            .map_err(|e| Error::system(format!("listen on {} ({})", interface.name, address.ip()), e))?;
        let bound = socket
            .local_addr()
            .ok()
            .and_then(|address| address.as_socket())
            .ok_or_else(|| Error::last_os("ask for the port of a listener"))?;
        let most_sockets = shared.config.stripes(shared.cores, sockets_left()).sockets.min(Config::MOST_SOCKETS);
        Ok(Listener {
            socket,
            handle: Handle::new(bound, shared.token, shared.config.checksum, most_sockets as u8),
            strangers: Vec::new(),
            joining: HashMap::new(),
            dropped: VecDeque::new(),
            shared,
        })
    }

    /// Where it listens, to be told to those who are to connect.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The next connection whose sockets have all come, with the purpose that its connector stated; `None` when there is
    /// none now. Never waits.
    pub fn accept(&mut self) -> Result<Option<(RecvComm, u64)>> {
        self.take_new()?;
        self.greet();
        let waited = Instant::now();
        let late = |joining: &Joining| waited.duration_since(joining.since) > Self::INCOMPLETE;
        let missed: Vec<Joining> =
            self.joining.extract_if(|_, joining| late(joining)).map(|(_, joining)| joining).collect();
        for joining in missed {
            self.tell_dropped(joining.from, &format!("{} of its sockets never came", joining.missing));
        }
        let Some(complete) = self.joining.iter().find(|(_, joining)| joining.missing == 0).map(|(id, _)| *id) else {
            return Ok(None);
        };
        self.joining.remove(&complete).map(|joining| self.join(joining)).transpose()
    }

    /// Which connections were dropped since the last call, and why: lines for a log, of the latest where there are many.
    pub fn dropped(&mut self) -> Vec<String> {
        self.dropped.drain(..).collect()
    }

    fn tell_dropped(&mut self, from: SocketAddr, why: &str) {
        if self.dropped.len() == Self::MOST_TOLD {
            self.dropped.pop_front();
        }
        self.dropped.push_back(format!("{from} was dropped: {why}"));
    }

    fn take_new(&mut self) -> Result<()> {
        loop {
            match self.socket.accept() {
                Ok((socket, from)) => {
                    let Some(from) = from.as_socket() else { continue };
                    let fd = OwnedFd::from(socket);
                    settle(&fd, &self.shared.config, from);
                    let stranger = Stranger { fd, from, since: Instant::now(), hello: [0; Hello::SIZE], received: 0 };
                    self.strangers.push(stranger);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    // Ended before it was accepted.
                    Some(libc::ECONNABORTED | libc::EINTR | libc::EPERM | libc::EPROTO) => {}
                    Some(libc::EMFILE | libc::ENFILE) if self.make_room() => {}
                    _ => {
                        let what = format!(
                            "accept a connection on {}; is the limit of open files (ulimit -n) too low?",
                            self.handle.address()
                        );
                        return Err(Error::system(what, error));
                    }
                },
            }
        }
    }

    /// Closes the socket of one that has not said who it is, if there is one.
    fn make_room(&mut self) -> bool {
        // Those that only nobody has listened to yet are none.
        self.greet();
        if self.strangers.is_empty() {
            return false;
        }
        let oldest = self.strangers.remove(0);
        self.tell_dropped(oldest.from, "too many files are open");
        true
    }

    /// Reads what strangers have to say.
    fn greet(&mut self) {
        let mut at = 0;
        while at < self.strangers.len() {
            let stranger = &mut self.strangers[at];
            let verdict = match socket::receive_into(&stranger.fd, &mut stranger.hello[stranger.received..]) {
                Ok(Received::Bytes(bytes)) => {
                    stranger.received += bytes;
                    match stranger.received {
                        Hello::SIZE => {
                            Hello::from_bytes(&stranger.hello, &self.shared.token, Config::MOST_SOCKETS).map(Some)
                        }
                        _ => Ok(None),
                    }
                }
                Ok(Received::Nothing) if stranger.since.elapsed() > Self::SILENCE => Err("it said nothing"),
                Ok(Received::Nothing) => Ok(None),
                Ok(Received::Ended) | Err(_) => Err("it closed before it said who it is"),
            };
            match verdict {
                Ok(None) => at += 1,
                Ok(Some(hello)) => {
                    let stranger = self.strangers.remove(at);
                    self.let_in(stranger, hello);
                }
                Err(why) => {
                    let stranger = self.strangers.remove(at);
                    self.tell_dropped(stranger.from, why);
                }
            }
        }
    }

    fn let_in(&mut self, stranger: Stranger, hello: Hello) {
        let joining = self.joining.entry(hello.connection).or_insert_with(|| {
            let sockets = usize::from(hello.data_sockets) + 1;
            Joining {
                sockets: (0..sockets).map(|_| None).collect(),
                missing: sockets,
                hello,
                from: stranger.from,
                since: Instant::now(),
            }
        });
        match joining.sockets.get_mut(usize::from(hello.index)) {
            Some(place @ None) => {
                *place = Some(stranger.fd);
                joining.missing -= 1;
            }
            _ => self.tell_dropped(stranger.from, "it repeats a socket of a connection"),
        }
    }

    fn join(&self, joining: Joining) -> Result<(RecvComm, u64)> {
        let purpose = joining.hello.purpose;
        let mut fds = joining.sockets.into_iter().flatten();
        let Some(control) = fds.next() else { return Err(Error::Config("a connection without sockets".into())) };
        let data: Vec<OwnedFd> = fds.collect();
        let parts = Parts {
            control,
            data,
            threads: self.shared.config.stripes(self.shared.cores, usize::MAX).threads,
            address: joining.from.to_string(),
            cancel: Arc::clone(&self.shared.cancel),
            checksum: joining.hello.checksum,
            growth: self.shared.growth(),
        };
        Ok((RecvComm::new(parts, joining.hello.inline_up_to as usize)?, purpose))
    }
}

fn listen(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(Listener::BACKLOG)?;
    Ok(socket)
}

//! Where rank 0 listens, and how the others come to know: by an agreed address, a key-value store, or derived ports.

use super::TokenFrom;
use crate::derive::Words;
use crate::job_rank::{Discovery, JobRank};
use crate::keyvalue::TcpStore;
use crate::secret::{Way, disagree};
use crate::{Error, Lookup, Result, host, keyvalue};
use busbw_transport::Token;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Instant;

/// What a process needs to reach rank 0.
pub(super) struct ServerAddress {
    pub token: TokenFrom,
    /// What rank 0 tells everyone who connects, by which those who do not know the token may find it.
    pub offer: Vec<u8>,
    /// Addresses to try, in turn.
    pub addresses: Vec<SocketAddr>,
    /// In rank 0's process.
    pub listener: Option<TcpListener>,
    /// Where the others look again, since what they found may be of an earlier run in this job.
    pub store: Option<InStore>,
    /// What rank 0 has put somewhere. It is taken back when this is dropped: once all have come.
    pub kept: Option<Box<dyn Send>>,
}

impl ServerAddress {
    fn listening(listener: TcpListener, token: Token) -> Result<ServerAddress> {
        let address = listener.local_addr().map_err(|e| Error::system("listen for the other ranks", e))?;
        Ok(ServerAddress { listener: Some(listener), ..ServerAddress::elsewhere(token, vec![address]) })
    }

    fn elsewhere(token: Token, addresses: Vec<SocketAddr>) -> ServerAddress {
        ServerAddress {
            token: TokenFrom::Here(token),
            offer: Vec::new(),
            addresses,
            listener: None,
            store: None,
            kept: None,
        }
    }
}

/// How a process finds rank 0, or is found as rank 0: it may listen at `bind`, and has until `deadline`.
pub(super) struct Finder<'a> {
    pub job_rank: &'a JobRank,
    pub look: Lookup<'a>,
    pub bind: Option<IpAddr>,
    pub deadline: Instant,
    pub log: &'a (dyn Fn(&str) + Send + Sync),
}

impl Finder<'_> {
    pub fn find(&self) -> Result<ServerAddress> {
        match &self.job_rank.discovery {
            Discovery::Alone => ServerAddress::listening(bind_loopback()?, Token::random()?),
            Discovery::Fixed { address, token, listener } => fixed(self.job_rank.rank, address, *token, *listener),
            Discovery::TcpStore { host, port, words } => self.stored(host, *port, words),
            Discovery::Derived { words, host } => self.derived(host, words),
            discovery @ (Discovery::Pmix { .. } | Discovery::Pmi1 { .. } | Discovery::Pmi2 { .. }) => {
                self.published(discovery)
            }
        }
    }

    /// Listens where the others learn the address from this rank, which is 0. `near` is an address of this host's that they may know.
    fn listen(&self, near: Option<IpAddr>) -> Result<(ServerAddress, String)> {
        let near = near.filter(|_| !self.job_rank.one_host());
        let ip = own_address(self.job_rank, self.bind.or(near))?;
        let listener = TcpListener::bind((ip, 0)).map_err(|e| Error::system(format!("listen on {ip}"), e))?;
        let given = self.job_rank.token;
        let token = given.map_or_else(Token::random, Ok)?;
        let found = ServerAddress::listening(listener, token)?;
        // What every rank has already stays out of the store.
        let shown = if given.is_some() { String::new() } else { token.to_string() };
        let text = format!("{}/{shown}", found.addresses[0]);
        Ok((found, text))
    }

    fn published(&self, discovery: &Discovery) -> Result<ServerAddress> {
        if self.job_rank.rank == 0 {
            let (found, text) = self.listen(None)?;
            keyvalue::share(discovery, 0, Some(&text), self.deadline)?;
            return Ok(found);
        }
        let text = keyvalue::share(discovery, self.job_rank.rank, None, self.deadline)?;
        let (address, token) = read_published(&text, self.job_rank.token)?;
        Ok(ServerAddress::elsewhere(token, vec![address]))
    }

    fn stored(&self, host: &str, port: u16, words: &Words) -> Result<ServerAddress> {
        let key = format!("busbw/{}", words.name());
        if self.job_rank.rank == 0 {
            let mut store = TcpStore::connect(host, port, self.deadline)?;
            let (found, text) = self.listen(store.own_address())?;
            store.put(&key, &text)?;
            return Ok(ServerAddress { kept: Some(Box::new(store)), ..found });
        }
        let store = InStore { host: host.to_owned(), port, key, given: self.job_rank.token };
        let (address, token) = store.read(self.deadline)?;
        Ok(ServerAddress { store: Some(store), ..ServerAddress::elsewhere(token, vec![address]) })
    }

    fn derived(&self, name: &str, words: &Words) -> Result<ServerAddress> {
        let way = Way::choose(self.job_rank, words, self.look);
        let (ips, same_everywhere) = addresses_of(self.job_rank, name)?;
        let ports = words.ports();
        if self.job_rank.rank != 0 {
            let at = |&port| ips.iter().map(move |&ip| SocketAddr::new(ip, port));
            let addresses = ports.iter().flat_map(at).collect();
            return Ok(ServerAddress {
                token: TokenFrom::offer(way, *words),
                ..ServerAddress::elsewhere(words.token(), addresses)
            });
        }
        // A host often resolves its own name to the loopback, by which the others cannot come.
        let only_loopback = ips.iter().all(IpAddr::is_loopback) && !self.job_rank.one_host() && !same_everywhere;
        let ips = if only_loopback { vec![own_address(self.job_rank, self.bind)?] } else { ips };
        let listener = bind_one(&ips, &ports, name)?;
        way.warning().iter().for_each(|warning| (self.log)(warning));
        let shared = way.share(words)?;
        let kept = shared.kept.map(|kept| Box::new(kept) as Box<dyn Send>);
        Ok(ServerAddress { offer: shared.offer, kept, ..ServerAddress::listening(listener, shared.token)? })
    }
}

/// Where rank 0 puts its address and token in torchrun's store.
pub(super) struct InStore {
    host: String,
    port: u16,
    key: String,
    given: Option<Token>,
}

impl InStore {
    pub fn read(&self, deadline: Instant) -> Result<(SocketAddr, Token)> {
        read_published(&TcpStore::connect(&self.host, self.port, deadline)?.get(&self.key)?, self.given)
    }
}

/// Rank 0's address and the token, of `ADDRESS/TOKEN`, or of `ADDRESS/` where every rank has BUSBW_TOKEN.
fn read_published(text: &str, given: Option<Token>) -> Result<(SocketAddr, Token)> {
    // Of what may hold a token, nothing is shown.
    let none = || Error::Join("what rank 0 published is no address: start the same busbw on every rank".into());
    let (address, token) = text.split_once('/').ok_or_else(none)?;
    let address = address.parse().map_err(|_| none())?;
    match (token, given) {
        ("", Some(given)) => Ok((address, given)),
        ("", None) => Err(disagree("BUSBW_TOKEN", "the launcher's store")),
        (_, Some(_)) => Err(disagree("the launcher's store", "BUSBW_TOKEN")),
        (token, None) => Ok((address, token.parse().map_err(|_| none())?)),
    }
}

fn bind_loopback() -> Result<TcpListener> {
    let four = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    four.or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))
        .map_err(|e| Error::system("listen on the loopback interface", e))
}

/// Where rank 0 of this job should listen when the others learn the address from it.
fn own_address(job_rank: &JobRank, bind: Option<IpAddr>) -> Result<IpAddr> {
    if let Some(chosen) = bind {
        return Ok(chosen);
    }
    if job_rank.one_host() {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    host::outward_address().ok_or_else(|| {
        Error::Join("this host has no address that other hosts could reach: bring up an interface (ip addr), or name it in NCCL_SOCKET_IFNAME".into())
    })
}

fn fixed(rank: usize, address: &str, token: Token, listener: Option<i32>) -> Result<ServerAddress> {
    let (name, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let wrong = |problem: &str| Error::variable("BUSBW_RENDEZVOUS", address, problem);
    let port = port.parse().map_err(|_| wrong("has no port"))?;
    let addresses = host::resolve(name, port)
        .ok_or_else(|| wrong("names a host that does not resolve here: correct the name, or give rank 0's address"))?;
    if rank != 0 {
        return Ok(ServerAddress::elsewhere(token, addresses));
    }
    if let Some(fd) = listener {
        return ServerAddress::listening(inherited(fd)?, token);
    }
    let bound = addresses.iter().map(TcpListener::bind).reduce(|bound, next| bound.or(next));
    match bound {
        Some(Ok(listener)) => ServerAddress::listening(listener, token),
        Some(Err(error)) => Err(wrong(match error.kind() {
            std::io::ErrorKind::AddrInUse => "is in use on this host: choose another port",
            std::io::ErrorKind::AddrNotAvailable => {
                "is no address of this host, on which rank 0 runs: give rank 0's address"
            }
            std::io::ErrorKind::PermissionDenied => "may not be listened on: choose a port above 1023",
            _ => return Err(Error::system(format!("listen on BUSBW_RENDEZVOUS={address}"), error)),
        })),
        None => Err(wrong("has no address")),
    }
}

/// Takes over the listening socket that our local spawn left to rank 0.
fn inherited(fd: i32) -> Result<TcpListener> {
    let wrong = || {
        Error::variable(
            "BUSBW_LISTENER",
            &fd.to_string(),
            "is no listening socket: unset it, it is set by busbw itself",
        )
    };
    // SAFETY: only looks at the number; an fd that is not open gives an error.
    let open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    if fd <= 2 || !open {
        return Err(wrong());
    }
    // SAFETY: the descriptor is open, above the standard ones, and was left to this process for this one use.
    let socket = socket2::Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    if !socket.is_listener().unwrap_or(false) {
        // It belongs to whoever opened it.
        std::mem::forget(socket);
        return Err(wrong());
    }
    socket.set_cloexec(true).map_err(|e| Error::system("keep BUSBW_LISTENER to this process", e))?;
    Ok(socket.into())
}

fn bind_one(ips: &[IpAddr], ports: &[u16], name: &str) -> Result<TcpListener> {
    let mut last = None;
    for &port in ports {
        for &ip in ips {
            match TcpListener::bind((ip, port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
    }
    let problem = last.map_or_else(|| "no address".into(), |error| error.to_string());
    Err(Error::Join(format!(
        "rank 0 can listen on none of the {} ports of this job at {name} ({problem}): rank 0 must run on that host; or set \
         BUSBW_RENDEZVOUS=ADDRESS:PORT and BUSBW_TOKEN on every rank",
        ports.len()
    )))
}

/// The addresses of rank 0's host, and whether every host takes the name to mean the same.
fn addresses_of(job_rank: &JobRank, name: &str) -> Result<(Vec<IpAddr>, bool)> {
    let ips = |addresses: Vec<SocketAddr>| addresses.into_iter().map(|address| address.ip()).collect();
    if let Some(addresses) = host::resolve(name, 0) {
        return Ok((ips(addresses), name == "localhost" || name.parse::<IpAddr>().is_ok()));
    }
    let by_slurm = (job_rank.launcher == crate::Launcher::Srun).then(|| slurm_address(name)).flatten();
    if let Some(addresses) = by_slurm.and_then(|address| host::resolve(&address, 0)) {
        return Ok((ips(addresses), true));
    }
    Err(Error::Join(format!(
        "rank 0's host {name} does not resolve on this host: add it to DNS or /etc/hosts, or set \
         BUSBW_RENDEZVOUS=ADDRESS:PORT and BUSBW_TOKEN on every rank"
    )))
}

/// The address that Slurm itself uses for a node.
fn slurm_address(node: &str) -> Option<String> {
    let shown = std::process::Command::new("scontrol").args(["--oneliner", "show", "node", node]).output().ok()?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    text.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rank_0_publishes_has_a_token_unless_every_rank_has_it() {
        let token: Token = "00112233445566778899aabbccddeeff".parse().unwrap();
        let other = Token::random().unwrap();
        let published = |text: &str, given| read_published(text, given).map_err(|error| error.to_string());
        for (text, given) in [(format!("10.0.0.1:7/{token}"), None), ("[fd00::1]:7/".into(), Some(token))] {
            let (address, read) = published(&text, given).unwrap();
            assert!(address.port() == 7 && read.matches(token.as_bytes()), "{text}");
        }
        for (text, given, says) in [
            ("10.0.0.1:7/", None, "by BUSBW_TOKEN, this rank by the launcher's store"),
            (&format!("10.0.0.1:7/{token}"), Some(other), "by the launcher's store, this rank by BUSBW_TOKEN"),
            ("10.0.0.1:7", None, "no address"),
            ("somewhere/", Some(token), "no address"),
            ("10.0.0.1:7/001122", None, "no address"),
        ] {
            let error = published(text, given).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}

//! Where rank 0 listens, and how the others come to know: by an agreed address, a key-value store, or derived ports.

use super::TokenFrom;
use crate::job_rank::{Discovery, JobRank};
use crate::{Error, Result, derive, host, keyvalue};
use busbw_transport::Token;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Instant;

/// What a process needs to reach rank 0.
pub(super) struct Found {
    pub token: TokenFrom,
    /// What rank 0 tells everyone who connects, by which those who do not know the token may find it.
    pub offer: Vec<u8>,
    /// Addresses to try, in turn.
    pub addresses: Vec<SocketAddr>,
    /// In rank 0's process.
    pub listener: Option<TcpListener>,
}

impl Found {
    fn listening(listener: TcpListener, token: Token) -> Result<Found> {
        let address = listener.local_addr().map_err(|e| Error::system("listen for the other ranks", e))?;
        Ok(Found { listener: Some(listener), ..Found::elsewhere(token, vec![address]) })
    }

    fn elsewhere(token: Token, addresses: Vec<SocketAddr>) -> Found {
        Found { token: TokenFrom::Here(token), offer: Vec::new(), addresses, listener: None }
    }
}

pub(super) fn find(job_rank: &JobRank, bind: Option<IpAddr>, deadline: Instant) -> Result<Found> {
    match &job_rank.discovery {
        Discovery::Alone => Found::listening(bind_loopback()?, Token::random()?),
        Discovery::Fixed { address, token, listener } => fixed(job_rank.rank, address, *token, *listener),
        Discovery::Derived { token, host } => derived(job_rank, bind, host, *token),
        discovery @ (Discovery::Pmix { .. } | Discovery::Pmi1 { .. } | Discovery::Pmi2 { .. }) => {
            published(job_rank, discovery, bind, deadline)
        }
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

fn fixed(rank: usize, address: &str, token: Token, listener: Option<i32>) -> Result<Found> {
    let (name, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let wrong = |problem: &str| Error::variable("BUSBW_RENDEZVOUS", address, problem);
    let port = port.parse().map_err(|_| wrong("has no port"))?;
    let addresses = host::resolve(name, port)
        .ok_or_else(|| wrong("names a host that does not resolve here: correct the name, or give rank 0's address"))?;
    if rank != 0 {
        return Ok(Found::elsewhere(token, addresses));
    }
    if let Some(fd) = listener {
        return Found::listening(inherited(fd)?, token);
    }
    let bound = addresses.iter().map(TcpListener::bind).reduce(|bound, next| bound.or(next));
    match bound {
        Some(Ok(listener)) => Found::listening(listener, token),
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

fn published(job_rank: &JobRank, discovery: &Discovery, bind: Option<IpAddr>, deadline: Instant) -> Result<Found> {
    if job_rank.rank == 0 {
        let ip = own_address(job_rank, bind)?;
        let listener = TcpListener::bind((ip, 0)).map_err(|e| Error::system(format!("listen on {ip}"), e))?;
        let token = Token::random()?;
        let found = Found::listening(listener, token)?;
        keyvalue::share(discovery, 0, Some(&format!("{}/{token}", found.addresses[0])), deadline)?;
        return Ok(found);
    }
    let text = keyvalue::share(discovery, job_rank.rank, None, deadline)?;
    let parts = text.split_once('/').and_then(|(address, token)| Some((address.parse().ok()?, token.parse().ok()?)));
    let (address, token): (SocketAddr, Token) = parts.ok_or_else(|| {
        Error::Join(format!("rank 0 published {text:?}, no address: start the same busbw on every rank"))
    })?;
    Ok(Found::elsewhere(token, vec![address]))
}

fn derived(job_rank: &JobRank, bind: Option<IpAddr>, name: &str, token: Token) -> Result<Found> {
    let ports = derive::ports(&token);
    let (ips, same_everywhere) = addresses_of(job_rank, name)?;
    if job_rank.rank != 0 {
        let addresses = ports.iter().flat_map(|&port| ips.iter().map(move |&ip| SocketAddr::new(ip, port))).collect();
        return Ok(Found::elsewhere(token, addresses));
    }
    // A host often resolves its own name to the loopback, by which the others cannot come.
    let only_loopback = ips.iter().all(IpAddr::is_loopback) && !job_rank.one_host() && !same_everywhere;
    let ips = if only_loopback { vec![own_address(job_rank, bind)?] } else { ips };
    let mut last = None;
    for &port in &ports {
        for &ip in &ips {
            match TcpListener::bind((ip, port)) {
                Ok(listener) => return Found::listening(listener, token),
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

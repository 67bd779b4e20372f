//! How the ranks of a host find and check each other: a Unix socket between every two, and proofs of the job's token over it.
//!
//! This is no [`crate::handshake`]: the kernel says whose process is at the other end, messages keep their borders and carry
//! descriptors, and the listener's name is a random number of its own that only the job's ranks were told. So one message each
//! way does, with a proof that is bound to this name, the role and the rank.

use super::control::Control;
use super::cross::{self, Attachable, Way};
use super::link::Peer;
use super::socket;
use crate::{Cancellation, Error, Exchange, Result, Token};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the other ranks of the host may take to come, once all have told their addresses.
const PATIENCE_S: u64 = 30;
/// Strays that may wait to be heard at once.
const STRAYS: usize = 16;
/// Who gives a proof.
const CONNECTOR: &[u8] = b"shm connector";
const LISTENER: &[u8] = b"shm listener";

/// A role, and the name of the listener.
type Bound<'a> = (&'static [u8], &'a [u8]);

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::Config(format!("the system gives no random bytes: {e}")))?;
    Ok(bytes)
}

/// Connects the ranks of the host that `exchange` joins. `None` stands for this rank itself.
pub(super) fn meet(
    exchange: &mut dyn Exchange,
    token: Token,
    cancel: &Cancellation,
    own: &Control,
) -> Result<Vec<Option<Peer>>> {
    let (rank, size) = (exchange.rank(), exchange.size());
    let name: [u8; 16] = random()?;
    let listener = socket::listen_at(&name, size + STRAYS)?;
    let names = exchange.all_gather(&name)?;
    let joining =
        Joining { rank, size, token, cancel, own, deadline: Instant::now() + Duration::from_secs(PATIENCE_S) };
    let mut peers: Vec<Option<Peer>> = (0..size).map(|_| None).collect();
    for (lower, name) in names.iter().enumerate().take(rank) {
        let known = format!("local rank {lower}");
        let connection = socket::connect_to(name, &known, PATIENCE_S as i64)?;
        if !same_user(&connection)? {
            return Err(Error::Protocol { peer: known, what: "its name from another user's process".into() });
        }
        joining.hello(&connection, &known, (CONNECTOR, name))?;
        let patience = Duration::from_secs(PATIENCE_S);
        let Some((shown, control)) = joining.heard(&connection, &known, (LISTENER, name), patience)? else {
            return Err(Error::Protocol {
                peer: known,
                what: "no proof that it has the job's token when it was connected to".into(),
            });
        };
        if shown != lower {
            return Err(Error::Protocol { peer: known, what: format!("that it is local rank {shown}") });
        }
        peers[lower] = Some(joining.peer(lower, control, connection)?);
    }
    joining.accept((&listener, &name), &mut peers)?;
    Ok(peers)
}

/// Whether every rank can read every other's memory by system call, with what lets them. All ranks get the same answer.
pub(super) fn cross_memory(
    exchange: &mut dyn Exchange,
    own: &Control,
    peers: &[Option<Peer>],
) -> Result<(bool, Option<Attachable>)> {
    let attachable = Attachable::by(peers.iter().flatten().map(|peer| peer.process));
    own.probe().store(u64::from_ne_bytes(random()?), Ordering::Release);
    let addresses = exchange.all_gather(&(own.probe().as_ptr() as u64).to_ne_bytes())?;
    let reads = |peer: &Peer, address: &[u8]| {
        let Ok(address) = address.try_into().map(u64::from_ne_bytes) else { return false };
        let mut found = [0; 8];
        // SAFETY: reads eight bytes into eight bytes.
        let read =
            unsafe { cross::move_bytes(Way::FromPeer, peer.process, &peer.name, found.as_mut_ptr(), address, 8) };
        read.is_ok() && u64::from_ne_bytes(found) == peer.control.probe().load(Ordering::Acquire)
    };
    let pairs = peers.iter().zip(&addresses).filter_map(|(peer, address)| peer.as_ref().map(|peer| (peer, address)));
    let works = pairs.into_iter().all(|(peer, address)| reads(peer, address));
    let works = exchange.all_gather(&[u8::from(works)])?.iter().all(|answer| answer == &[1]);
    Ok((works, attachable.filter(|_| works)))
}

fn same_user(connection: &OwnedFd) -> Result<bool> {
    Ok(socket::credentials(connection)?.uid() == nix::unistd::geteuid().as_raw())
}

struct Joining<'a> {
    rank: usize,
    size: usize,
    token: Token,
    cancel: &'a Cancellation,
    own: &'a Control,
    deadline: Instant,
}

impl Joining<'_> {
    /// Proves that this rank holds the token, and hands over its control page.
    fn hello(&self, connection: &OwnedFd, peer: &str, (role, name): Bound<'_>) -> Result<()> {
        let rank = (self.rank as u64).to_ne_bytes();
        let message = [&self.token.prove(&[role, name, &rank])[..], &rank].concat();
        socket::send(connection, &message, Some(self.own.fd()), peer)?;
        Ok(())
    }

    /// What the other end says within `patience`: its rank and control page, if its proof is right.
    fn heard(
        &self,
        connection: &OwnedFd,
        peer: &str,
        (role, name): Bound<'_>,
        patience: Duration,
    ) -> Result<Option<(usize, OwnedFd)>> {
        let until = Instant::now() + patience;
        loop {
            self.cancel.check()?;
            if let Some(message) = socket::receive(connection, peer)? {
                let Some((proof, told)) = message.bytes.split_at_checked(Token::PROOF) else { return Ok(None) };
                let proven = self.token.is_proven(&[role, name, told], proof);
                let rank = told.try_into().map(u64::from_ne_bytes).ok().and_then(|rank| usize::try_from(rank).ok());
                return Ok(rank.zip(message.file).filter(|(rank, _)| proven && *rank < self.size));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            socket::wait_readable(connection, u16::try_from(patience.as_millis()).unwrap_or(100).min(100));
        }
    }

    fn peer(&self, rank: usize, control: OwnedFd, connection: OwnedFd) -> Result<Peer> {
        let process = socket::credentials(&connection)?.pid();
        let name = format!("local rank {rank} (process {process})");
        let control = Control::adopt(control, self.size, &name)?;
        Ok(Peer::new(name, process, control, connection))
    }

    /// Lets the higher ranks in. What proves nothing is dropped; what says nothing waits aside meanwhile.
    fn accept(&self, (listener, name): (&OwnedFd, &[u8]), peers: &mut [Option<Peer>]) -> Result<()> {
        let mut silent: Vec<OwnedFd> = Vec::new();
        while let Some(missing) = (self.rank + 1..self.size).find(|rank| peers[*rank].is_none()) {
            self.cancel.check()?;
            if Instant::now() >= self.deadline {
                let after = format!("local rank {missing} did not come within {PATIENCE_S} s");
                return Err(Error::Config(format!("{after}; look at that rank's output for why")));
            }
            for connection in std::mem::take(&mut silent) {
                self.admit((connection, name), peers, &mut silent)?;
            }
            silent.drain(..silent.len().saturating_sub(STRAYS + self.size));
            socket::wait_readable(listener, if silent.is_empty() { 100 } else { 1 });
            if let Some(connection) = socket::accept_from(listener)? {
                self.admit((connection, name), peers, &mut silent)?;
            }
        }
        Ok(())
    }

    /// Admits a connection that has proven itself, drops a stray, or puts a silent one aside.
    fn admit(
        &self,
        (connection, name): (OwnedFd, &[u8]),
        peers: &mut [Option<Peer>],
        silent: &mut Vec<OwnedFd>,
    ) -> Result<()> {
        if !same_user(&connection)? {
            return Ok(());
        }
        if !socket::wait_readable(&connection, 0) {
            silent.push(connection);
            return Ok(());
        }
        let Ok(Some((rank, control))) = self.heard(&connection, "a connection", (CONNECTOR, name), Duration::ZERO)
        else {
            return Ok(());
        };
        if rank <= self.rank || peers[rank].is_some() {
            return Ok(());
        }
        self.hello(&connection, &format!("local rank {rank}"), (LISTENER, name))?;
        peers[rank] = Some(self.peer(rank, control, connection)?);
        Ok(())
    }
}

//! Ranks that were let in and say anything, for fuzz targets.

use super::{Connection, Plan, Server};
use crate::frames::Inbox;
use crate::wire::{LONGEST_FRAME, ToRank};
use busbw_transport::Token;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What comes over a connection next, and how much later.
#[derive(Debug)]
pub enum Next {
    Bytes(Vec<u8>),
    End,
}

/// Has a server for `size` ranks with the flags `flags` hear connections; everything that it says must be a message.
pub fn converse(
    size: usize,
    flags: &str,
    heard: impl IntoIterator<Item = (usize, Duration, Next)>,
) -> crate::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| crate::Error::system("listen", e))?;
    let plan = Plan {
        has_places: false,
        token: Token::from_bytes([7; 16]),
        offer: Vec::new(),
        size,
        flags: flags.into(),
        timeout: Duration::from_secs(30),
        log: Arc::new(|_| {}),
        stop: Arc::default(),
    };
    let (mut server, mut now) = (Server::new(plan, listener)?, Instant::now());
    let mut ranks: Vec<Option<UnixStream>> = Vec::new();
    for (connection, later, next) in heard {
        now += later;
        while ranks.len() <= connection {
            ranks.push(Some(connect(&mut server, now).map_err(|e| crate::Error::system("connect", e))?));
        }
        match (next, &mut ranks[connection]) {
            // What the socket has no room for is cut off.
            (Next::Bytes(bytes), Some(rank)) => drop(rank.write(&bytes)),
            (Next::End, rank) => *rank = None,
            (Next::Bytes(_), None) => {}
        }
        server.turn(now);
    }
    for _ in 0..8 {
        server.turn(now);
    }
    ranks.into_iter().flatten().for_each(read_all);
    Ok(())
}

fn connect(server: &mut Server, now: Instant) -> std::io::Result<UnixStream> {
    let (rank, ours) = UnixStream::pair()?;
    rank.set_nonblocking(true)?;
    ours.set_nonblocking(true)?;
    let stream = TcpStream::from(OwnedFd::from(ours));
    server.connections.push(Connection::over(stream, (Ipv4Addr::LOCALHOST, 1).into(), now));
    Ok(rank)
}

/// Reads what the server said as a rank does.
fn read_all(mut rank: UnixStream) {
    let (mut inbox, mut block) = (Inbox::new(LONGEST_FRAME), [0; 4096]);
    while let Ok(count @ 1..) = rank.read(&mut block) {
        inbox.push(&block[..count]);
        while let Some(message) = inbox.message::<ToRank>().unwrap_or_else(|what| panic!("the server said {what}")) {
            drop(message);
        }
    }
}

/// What a rank makes of any bytes from a server.
pub fn told(bytes: &[u8]) {
    let mut inbox = Inbox::new(LONGEST_FRAME);
    for piece in bytes.chunks(1000) {
        inbox.push(piece);
        while let Ok(Some(message)) = inbox.message::<ToRank>() {
            drop(message);
        }
    }
}

impl Server {
    /// As [`Server::poll_once`], without waiting.
    fn turn(&mut self, now: Instant) {
        self.connections.iter_mut().for_each(Connection::pull);
        self.answer(now);
    }
}

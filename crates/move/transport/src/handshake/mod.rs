//! How the two ends of a connection prove to each other that they hold the same token, which neither shows.
//!
//! | message | from | bytes |
//! | --- | --- | --- |
//! | opening | connector | magic (8), version (2), a random number (16) |
//! | challenge | acceptor | magic (8), version (2), a random number (16), length of the offer (2), offer (at most 4096) |
//! | proof | connector | proof (32), payload (as long as the protocol says; none where the versions differ) |
//! | answer | acceptor | proof (32) |
//!
//! Numbers have their lowest byte first. A proof is [`Token::prove`] of the role (`connector` or `acceptor`), the opening, the
//! challenge, the payload and the place. Both random numbers are in it, so that what was recorded is of no use later; and the role, so
//! that a proof sent back proves nothing. The place, where the protocol has one, is the address and port that the connector has
//! connected to, as each end sees it: who passes the messages of two ends on to each other, and so wants to be let in for one of
//! them, has another. The acceptor answers only to a right proof: who does not hold the token gets nothing
//! to compare guesses with. A connector gives its proof to whoever listens, for which a token must be random.
//!
//! The offer is what the acceptor was made with, as a rule nothing: a connector that does not know the token may find it there
//! (a credential of munge, say).
//!
//! What follows on the connection is neither encrypted nor proven: who can change packets on their way can take over a
//! connection once its ends have let each other in.

mod listener;
mod strangers;
#[cfg(test)]
mod tests;

pub use listener::{Admitted, Arrival, Limits, Listener};
pub use strangers::Strangers;

use crate::{Error, Result, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of magic, version and random number, with which either end begins.
const OPENING: usize = 26;
/// Bytes of a challenge without its offer.
const CHALLENGE: usize = OPENING + 2;
/// Most bytes of an offer.
pub const LONGEST_OFFER: usize = 4096;

/// What both ends say first, and how long a connector's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// Tells this protocol from all others.
    pub magic: [u8; 8],
    /// Changes with every change of what follows the handshake.
    pub version: u16,
    /// Bytes of the payload.
    pub payload: usize,
}

/// Why a connection did not come about, to be read after its address.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The other end closed it.
    #[error("it closed before it said who it is")]
    Closed,
    /// The other end is no busbw, or not this part of it.
    #[error("it speaks another protocol")]
    Protocol,
    /// The other end has another version. A connector cannot be sure that this is true; an acceptor has had it proven.
    #[error("it is another version of busbw ({0})")]
    Version(u16),
    /// The other end holds another token, or none.
    #[error("it does not have the token")]
    Token,
    /// It took too long.
    #[error("it did not say in time who it is")]
    Silent,
    /// It had to make way for others that have not said who they are.
    #[error("too many others wait to be let in")]
    Crowded,
    /// The token could not be found in the offer.
    #[error("{0}")]
    Offer(Error),
    /// The operating system's.
    #[error("{0}")]
    System(io::Error),
}

impl Failure {
    /// What a connector says of it: with `peer`, and what it was `doing` where the operating system failed.
    pub fn error(self, peer: SocketAddr, doing: impl FnOnce() -> String) -> Error {
        let peer = peer.to_string();
        match self {
            Failure::System(error) => Error::system(doing(), error),
            Failure::Silent => Error::system(doing(), ErrorKind::TimedOut.into()),
            Failure::Offer(error) => error,
            Failure::Closed => Error::Closed { peer },
            Failure::Token => Error::Protocol { peer, what: "no proof that it has the token".into() },
            Failure::Version(version) => {
                Error::Protocol { peer, what: format!("that it is another version of busbw ({version})") }
            }
            Failure::Protocol | Failure::Crowded => Error::Protocol { peer, what: "what no busbw says first".into() },
        }
    }
}

/// The result of a step.
type Step<T> = std::result::Result<T, Failure>;

/// Where a connector has the token from: a function of the offer.
pub type FromOffer = Box<dyn FnOnce(&[u8]) -> Result<Token> + Send>;

/// The connector's end of a handshake.
pub struct Connector {
    protocol: Protocol,
    payload: Vec<u8>,
    opening: [u8; OPENING],
    place: Vec<u8>,
    token: Option<FromOffer>,
    talk: HandshakeBytes,
    awaited: Awaited,
}

/// What a connector waits for.
enum Awaited {
    Challenge,
    Offer,
    Answer {
        token: Token,
        challenge: Vec<u8>,
    },
    /// That the proof is sent: the other version then knows whom it has turned away.
    Nothing(u16),
}

impl Connector {
    /// One that shows `payload`, and has the token from the offer by `token` (`|_| Ok(token)` where it is known).
    ///
    /// # Errors
    /// [`Error::Config`] for a payload that is not as long as the protocol says, or without random bytes of the system's.
    pub fn new(
        protocol: Protocol,
        payload: Vec<u8>,
        token: impl FnOnce(&[u8]) -> Result<Token> + Send + 'static,
    ) -> Result<Self> {
        if payload.len() != protocol.payload {
            return Err(Error::Config(format!("a payload of {} bytes, not {}", payload.len(), protocol.payload)));
        }
        let opening = opening(protocol)?;
        let talk = HandshakeBytes { magic: Some(protocol.magic), ..HandshakeBytes::new(opening.to_vec(), CHALLENGE) };
        let (place, token, awaited) = (Vec::new(), Some(Box::new(token) as FromOffer), Awaited::Challenge);
        Ok(Connector { protocol, payload, opening, place, token, talk, awaited })
    }

    /// The same, and proves that it wanted to come to this address.
    pub fn to(self, address: SocketAddr) -> Self {
        Connector { place: place(address), ..self }
    }

    /// Sends and reads what `stream` takes and has, and not a byte of what follows the handshake. Gives the token once the other
    /// end has proven that it holds it; `None` where the stream would block, or its limit of time has passed.
    ///
    /// # Errors
    /// Why there is no connection: drop it.
    pub fn poll(&mut self, stream: &mut (impl Read + Write)) -> Step<Option<Token>> {
        while self.talk.go_on(stream)? {
            match std::mem::replace(&mut self.awaited, Awaited::Challenge) {
                Awaited::Challenge => {
                    let offer = usize::from(number(&self.talk.read, OPENING));
                    if offer > LONGEST_OFFER {
                        return Err(Failure::Protocol);
                    }
                    self.talk.wanted += offer;
                    self.awaited = Awaited::Offer;
                }
                Awaited::Offer => self.awaited = self.prove()?,
                Awaited::Answer { token, challenge } => {
                    let told = [b"acceptor", &self.opening[..], &challenge, &self.payload, &self.place];
                    return if token.is_proven(&told, &self.talk.read) { Ok(Some(token)) } else { Err(Failure::Token) };
                }
                Awaited::Nothing(version) => return Err(Failure::Version(version)),
            }
        }
        Ok(None)
    }

    /// The whole of it over a stream that blocks: gives the token, and leaves the stream's limit for reads changed.
    ///
    /// # Errors
    /// Why there is no connection; [`Failure::Silent`] after `patience`.
    pub fn run(mut self, stream: &mut TcpStream, patience: Duration) -> Step<Token> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Silent);
            }
            stream.set_read_timeout(Some(left)).map_err(Failure::System)?;
            if let Some(token) = self.poll(stream)? {
                return Ok(token);
            }
        }
    }

    fn prove(&mut self) -> Step<Awaited> {
        let (version, offer) = (version(&self.talk.read), &self.talk.read[CHALLENGE..]);
        let Some(token) = self.token.take() else { return Err(Failure::Protocol) };
        let token = token(offer).map_err(Failure::Offer)?;
        let differ = version != self.protocol.version;
        let payload = if differ { &[][..] } else { &self.payload };
        let proof = token.prove(&[b"connector", &self.opening, &self.talk.read, payload, &self.place]);
        let said = [&proof[..], payload].concat();
        let challenge = self.talk.turn(said, if differ { 0 } else { Token::PROOF });
        Ok(if differ { Awaited::Nothing(version) } else { Awaited::Answer { token, challenge } })
    }
}

/// The end of a handshake that was connected to.
pub struct Acceptor {
    protocol: Protocol,
    token: Token,
    challenge: Vec<u8>,
    opening: Vec<u8>,
    place: Vec<u8>,
    talk: HandshakeBytes,
    admitted: Option<Vec<u8>>,
}

impl Acceptor {
    /// One that lets in who holds `token`, which `offer` may help to find.
    ///
    /// # Errors
    /// [`Error::Config`] for an offer longer than [`LONGEST_OFFER`], or without random bytes of the system's.
    pub fn new(protocol: Protocol, token: Token, offer: &[u8]) -> Result<Self> {
        if offer.len() > LONGEST_OFFER {
            return Err(Error::Config(format!(
                "an offer of {} bytes; at most {LONGEST_OFFER} are possible",
                offer.len()
            )));
        }
        let length = (offer.len() as u16).to_le_bytes();
        let challenge = [&opening(protocol)?[..], &length, offer].concat();
        let talk = HandshakeBytes { magic: Some(protocol.magic), ..HandshakeBytes::new(Vec::new(), OPENING) };
        Ok(Acceptor { protocol, token, challenge, opening: Vec::new(), place: Vec::new(), talk, admitted: None })
    }

    /// The same, and lets in only who wanted to come to this address.
    pub fn at(self, address: SocketAddr) -> Self {
        Acceptor { place: place(address), ..self }
    }

    /// Whether nothing has come yet that could be a busbw's.
    pub fn is_silent(&self) -> bool {
        self.opening.is_empty()
    }

    /// Sends and reads what `stream` takes and has, and not a byte of what follows the handshake. Gives the payload of a
    /// connector that has proven that it holds the token, and was answered.
    ///
    /// # Errors
    /// Why it is not let in: drop it. [`Failure::Version`] is of one that holds the token.
    pub fn poll(&mut self, stream: &mut (impl Read + Write)) -> Step<Option<Vec<u8>>> {
        while self.talk.go_on(stream)? {
            if let Some(payload) = self.admitted.take() {
                return Ok(Some(payload));
            }
            match self.opening.is_empty() {
                true => self.ask()?,
                false => self.judge()?,
            }
        }
        Ok(None)
    }

    fn ask(&mut self) -> Step<()> {
        let (version, shown) = (version(&self.talk.read), &self.talk.read[OPENING - Token::SIZE..]);
        // Up to version 2, the token itself stood where now the random number is.
        if version != self.protocol.version && self.token.matches(shown) {
            return Err(Failure::Version(version));
        }
        let payload = if version == self.protocol.version { self.protocol.payload } else { 0 };
        self.opening = self.talk.turn(self.challenge.clone(), Token::PROOF + payload);
        Ok(())
    }

    fn judge(&mut self) -> Step<()> {
        let (proof, payload) = self.talk.read.split_at(Token::PROOF);
        let told = |role| [role, &self.opening[..], &self.challenge, payload, &self.place];
        if !self.token.is_proven(&told(b"connector"), proof) {
            return Err(Failure::Token);
        }
        let version = version(&self.opening);
        if version != self.protocol.version {
            return Err(Failure::Version(version));
        }
        let (answer, payload) = (self.token.prove(&told(b"acceptor")), payload.to_vec());
        self.talk.turn(answer.to_vec(), 0);
        self.admitted = Some(payload);
        Ok(())
    }
}

/// An address and port, alike for both ends: an IPv4 address may come as one of IPv6.
fn place(address: SocketAddr) -> Vec<u8> {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    [&ip.octets()[..], &address.port().to_le_bytes()].concat()
}

/// What an end says first.
fn opening(protocol: Protocol) -> Result<[u8; OPENING]> {
    let mut opening = [0; OPENING];
    let (magic, rest) = opening.split_at_mut(protocol.magic.len());
    let (version, random) = rest.split_at_mut(2);
    magic.copy_from_slice(&protocol.magic);
    version.copy_from_slice(&protocol.version.to_le_bytes());
    let none = |e| Error::Config(format!("the system gives no random bytes for a handshake: {e}"));
    getrandom::fill(random).map_err(none)?;
    Ok(opening)
}

/// The number in two of an opening's or challenge's bytes.
fn number(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().copied().map_or(0, u16::from_le_bytes)
}

fn version(opening: &[u8]) -> u16 {
    number(opening, 8)
}

fn not_yet(error: io::Error) -> Step<bool> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(false),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Err(Failure::Closed),
        _ => Err(Failure::System(error)),
    }
}

/// Bytes that go out, and then those that come in.
struct HandshakeBytes {
    out: Vec<u8>,
    sent: usize,
    read: Vec<u8>,
    wanted: usize,
    /// What the other end has to begin with: anything else is refused at once.
    magic: Option<[u8; 8]>,
}

impl HandshakeBytes {
    fn new(out: Vec<u8>, wanted: usize) -> Self {
        HandshakeBytes { out, sent: 0, read: Vec::new(), wanted, magic: None }
    }

    /// Whether everything was sent and as much as is wanted was read.
    fn go_on(&mut self, stream: &mut (impl Read + Write)) -> Step<bool> {
        while self.sent < self.out.len() {
            match stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return not_yet(error),
            }
        }
        let mut block = [0; 512];
        while self.read.len() < self.wanted {
            let most = block.len().min(self.wanted - self.read.len());
            match stream.read(&mut block[..most]) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => self.read.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return not_yet(error),
            }
            if self.magic.is_some_and(|magic| magic.iter().zip(&self.read).any(|(right, read)| right != read)) {
                return Err(Failure::Protocol);
            }
        }
        Ok(true)
    }

    /// Says `out` next, and then reads so many bytes; gives what was read before.
    fn turn(&mut self, out: Vec<u8>, wanted: usize) -> Vec<u8> {
        std::mem::replace(self, HandshakeBytes::new(out, wanted)).read
    }
}

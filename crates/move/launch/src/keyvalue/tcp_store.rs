//! A client of PyTorch's TCPStore, which torchrun's agent keeps for its workers.
//!
//! A query is a byte that says which, then its arguments: numbers of eight bytes, lowest first, and texts behind their length
//! (PyTorch 2.15's torch/csrc/distributed/c10d/store/TCPStoreBackend.cpp and TCPStoreLibUvBackend.cpp).

use crate::error::BY_HAND;
use crate::{Error, Result, host};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The queries that we use, by their numbers before VALIDATE took the first (PyTorch's pull request 107607, of 2023). DELETE_KEY is
/// not among them: before it, versions had WATCH_KEY or had not.
#[derive(Clone, Copy)]
enum Query {
    Set = 0,
    Get = 2,
    Wait = 5,
    CountKeys = 6,
}

/// VALIDATE with its number, then CountKeys four times: 32 bytes of answer. A store from before takes it for SET with a key
/// of 5 × 10^17 bytes, which it cannot allocate, and closes the connection.
const GREETING: [u8; 9] = [0, 0xce, 0xf7, 0x85, 0x3c, 7, 7, 7, 7];
/// What WAIT answers when the key is there.
const STOP_WAITING: u8 = 0;
/// How long the store may take for what does not wait for others.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Longer than any value of ours.
const LONGEST: u64 = 4096;

/// A connection to the store.
pub(crate) struct TcpStore {
    stream: TcpStream,
    /// 1 where VALIDATE comes before the other queries.
    shift: u8,
    deadline: Instant,
    /// What this rank has put there. It is emptied when this is dropped; what cannot be emptied stays, and does no harm.
    key: Option<String>,
}

impl TcpStore {
    /// Connects, and finds out which of the two protocols it speaks.
    pub fn connect(name: &str, port: u16, deadline: Instant) -> Result<Self> {
        let cannot = |problem: &str| {
            Error::Join(format!(
                "torchrun's store at {name}:{port} cannot be used ({problem}), so this rank cannot find the others: check that this host \
                 reaches MASTER_ADDR and MASTER_PORT (firewall), and that torchrun still runs there; or {BY_HAND}"
            ))
        };
        let addresses = host::resolve(name, port).ok_or_else(|| cannot("the name does not resolve here"))?;
        let mut problem = String::new();
        loop {
            for &address in &addresses {
                match Self::greet(address, deadline) {
                    Ok(store) => return Ok(store),
                    Err(error) => problem = error.to_string(),
                }
            }
            if Instant::now() + PAUSE > deadline {
                return Err(cannot(&problem));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn greet(address: SocketAddr, deadline: Instant) -> std::io::Result<Self> {
        let mut store = Self::reach(address, 1, deadline)?;
        store.stream.write_all(&GREETING)?;
        let closed = match store.stream.read_exact(&mut [0; 32]) {
            Ok(()) => return Ok(store),
            Err(error) => error,
        };
        if !matches!(closed.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) {
            return Err(std::io::Error::other("what listens there is no TCPStore"));
        }
        let mut store = Self::reach(address, 0, deadline)?;
        store.ask(Query::CountKeys, &[])?;
        store.number().map_err(|_| std::io::Error::other("what listens there is no TCPStore"))?;
        Ok(store)
    }

    fn reach(address: SocketAddr, shift: u8, deadline: Instant) -> std::io::Result<Self> {
        let patience = deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(10), PATIENCE);
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(TcpStore { stream, shift, deadline, key: None })
    }

    /// The address of this host by which it reaches the store: others that reach the store reach it too.
    pub fn own_address(&self) -> Option<IpAddr> {
        self.stream.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
    }

    /// Puts `value` under `key`, in place of what was there.
    pub fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.key = Some(key.to_owned());
        self.set(key, value).map_err(|error| failed("put the address of rank 0 into it", &error))
    }

    fn set(&mut self, key: &str, value: &str) -> std::io::Result<()> {
        self.ask(Query::Set, &[text(key), text(value)])?;
        // SET has no answer; that of the next query says that it was heard.
        self.ask(Query::CountKeys, &[])?;
        self.number().map(drop)
    }

    /// What is under `key`, once somebody has put it there.
    pub fn get(&mut self, key: &str) -> Result<String> {
        self.wait_and_get(key).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Join(format!(
                "rank 0 did not put its address into torchrun's store in time: check that rank 0 was started with the same busbw \
                 and still runs (its output); or {BY_HAND}"
            )),
            _ => failed("read the address of rank 0 from it", &error),
        })
    }

    fn wait_and_get(&mut self, key: &str) -> std::io::Result<String> {
        let left = self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
        self.stream.set_read_timeout(Some(left))?;
        self.ask(Query::Wait, &[1u64.to_le_bytes().to_vec(), text(key)])?;
        let mut answer = [0];
        self.stream.read_exact(&mut answer)?;
        if answer != [STOP_WAITING] {
            return Err(std::io::Error::other("it does not answer as a TCPStore"));
        }
        loop {
            self.ask(Query::Get, &[text(key)])?;
            let value = self.value()?;
            if !value.is_empty() {
                return Ok(value);
            }
            // An earlier run in this job has emptied it.
            if Instant::now() + PAUSE > self.deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn value(&mut self) -> std::io::Result<String> {
        let length = self.number()?;
        if length > LONGEST {
            return Err(std::io::Error::other("it holds something else there"));
        }
        let mut value = vec![0; length as usize];
        self.stream.read_exact(&mut value)?;
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    fn ask(&mut self, query: Query, arguments: &[Vec<u8>]) -> std::io::Result<()> {
        self.stream.write_all(&[vec![query as u8 + self.shift], arguments.concat()].concat())
    }

    fn number(&mut self) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        self.stream.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Drop for TcpStore {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let _ = self.set(&key, "");
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn failed(doing: &str, error: &std::io::Error) -> Error {
    Error::Join(format!(
        "torchrun's store failed ({error}) when it was asked to {doing}: look at torchrun's output; or {BY_HAND}"
    ))
}

//! What rank 0 and the ranks say to each other: orders and answers, each a frame of its own.
//!
//! A process group of `busbw-launch` fails as a whole when one rank dies. Here the others shall go on, so that ranks only
//! introduce themselves there, and then are led by rank 0 over a connection each.

use crate::perftest::{Perftest, PerftestFigures};
use crate::rdma::RdmaEnd;
use crate::tcp::{Moved, Task};
use busbw_launch::frames::{self, Inbox};
use busbw_launch::silence;
use busbw_model::text::clean_line;
use busbw_transport::Cancellation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// No frame is longer: one that says so comes from no busbw.
const LONGEST_FRAME: usize = 1 << 24;
/// While waiting for a frame, the cancellation and the deadline are looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a rank introduces itself to all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub host: String,
    /// Equal for ranks that share a host.
    pub host_id: u64,
    pub interface: String,
    pub address: IpAddr,
    pub rate_gbit_s: Option<f64>,
    /// What RDMA would run on here, or why it cannot.
    pub rdma: Result<RdmaEnd, String>,
    /// Whether this host has no RDMA device or no perftest at all, rather than one that is not used rightly.
    pub lacks_rdma: bool,
    /// Where rank 0 waits for the others; none on other ranks.
    pub control: Option<SocketAddr>,
}

impl Introduction {
    /// With text that a terminal can be shown.
    pub fn cleaned(self) -> Self {
        let clean = |text: String| clean_line(&text).into_owned();
        let rdma = self
            .rdma
            .map_err(clean)
            .map(|end| RdmaEnd { quality_of_service: end.quality_of_service.map(clean), ..end });
        Introduction { host: clean(self.host), interface: clean(self.interface), rdma, ..self }
    }
}

/// What rank 0 has a rank do. Each is answered by one [`Answer`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Get ready for TCP connections of so many flows. They end after so long at the latest.
    Listen { flows: u32, limit: Duration },
    /// Move bytes to the listener whose handle this is, and from whoever connects.
    Move { task: Task, to: Option<Vec<u8>>, from: bool },
    /// Start the serving side of a perftest program, and say where it listens.
    Serve { test: Perftest, limit: Duration },
    /// Run the other side, against a server at this address, to its end.
    Drive { test: Perftest, server: SocketAddr, limit: Duration },
    /// Wait for the server to end, or end it where its client has failed.
    Conclude { failed: bool },
    /// That was all.
    Leave,
}

/// What a rank answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Listening(Vec<u8>),
    Moved(Moved),
    Serving(SocketAddr),
    Driven(PerftestFigures),
    /// What counters say that moved.
    Concluded(Vec<(String, u64)>),
    Failed(String),
}

/// Why nothing came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("its process has ended; look at its output")]
    Ended,
    #[error("has not answered for {} s: stopped, or its host or cable is cut off", .0.as_secs())]
    Silent(Duration),
    #[error("{0}")]
    Cancelled(String),
    #[error("sent {0}; check that every rank runs the same busbw")]
    Strange(String),
    #[error("{0}")]
    System(#[from] io::Error),
}

/// One end of the connection between rank 0 and a rank.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Inbox,
    timeout: Duration,
}

impl Connection {
    /// Takes over a connection. A host that does not even acknowledge for `timeout` is gone.
    pub fn new(stream: TcpStream, timeout: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(timeout))?;
        silence::notice(&stream, timeout)?;
        Ok(Connection { stream, received: Inbox::new(LONGEST_FRAME), timeout })
    }

    pub fn send(&mut self, message: &impl Serialize) -> Result<(), Lost> {
        let frame = frames::frame::<LONGEST_FRAME>(message)?;
        self.stream.write_all(&frame).map_err(|error| self.lost(error))
    }

    /// Waits for a frame until `deadline`, or without one as long as the other side is there.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        deadline: Option<Instant>,
        cancel: &Cancellation,
    ) -> Result<T, Lost> {
        let began = Instant::now();
        let mut block = [0; 4096];
        loop {
            if let Some(message) = self.received.message().map_err(Lost::Strange)? {
                return Ok(message);
            }
            if let Some(reason) = cancel.reason() {
                return Err(Lost::Cancelled(reason));
            }
            match self.stream.read(&mut block) {
                Ok(0) => return Err(Lost::Ended),
                Ok(count) => self.received.push(&block[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(self.lost(error)),
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Lost::Silent(began.elapsed()));
            }
        }
    }

    fn lost(&self, error: io::Error) -> Lost {
        match error.kind() {
            ErrorKind::TimedOut
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::WouldBlock => Lost::Silent(self.timeout),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Lost::Ended,
            _ => Lost::System(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Connection, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let patience = Duration::from_secs(10);
        (Connection::new(near, patience).unwrap(), Connection::new(far, patience).unwrap())
    }

    #[test]
    fn orders_arrive_and_an_end_is_noticed() {
        let (mut rank_0, mut rank) = pair();
        let cancel = Cancellation::new();
        rank_0.send(&Order::Listen { flows: 4, limit: Duration::ZERO }).unwrap();
        rank_0.send(&Order::Leave).unwrap();
        assert!(matches!(rank.receive(None, &cancel).unwrap(), Order::Listen { flows: 4, .. }));
        assert!(matches!(rank.receive(None, &cancel).unwrap(), Order::Leave));
        let soon = Instant::now();
        assert!(matches!(rank.receive::<Order>(Some(soon), &cancel), Err(Lost::Silent(_))));
        drop(rank_0);
        assert!(matches!(rank.receive::<Order>(None, &cancel), Err(Lost::Ended)));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let (mut rank_0, mut rank) = pair();
        rank_0.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(matches!(rank.receive::<Order>(None, &Cancellation::new()), Err(Lost::Strange(_))));
    }

    #[test]
    fn cancelling_ends_the_wait() {
        let (_rank_0, mut rank) = pair();
        let cancel = Cancellation::new();
        cancel.trigger("interrupted");
        assert!(
            matches!(rank.receive::<Order>(None, &cancel), Err(Lost::Cancelled(reason)) if reason == "interrupted")
        );
    }
}

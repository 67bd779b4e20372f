//! Serves scrapes over HTTP: GET /metrics, nothing else, in bounded room and time.

use crate::prometheus::{self, Snapshot};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A scraper's request has some hundred bytes.
const LONGEST_REQUEST: usize = 8 << 10;
/// From the first byte to the last, of request and answer.
const LONGEST_TIME: Duration = Duration::from_secs(5);
/// Connections at a time; others are closed at once.
const MOST_CONNECTIONS: usize = 8;

/// What is shown now; none before the first sample.
type Shown = Arc<Mutex<Option<Arc<Snapshot>>>>;

/// A server, which runs as long as the process.
#[derive(Debug)]
pub struct Server {
    shown: Shown,
    address: SocketAddr,
}

impl Server {
    /// Listens at an address.
    ///
    /// # Errors
    /// The address is taken, or is none of this host's.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shown = Shown::default();
        let served = Arc::clone(&shown);
        std::thread::Builder::new().name("prometheus".into()).spawn(move || accept(&listener, &served))?;
        Ok(Server { shown, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn show(&self, snapshot: Snapshot) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
    }
}

fn accept(listener: &TcpListener, shown: &Shown) {
    let connections = Arc::new(AtomicUsize::new(0));
    for connection in listener.incoming() {
        let Ok(connection) = connection else {
            // No descriptors left; other connections end soon, so try again.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if connections.fetch_add(1, Ordering::AcqRel) >= MOST_CONNECTIONS {
            connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (shown, counted) = (Arc::clone(shown), Arc::clone(&connections));
        let started = std::thread::Builder::new().name("scrape".into()).spawn(move || {
            // A client that has closed its connection, or is too slow, gets no answer.
            let _ = answer(&connection, &shown);
            counted.fetch_sub(1, Ordering::AcqRel);
        });
        if started.is_err() {
            connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn answer(connection: &TcpStream, shown: &Shown) -> io::Result<()> {
    let until = Instant::now() + LONGEST_TIME;
    let (status, body) = match request(connection, until)? {
        Request::Metrics => {
            let snapshot = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ("200 OK", snapshot.map_or_else(String::new, |snapshot| prometheus::text(&snapshot)))
        }
        Request::Refused(status) => (status, format!("{status}; only GET /metrics is served\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Allow: GET\r\nConnection: close\r\n\r\n",
        body.len()
    );
    send(connection, head.as_bytes(), until)?;
    send(connection, body.as_bytes(), until)?;
    connection.shutdown(std::net::Shutdown::Write)?;
    drain(connection, until)
}

enum Request {
    Metrics,
    Refused(&'static str),
}

/// Reads a request as far as its head.
fn request(mut connection: &TcpStream, until: Instant) -> io::Result<Request> {
    let mut head = Vec::new();
    let mut block = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > LONGEST_REQUEST {
            return Ok(Request::Refused("431 Request Header Fields Too Large"));
        }
        connection.set_read_timeout(Some(left(until)?))?;
        match connection.read(&mut block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&block[..read]),
        }
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split(' ').collect();
    Ok(match words[..] {
        ["GET", target, "HTTP/1.1" | "HTTP/1.0"] => match target.split('?').next() {
            Some("/metrics") => Request::Metrics,
            _ => Request::Refused("404 Not Found"),
        },
        [_, _, version] if version.starts_with("HTTP/1.") => Request::Refused("405 Method Not Allowed"),
        _ => Request::Refused("400 Bad Request"),
    })
}

fn send(mut connection: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.set_write_timeout(Some(left(until)?))?;
        let written = connection.write(bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Reads what is left of a long request, because the system resets a connection that is closed with bytes unread, and the
/// answer would be lost.
fn drain(mut connection: &TcpStream, until: Instant) -> io::Result<()> {
    let mut block = [0; 4096];
    for _ in 0..64 {
        connection.set_read_timeout(Some(left(until)?))?;
        if connection.read(&mut block)? == 0 {
            break;
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

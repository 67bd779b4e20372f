//! Serves scrapes over HTTP, in bounded room and time.

use crate::request::{self, Hosts, Request};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// From the first byte to the last, of request and answer.
const LONGEST_TIME: Duration = Duration::from_secs(5);
/// Connections at a time.
const MOST_CONNECTIONS: usize = 32;

/// Makes the text that is served.
type Page = dyn Fn() -> String + Send + Sync;
/// What is shown now; none before the first sample.
type Shown = Arc<Mutex<Option<Arc<Page>>>>;

/// A server, which runs as long as the process.
pub struct Server {
    shown: Shown,
    address: SocketAddr,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish()
    }
}

impl Server {
    /// Listens at an address, for those who ask for it or for one of `hosts`.
    pub fn start(address: SocketAddr, hosts: Hosts) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shown = Shown::default();
        let served = Arc::clone(&shown);
        std::thread::Builder::new().name("prometheus".into()).spawn(move || accept(&listener, &served, &hosts))?;
        Ok(Server { shown, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows this from now on; the text is made for those who ask.
    pub fn show(&self, page: impl Fn() -> String + Send + Sync + 'static) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(page));
    }
}

fn accept(listener: &TcpListener, shown: &Shown, hosts: &Hosts) {
    let mut open = VecDeque::new();
    for connection in listener.incoming() {
        let Ok(connection) = connection.map(Arc::new) else {
            // No descriptors left; other connections end soon, so try again.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        make_room(&mut open);
        open.push_back(Arc::downgrade(&connection));
        let (shown, hosts) = (Arc::clone(shown), hosts.clone());
        // A client that has closed its connection, or is too slow, gets no answer; neither does one for whom no thread is left.
        let _ = std::thread::Builder::new().name("scrape".into()).spawn(move || answer(&connection, &shown, &hosts));
    }
}

/// Ends the oldest connections where too many are open. A scraper asks as soon as it has connected, so it is idle clients that
/// have been here longest, and they keep no scraper out.
fn make_room(open: &mut VecDeque<Weak<TcpStream>>) {
    open.retain(|connection| connection.strong_count() > 0);
    while open.len() >= MOST_CONNECTIONS {
        if let Some(oldest) = open.pop_front().and_then(|connection| connection.upgrade()) {
            let _ = oldest.shutdown(Shutdown::Both);
        }
    }
}

fn answer(connection: &TcpStream, shown: &Shown, hosts: &Hosts) -> io::Result<()> {
    let until = Instant::now() + LONGEST_TIME;
    let (status, body, head_only) = match request(connection, hosts, until)? {
        Request::Metrics { head_only } => {
            let page = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ("200 OK", page.map_or_else(String::new, |page| page()), head_only)
        }
        Request::Refused(status, remedy) => (status, format!("{status}: {remedy}\n"), false),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Allow: GET, HEAD\r\nConnection: close\r\n\r\n",
        body.len()
    );
    send(connection, head.as_bytes(), until)?;
    if !head_only {
        send(connection, body.as_bytes(), until)?;
    }
    connection.shutdown(Shutdown::Write)?;
    drain(connection, until)
}

/// Reads a request as far as its head.
fn request(mut connection: &TcpStream, hosts: &Hosts, until: Instant) -> io::Result<Request> {
    let mut head = Vec::new();
    let mut block = [0; 1024];
    loop {
        connection.set_read_timeout(Some(left(until)?))?;
        match connection.read(&mut block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&block[..read]),
        }
        if let Some(request) = request::judge(&head, hosts) {
            return Ok(request);
        }
    }
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

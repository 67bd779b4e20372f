//! The least that a message between two processes costs: one socket each, not blocking, polled.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PORT: u16 = 47_118;
const BYTES: usize = 8;
const WARM_UP: usize = 1_000;
const ROUNDS: usize = 20_000;

/// Answers until the asker leaves.
///
/// # Errors
/// The address cannot be listened on, or the connection fails.
pub fn answer(address: &str) -> io::Result<()> {
    serve(&TcpListener::bind((address, PORT))?)
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    let mut stream = prepared(listener.accept()?.0)?;
    let mut message = [0; BYTES];
    while receive(&mut stream, &mut message)? {
        send(&mut stream, &message)?;
    }
    Ok(())
}

/// Half of the median round trip in µs.
///
/// # Errors
/// Nobody answers.
pub fn ask(address: &str) -> io::Result<f64> {
    time(connect(address)?)
}

fn time(stream: TcpStream) -> io::Result<f64> {
    let mut stream = prepared(stream)?;
    let mut message = [1; BYTES];
    let mut halves = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let began = Instant::now();
        send(&mut stream, &message)?;
        if !receive(&mut stream, &mut message)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if round >= WARM_UP {
            halves.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
    }
    halves.sort_by(f64::total_cmp);
    Ok(halves[halves.len() / 2])
}

/// The answerer may just have been started.
fn connect(address: &str) -> io::Result<TcpStream> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect((address, PORT)) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            connected => return connected,
        }
    }
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn send(stream: &mut TcpStream, message: &[u8; BYTES]) -> io::Result<()> {
    let mut sent = 0;
    while sent < BYTES {
        match stream.write(&message[sent..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a message came; not when the other end has left.
fn receive(stream: &mut TcpStream, message: &mut [u8; BYTES]) -> io::Result<bool> {
    let mut received = 0;
    while received < BYTES {
        match stream.read(&mut message[received..]) {
            Ok(0) => return Ok(false),
            Ok(bytes) => received += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = std::thread::spawn(move || serve(&listener));
        let half = time(stream).unwrap();
        server.join().unwrap().unwrap();
        assert!(half > 0.0);
    }
}

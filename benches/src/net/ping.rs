//! The least that a message between two processes costs: one socket each, not blocking, polled.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PORT: u16 = 47_118;
const BYTES: usize = 8;
const WARM_UP: usize = 1_000;
const ROUNDS: usize = 20_000;

/// The connections of a ping-pong: each message goes by the first, each answer by the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    /// One, both ways: each answer carries TCP's acknowledgement.
    One,
    /// One each way, as NCCL's interface has them: the kernel acknowledges each second short message with a packet of its own.
    Each,
}

impl Ways {
    /// Of the flag that says so.
    pub fn each(each: bool) -> Self {
        if each { Ways::Each } else { Ways::One }
    }
}

/// Answers until the asker leaves.
pub fn answer(address: &str, ways: Ways) -> io::Result<()> {
    serve(&TcpListener::bind((address, PORT))?, ways)
}

fn serve(listener: &TcpListener, ways: Ways) -> io::Result<()> {
    let mut there = prepared(listener.accept()?.0)?;
    let mut back = if ways == Ways::Each { prepared(listener.accept()?.0)? } else { there.try_clone()? };
    let mut message = [0; BYTES];
    while receive(&mut there, &mut message)? {
        send(&mut back, &message)?;
    }
    Ok(())
}

/// Half of the median round trip in µs.
pub fn ask(address: &str, ways: Ways) -> io::Result<f64> {
    let there = connect(address)?;
    let back = if ways == Ways::Each { connect(address)? } else { there.try_clone()? };
    time(there, back)
}

fn time(there: TcpStream, back: TcpStream) -> io::Result<f64> {
    let (mut there, mut back) = (prepared(there)?, prepared(back)?);
    let mut message = [1; BYTES];
    let mut halves = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let began = Instant::now();
        send(&mut there, &message)?;
        if !receive(&mut back, &mut message)? {
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
        for ways in [Ways::One, Ways::Each] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || serve(&listener, ways));
            let there = TcpStream::connect(address).unwrap();
            let back =
                if ways == Ways::Each { TcpStream::connect(address).unwrap() } else { there.try_clone().unwrap() };
            let half = time(there, back).unwrap();
            server.join().unwrap().unwrap();
            assert!(half > 0.0);
        }
    }
}

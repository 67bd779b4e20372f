//! Lets a connection notice that the host at its other end is gone.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// What Linux takes for an idle time and for the time between probes (`MAX_TCP_KEEPIDLE` of its `include/net/tcp.h`).
const KEEPALIVE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(32_767)];
/// What it takes for TCP_USER_TIMEOUT: milliseconds in a C int. Below a second, a busy host would be taken for one that is gone.
const UNACKNOWLEDGED: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(i32::MAX as u64)];
/// Probes without an answer before a connection ends.
const PROBES: u32 = 4;

/// Has `stream` end when its other host acknowledges nothing for about `timeout`, whether something is sent or not. Times that
/// the kernel does not take become the nearest that it does.
pub fn notice(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let within = |time: Duration, [least, most]: [Duration; 2]| time.clamp(least, most);
    let probes = TcpKeepalive::new()
        .with_time(within(timeout / 3, KEEPALIVE))
        .with_interval(within(timeout / 6, KEEPALIVE))
        .with_retries(PROBES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(Some(within(timeout, UNACKNOWLEDGED)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// From the shortest time of `busbw link -T` to the year that stands for no timeout.
    #[test]
    fn every_timeout_is_one_that_the_kernel_takes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for seconds in [0.01, 1.0, 2.0, 60.0, 100_000.0, 365.0 * 86_400.0] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            notice(&stream, Duration::from_secs_f64(seconds)).unwrap_or_else(|error| panic!("{seconds} s: {error}"));
        }
    }
}

//! A TCP connection, as a line of /proc/net/tcp or tcp6 shows it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A connection as the kernel shows it (`get_tcp4_sock` in net/ipv4/tcp_ipv4.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    pub inode: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// By the kernel's number: 1 is established.
    pub state: u8,
    /// Bytes that were written and that the other end has not acknowledged.
    pub unacknowledged: u64,
    /// Bytes that have arrived and were not read.
    pub unread: u64,
    pub timer: Timer,
    /// How often the oldest segment was sent again, or the closed window probed.
    pub retransmits: u32,
    /// Bytes that the other end has acknowledged, and those that came from it, since it was opened; none where the kernel was not asked.
    pub carried: Option<u64>,
}

/// What a connection's timer runs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timer {
    #[default]
    None,
    /// Sent and not acknowledged: it will be sent again.
    Retransmit,
    KeepAlive,
    TimeWait,
    /// The other end acknowledges and has no room: its process does not read.
    WindowProbe,
}

impl Timer {
    /// By the kernel's number.
    pub(super) fn of(number: u8) -> Self {
        match number {
            1 => Timer::Retransmit,
            2 => Timer::KeepAlive,
            3 => Timer::TimeWait,
            4 => Timer::WindowProbe,
            _ => Timer::None,
        }
    }
}

impl Connection {
    /// Reads a line; none of a socket that listens, or has no process any more.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let (unacknowledged, unread) = fields.get(4)?.split_once(':')?;
        let timer = Timer::of(fields.get(5)?.split(':').next()?.parse().ok()?);
        let state = u8::from_str_radix(fields.get(3)?, 16).ok()?;
        const LISTEN: u8 = 10;
        let found = Connection {
            inode: fields.get(9)?.parse().ok()?,
            local: end(fields.get(1)?)?,
            remote: end(fields.get(2)?)?,
            state,
            unacknowledged: hexadecimal(unacknowledged)?,
            unread: hexadecimal(unread)?,
            timer,
            retransmits: u32::try_from(hexadecimal(fields.get(6)?)?).ok()?,
            carried: None,
        };
        (state != LISTEN && found.inode != 0).then_some(found)
    }
}

/// `0100007F:1F90`: the words of an address in the byte order of this machine, and the port.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_become_connections() {
        let line = "   3: 01004D0A:9C40 03004D0A:01BB 01 00001F40:00000020 01:00000A3C 00000005     0        0 81321 3 0 20 4 30 10 -1";
        let found = Connection::parse(line).expect("a connection");
        assert_eq!(
            (found.local.to_string(), found.remote.to_string()),
            ("10.77.0.1:40000".into(), "10.77.0.3:443".into())
        );
        assert_eq!((found.inode, found.unacknowledged, found.unread), (81321, 8000, 32));
        assert_eq!((found.timer, found.retransmits), (Timer::Retransmit, 5));
        let mapped = "   0: 0000000000000000FFFF000001004D0A:0016 0000000000000000FFFF000003004D0A:8000 01 00000000:00000000 04:00000000 00000002     0        0 7 1";
        let found = Connection::parse(mapped).expect("a connection");
        assert_eq!((found.remote.to_string(), found.timer), ("10.77.0.3:32768".into(), Timer::WindowProbe));
        for none in [
            "   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 27261 1",
            "   1: 0100007F:0016 0100007F:8000 06 00000000:00000000 03:00000000 00000000     0        0 0 3",
            "  sl  local_address rem_address   st tx_queue rx_queue",
            "",
        ] {
            assert_eq!(Connection::parse(none), None, "{none}");
        }
    }
}

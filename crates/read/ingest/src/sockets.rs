//! Reads connections as `ss -tinp` prints them: a row of addresses, and below it what TCP counts.

use crate::text::{TextLine, leading};
use busbw_model::{Socket, SourceLine};

/// More connections add nothing new.
const MOST: usize = 1 << 14;
/// From so many time-outs in a row nothing gets through: one lost packet is ordinary.
const BACKED_OFF: u32 = 3;

/// Collects connections.
#[derive(Debug, Default)]
pub(crate) struct SocketReader {
    found: Vec<Socket>,
    /// The last row waits for what TCP counts.
    open: bool,
}

impl SocketReader {
    /// Whether a line may be of `ss`.
    pub fn may_belong(text: &[u8]) -> bool {
        let has = |word: &[u8]| memchr::memmem::find(text, word).is_some();
        text.first().is_some_and(|first| {
            first.is_ascii_digit() && has(b"users:((") || first.is_ascii_whitespace() && has(b" rto:")
        })
    }

    /// Takes a line; true when it is of `ss`.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        if let Some(socket) = row(line) {
            self.open = self.found.len() < MOST;
            if self.open {
                self.found.push(socket);
            }
            return true;
        }
        let counts = line.text.contains(" rto:");
        if let Some(last) = self.found.last_mut().filter(|_| counts && self.open) {
            let backed_off = line.text.split_once(" backoff:").and_then(|(_, number)| leading::<u32>(number));
            last.is_stuck = backed_off.is_some_and(|times| times >= BACKED_OFF);
            self.open = false;
        }
        counts
    }

    pub fn finish(self) -> Vec<Socket> {
        self.found
    }
}

/// `0 40 10.77.0.4:35500 10.77.0.1:47777 users:(("python3",pid=25675,fd=11))`, perhaps with the state in front.
fn row(line: &TextLine) -> Option<Socket> {
    let (addresses, process) = line.text.split_once("users:((")?;
    let mut words = addresses.split_whitespace().rev();
    let (peer, local) = (address(words.next()?)?, address(words.next()?)?);
    let pid = process.split_once("pid=").and_then(|(_, number)| leading(number));
    Some(Socket { pid, local, peer, is_stuck: false, source: SourceLine::new(line.place, line.text) })
}

/// `10.77.0.4` of `10.77.0.4:35500` and `[::ffff:10.77.0.4]:29500`.
fn address(text: &str) -> Option<String> {
    let (address, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    Some(address.trim_matches(['[', ']']).trim_start_matches("::ffff:").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Place;

    #[test]
    fn a_connection_through_which_nothing_gets_is_stuck() {
        let mut reader = SocketReader::default();
        let lines = [
            "Recv-Q Send-Q Local Address:Port Peer Address:Port Process",
            "0 40 10.77.0.4:35500 10.77.0.1:47777 users:((\"python3\",pid=25675,fd=11))",
            "\t bbr wscale:10,10 rto:3264 backoff:4 rtt:0.1/0.1 unacked:1 retrans:1/5",
            "0 0 [::ffff:10.77.0.4]:41322 [::ffff:10.77.0.1]:29500 users:((\"pt_elastic\",pid=4382,fd=6))",
            "\t bbr wscale:10,10 rto:204 rtt:0.051/0.03 ato:40",
        ];
        for text in lines {
            reader.feed(&TextLine { place: Place::default(), stream: "", text });
        }
        let found: Vec<_> = reader.finish().into_iter().map(|s| (s.pid, s.local, s.peer, s.is_stuck)).collect();
        let of = |pid, stuck| (Some(pid), "10.77.0.4".to_string(), "10.77.0.1".to_string(), stuck);
        assert_eq!(found, [of(25675, true), of(4382, false)]);
    }
}

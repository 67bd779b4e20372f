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
            last.round_trip = micros(line.text, " rtt:").zip(micros(line.text, " minrtt:"));
            last.quiet_ms = line.text.split_once(" lastack:").and_then(|(_, number)| leading(number));
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
    let source = SourceLine::new(line.place, line.text);
    Some(Socket { pid, local, peer, is_stuck: false, round_trip: None, quiet_ms: None, source })
}

/// 126683 of `rtt:126.683/122.6`: `ss` prints milliseconds.
fn micros(counts: &str, name: &str) -> Option<u64> {
    let (_, number) = counts.split_once(name)?;
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (whole, part) = number[..end].split_once('.').unwrap_or((&number[..end], ""));
    let part: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)
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
            "\t bbr wscale:10,10 rto:204 rtt:12.51/0.03 ato:40 lastack:1968 pacing_rate 7bps minrtt:0.007",
        ];
        for text in lines {
            reader.feed(&TextLine { place: Place::default(), stream: "", text });
        }
        assert_eq!(reader.found[1].round_trip, Some((12_510, 7)));
        assert_eq!(reader.found[1].quiet_ms, Some(1968));
        let found: Vec<_> = reader.finish().into_iter().map(|s| (s.pid, s.local, s.peer, s.is_stuck)).collect();
        let of = |pid, stuck| (Some(pid), "10.77.0.4".to_string(), "10.77.0.1".to_string(), stuck);
        assert_eq!(found, [of(25675, true), of(4382, false)]);
    }
}

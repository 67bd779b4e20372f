//! How an uneven exchange compares with an even one, as `busbw bench alltoallv --load` measures it.

use crate::load::{Direction, Load, Peak, Sums};
use crate::units::Micros;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a row of an uneven exchange is held against: an even one of the same size, in the same run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Skew {
    /// The load: the shape's name, or the file's.
    pub load: String,
    /// Time of an even exchange of the same size, out of place, microseconds.
    #[serde(rename = "even_us")]
    pub even: Micros,
    /// Time that the busiest needs at the speed that it had in the even exchange, microseconds: the time of the even exchange,
    /// times what the busiest rank or the busiest host moves of an even share, whichever is more.
    #[serde(rename = "bound_us")]
    pub bound: Micros,
    /// The busiest rank.
    pub rank: BusyRank,
    /// The busiest host, by what hosts send each other; absent where all ranks are on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<BusyHost>,
    /// What each rank sends to others and receives from others, in the order of ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<Moved>,
    /// What each host sends to others and receives from others; absent where all ranks are on one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostMoved>,
}

/// The rank that sends or receives most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusyRank {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// What it does most of.
    pub direction: Direction,
    /// As a multiple of an even exchange.
    pub times_even: f64,
}

/// The host that sends or receives most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusyHost {
    /// The host.
    pub host: String,
    /// What it does most of.
    pub direction: Direction,
    /// As a multiple of an even exchange.
    pub times_even: f64,
}

/// Bytes of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Bytes sent to others.
    pub sent_bytes: u64,
    /// Bytes received from others.
    pub received_bytes: u64,
}

/// Bytes of one operation that a host sends and receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostMoved {
    /// The host.
    pub host: String,
    /// Bytes.
    #[serde(flatten)]
    pub moved: Moved,
}

impl Skew {
    /// Of a load whose ranks are on these hosts, where rank i sends `bytes[i * ranks + j]` to rank j and an even exchange took
    /// `even`. `None` for a rank alone.
    pub fn of(load: &Load, hosts: &[&str], bytes: &[u64], even: Micros) -> Option<Self> {
        let (ranks, mut names) = (load.ranks(), Vec::new());
        let host_of: Vec<usize> = hosts.iter().map(|host| position(&mut names, host)).collect();
        let level = Load::even(ranks).ok()?;
        let [(by_rank, by_host), (even_rank, even_host)] = [load, &level].map(|load| {
            let (mut by_rank, mut by_host) = (Sums::none(ranks), Sums::none(names.len()));
            for (from, to, share) in load.pairs() {
                by_rank.add(from, to, share);
                if host_of[from] != host_of[to] {
                    by_host.add(host_of[from], host_of[to], share);
                }
            }
            (by_rank, by_host)
        });
        let Peak { at, direction, .. } = by_rank.peak().filter(|_| ranks > 1)?;
        let rank = BusyRank { rank: at, host: hosts[at].to_owned(), direction, times_even: by_rank.times(&even_rank) };
        let busiest = |peak: Peak| BusyHost {
            host: names[peak.at].to_owned(),
            direction: peak.direction,
            times_even: by_host.times(&even_host),
        };
        let host = by_host.peak().filter(|_| names.len() > 1).map(busiest);
        let times = host.as_ref().map_or(0.0, |host| host.times_even).max(rank.times_even);
        let (ranks, hosts) = moved(bytes, &host_of, &names);
        Some(Skew { load: load.name().to_owned(), even, bound: Micros(even.0 * times), rank, host, ranks, hosts })
    }

    /// Whether it can have been measured: times are above zero.
    pub fn is_possible(&self) -> bool {
        [self.even.0, self.bound.0, self.rank.times_even].iter().all(|number| number.is_finite() && *number > 0.0)
    }

    /// A measured time as a multiple of the bound.
    pub fn share(&self, time: Micros) -> f64 {
        time.0 / self.bound.0
    }
}

fn position<'a>(names: &mut Vec<&'a str>, name: &'a str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

/// What ranks and, where there are several, hosts move between each other.
fn moved(bytes: &[u64], host_of: &[usize], names: &[&str]) -> (Vec<Moved>, Vec<HostMoved>) {
    let none = Moved { sent_bytes: 0, received_bytes: 0 };
    let (mut ranks, mut hosts) = (vec![none; host_of.len()], vec![none; names.len()]);
    for (at, bytes) in bytes.iter().enumerate() {
        let (from, to) = (at / host_of.len(), at % host_of.len());
        if from != to {
            ranks[from].sent_bytes += bytes;
            ranks[to].received_bytes += bytes;
        }
        if host_of[from] != host_of[to] {
            hosts[host_of[from]].sent_bytes += bytes;
            hosts[host_of[to]].received_bytes += bytes;
        }
    }
    let named = names.iter().zip(hosts).filter(|_| names.len() > 1);
    (ranks, named.map(|(host, moved)| HostMoved { host: (*host).to_owned(), moved }).collect())
}

/// What nobody writes into a name.
const LOAD: &str = "; load ";
const TIMES: &str = " times an even share";

/// `rank 3 on node1 receives 3.25 times an even share`.
impl fmt::Display for BusyRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} on {} {} {:.2}{TIMES}", self.rank, self.host, self.direction, self.times_even)
    }
}

/// `host node1 receives 2.17 times an even share`.
impl fmt::Display for BusyHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} {} {:.2}{TIMES}", self.host, self.direction, self.times_even)
    }
}

/// The part of a line below a table, without what each rank and host moves; `Skew::from_str` reads it.
impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "even {:.2} us, bound {:.2} us; {}", self.even.0, self.bound.0, self.rank)?;
        if let Some(host) = &self.host {
            write!(f, "; {host}")?;
        }
        write!(f, "{LOAD}{}", self.load)
    }
}

impl std::str::FromStr for Skew {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (text, load) = text.split_once(LOAD).ok_or(())?;
        let mut parts = text.split("; ");
        let (even, bound) = parts.next().and_then(|times| times.split_once(", ")).ok_or(())?;
        let time = |text: &str, name: &str| {
            let time = text.strip_prefix(name)?.strip_suffix(" us")?.parse().ok()?;
            Some(Micros(time)).filter(|time| time.0.is_finite() && time.0 > 0.0)
        };
        let (even, bound) = (time(even, "even ").ok_or(())?, time(bound, "bound ").ok_or(())?);
        let rank = parts.next().and_then(busy_rank).ok_or(())?;
        let host = parts.next().map(|part| busy(part.strip_prefix("host ").ok_or(())?).ok_or(())).transpose()?;
        Ok(Skew { load: load.to_owned(), even, bound, rank, host, ranks: Vec::new(), hosts: Vec::new() })
    }
}

fn busy_rank(text: &str) -> Option<BusyRank> {
    let (rank, rest) = text.strip_prefix("rank ")?.split_once(" on ")?;
    let BusyHost { host, direction, times_even } = busy(rest)?;
    Some(BusyRank { rank: rank.parse().ok()?, host, direction, times_even })
}

fn busy(text: &str) -> Option<BusyHost> {
    let mut words = text.strip_suffix(TIMES)?.split(' ');
    let (host, direction, times) = (words.next()?, words.next()?, words.next()?);
    let times_even = times.parse::<f64>().ok().filter(|times| times.is_finite() && *times > 0.0)?;
    let busy = BusyHost { host: host.to_owned(), direction: Direction::from_name(direction)?, times_even };
    words.next().is_none().then_some(busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skew(name: &str, hosts: &[&str]) -> Skew {
        let load = Load::shape(name, hosts.len()).unwrap().unwrap();
        let bytes: Vec<u64> = (0..hosts.len() * hosts.len())
            .map(|at| (load.share(at / hosts.len(), at % hosts.len()) * 800.0) as u64)
            .collect();
        Skew::of(&load, hosts, &bytes, Micros(100.0)).unwrap()
    }

    #[test]
    fn the_busiest_rank_or_host_sets_the_bound() {
        let here = skew("W1", &["a"; 4]);
        assert_eq!((here.rank.rank, here.rank.times_even, here.bound.0), (0, 3.25, 325.0));
        assert_eq!((here.host, here.hosts), (None, vec![]));
        assert_eq!(here.ranks[0], Moved { sent_bytes: 150, received_bytes: 1950 });
        assert_eq!(here.ranks[1], Moved { sent_bytes: 750, received_bytes: 150 });
        // Two of eight ranks are hot, both on a: it receives 7/8 of what b sends, half of which is an even share.
        let across = skew("W1", &["a", "a", "a", "a", "b", "b", "b", "b"]);
        let host = across.host.unwrap();
        assert_eq!((host.host.as_str(), host.direction, host.times_even), ("a", Direction::Receives, 1.75));
        assert_eq!(across.hosts[0].moved, Moved { sent_bytes: 400, received_bytes: 2800 });
        assert_eq!(Skew::of(&Load::even(1).unwrap(), &["a"], &[8], Micros(1.0)), None);
    }

    #[test]
    fn a_line_says_what_it_says_again_when_it_is_read() {
        for hosts in [&["a"; 4][..], &["a", "a", "b", "b"]] {
            let said = Skew { ranks: vec![], hosts: vec![], ..skew("W5", hosts) };
            assert_eq!(said.to_string().parse(), Ok(said));
        }
        for text in
            ["", "even 1 us, bound 2 us", "even x us, bound 2 us; rank 0 on a sends 2.00 times an even share; load W4"]
        {
            assert_eq!(text.parse::<Skew>(), Err(()), "{text}");
        }
    }
}

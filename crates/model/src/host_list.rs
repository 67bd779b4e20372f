//! Slurm's host lists: `node[1-3,07],other[1-2]-ib` names node1, node2, node3, node07, other1-ib and other2-ib.

use std::net::IpAddr;

/// So many hosts at most: more come from a slip of the keyboard.
const MOST: usize = 1 << 20;

/// The names that a list stands for, not written out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostList {
    items: Vec<Vec<Part>>,
}

/// A piece of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Numbers(Vec<Numbers>),
}

/// `01-03`, or one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    first: u64,
    last: u64,
    /// Digits of the first number: the others are filled with zeros up to it.
    width: usize,
}

impl HostList {
    /// Reads a list.
    ///
    /// # Errors
    /// Says what is wrong, to be read after the list.
    pub fn parse(list: &str) -> Result<Self, String> {
        let items = split_outside_brackets(list)?.into_iter().map(parts_of).collect::<Result<_, _>>()?;
        let list = HostList { items };
        if list.count() > MOST { Err(format!("names more than {MOST} hosts")) } else { Ok(list) }
    }

    /// How many names it stands for.
    pub fn count(&self) -> usize {
        let of_part = |part: &Part| match part {
            Part::Text(_) => 1,
            Part::Numbers(ranges) => ranges.iter().map(Numbers::count).fold(0, usize::saturating_add),
        };
        let of_item = |item: &Vec<Part>| item.iter().map(of_part).fold(1, usize::saturating_mul);
        self.items.iter().map(of_item).fold(0, usize::saturating_add)
    }

    /// All names, in order.
    pub fn hosts(&self) -> Vec<String> {
        self.items.iter().flat_map(|item| expand(item)).collect()
    }

    /// Whether a host is among them. Names are compared without their domain, which either may leave out.
    pub fn names(&self, host: &str) -> bool {
        let host = without_domain(host);
        self.items.iter().any(|item| is_named(item, host))
    }
}

impl Numbers {
    fn parse(range: &str) -> Result<Self, String> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = if digits { text.parse::<u64>().ok() } else { None };
            number.ok_or_else(|| format!("has {range:?} where a number or a range of numbers belongs"))
        };
        let numbers = Numbers { first: number(first)?, last: number(last)?, width: first.len() };
        match numbers.last < numbers.first {
            true => Err(format!("has the range {range:?}, which ends before it begins")),
            false => Ok(numbers),
        }
    }

    fn count(&self) -> usize {
        usize::try_from(self.last - self.first).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Whether a number is among them as it is written.
    fn has(&self, digits: &str) -> bool {
        let is_written = digits.len() == self.width || digits.len() > self.width && !digits.starts_with('0');
        let number = digits.parse::<u64>();
        is_written && number.is_ok_and(|number| (self.first..=self.last).contains(&number))
    }
}

/// Cuts at the commas that are not within brackets.
fn split_outside_brackets(list: &str) -> Result<Vec<&str>, String> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match (byte, inside) {
            (b'[', false) => inside = true,
            (b']', true) => inside = false,
            (b'[', true) | (b']', false) => return Err(format!("has a bracket too many at column {}", at + 1)),
            (b',', false) => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("has an opening bracket without a closing one".into());
    }
    items.push(&list[start..]);
    match items.iter().position(|item| item.is_empty()) {
        Some(empty) => Err(format!("has no name at place {}", empty + 1)),
        None => Ok(items),
    }
}

fn parts_of(item: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut left) = (Vec::new(), item);
    while let Some((text, rest)) = left.split_once('[') {
        let (ranges, behind) = rest.split_once(']').ok_or_else(|| format!("has a broken bracket in {item:?}"))?;
        parts.push(Part::Text(text.into()));
        parts.push(Part::Numbers(ranges.split(',').map(Numbers::parse).collect::<Result<_, _>>()?));
        left = behind;
    }
    parts.push(Part::Text(left.into()));
    Ok(parts)
}

/// The names of an item: each that its first parts stand for goes on with each that the next stands for.
fn expand(item: &[Part]) -> Vec<String> {
    item.iter().fold(vec![String::new()], |names, part| match part {
        Part::Text(text) => names.into_iter().map(|name| name + text).collect(),
        Part::Numbers(ranges) => {
            let numbers = || ranges.iter().flat_map(|one| (one.first..=one.last).map(|number| (number, one.width)));
            let with = |name: String| numbers().map(move |(number, width)| format!("{name}{number:0width$}"));
            names.into_iter().flat_map(with).collect()
        }
    })
}

/// Whether an item stands for a name that has no domain.
fn is_named(item: &[Part], host: &str) -> bool {
    let mut ends = vec![0];
    for part in item {
        ends = match part {
            Part::Text(text) => {
                let cut = without_domain(text);
                let behind = |end: usize| host[end..].starts_with(cut).then_some(end + cut.len());
                ends = ends.into_iter().filter_map(behind).collect();
                if cut.len() < text.len() {
                    break;
                }
                ends
            }
            Part::Numbers(ranges) => {
                let digits = |end: usize| host[end..].bytes().take_while(u8::is_ascii_digit).count();
                let stops = ends.into_iter().flat_map(|end| (1..=digits(end)).map(move |more| (end, end + more)));
                let fits = |&(from, to): &(usize, usize)| ranges.iter().any(|one| one.has(&host[from..to]));
                stops.filter(fits).map(|(_, to)| to).collect()
            }
        };
    }
    ends.contains(&host.len())
}

fn without_domain(host: &str) -> &str {
    if host.parse::<IpAddr>().is_ok() { host } else { host.split('.').next().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists() {
        for (list, hosts) in [
            ("node1", "node1"),
            ("node[1-3,7],other", "node1 node2 node3 node7 other"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[001,3]-ib", "n001-ib n3-ib"),
            ("rack[1-2]node[1-2]", "rack1node1 rack1node2 rack2node1 rack2node2"),
            ("a,b,a", "a b a"),
            ("gpu-a100-[0-1].cluster", "gpu-a100-0.cluster gpu-a100-1.cluster"),
        ] {
            assert_eq!(HostList::parse(list).unwrap().hosts().join(" "), hosts, "{list}");
        }
    }

    #[test]
    fn lists_that_are_none() {
        for (list, says) in [
            ("", "no name at place 1"),
            ("a,,b", "no name at place 2"),
            ("a[1", "without a closing one"),
            ("a]1", "a bracket too many at column 2"),
            ("a[[1]]", "a bracket too many at column 3"),
            ("a[]", "where a number"),
            ("a[1-]", "where a number"),
            ("a[x]", "where a number"),
            ("a[3-1]", "ends before it begins"),
            ("a[0-99999999999999999999]", "where a number"),
            ("a[0-18446744073709551615]", "more than"),
            ("a[0-9999]b[0-9999]", "more than"),
        ] {
            let error = HostList::parse(list).unwrap_err();
            assert!(error.contains(says), "{list}: {error}");
        }
    }

    #[test]
    fn lists_name_hosts() {
        for (list, host, expected) in [
            ("node01", "node01", true),
            ("node01", "node01.cluster.local", true),
            ("node01.cluster.local", "node01", true),
            ("node[01-03].cluster.local", "node02", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("node[01-03,07]", "node02", true),
            ("node[01-03,07]", "node07", true),
            ("node[01-03,07]", "node04", false),
            ("node[01-03,07]", "node2", false),
            ("node[8-11]", "node010", false),
            ("login1,node[01-03]", "login1", true),
            ("node[1-20]-ib", "node11-ib", true),
            ("rack[1-2]node[1-2]0", "rack2node10", true),
            ("node1", "node11", false),
        ] {
            assert_eq!(HostList::parse(list).unwrap().names(host), expected, "{list} {host}");
        }
    }

    /// Writes hosts with one prefix and width as Slurm does.
    fn compress(prefix: &str, width: usize, runs: &[(u64, u64)]) -> String {
        let item = |&(from, count): &(u64, u64)| match count {
            1 => format!("{from:0width$}"),
            _ => format!("{from:0width$}-{:0width$}", from + count - 1),
        };
        format!("{prefix}[{}]", runs.iter().map(item).collect::<Vec<_>>().join(","))
    }

    proptest! {
        #[test]
        fn expanding_undoes_compressing(width in 1usize..5, runs in prop::collection::vec((0u64..2000, 1u64..20), 1..6)) {
            let list = compress("node", width, &runs);
            let hosts: Vec<String> =
                runs.iter().flat_map(|&(from, count)| from..from + count).map(|n| format!("node{n:0width$}")).collect();
            // A range that grows beyond its width keeps the width of its first number.
            let read = HostList::parse(&list).unwrap();
            prop_assert!(hosts.iter().all(|host| read.names(host)));
            prop_assert_eq!(read.hosts(), hosts);
        }

        #[test]
        fn nothing_panics(list in "[a-c0-9.\\[\\],-]{0,24}", host in "[a-c0-9.]{0,6}") {
            let read = HostList::parse(&list);
            let _ = read.map(|list| (list.count() < 10_000).then(|| list.hosts()).is_some() || list.names(&host));
        }
    }
}

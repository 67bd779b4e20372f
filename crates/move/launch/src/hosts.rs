//! The hosts of a job, as a user names them: `--hosts a:8,b:8`.

use crate::{Error, Result, host};
use std::str::FromStr;

/// A host, and how many ranks it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    pub host: String,
    /// Processes there; at least 1.
    pub ranks: usize,
}

/// The hosts of a job, in the order of their ranks; none of them twice.
///
/// ```
/// use busbw_launch::hosts::Hosts;
/// let hosts: Hosts = "a:8,b:4,c".parse().unwrap();
/// assert_eq!((hosts.ranks(), hosts.to_string()), (13, "a:8,b:4,c:1".to_owned()));
/// assert!("a:8,b:x".parse::<Hosts>().unwrap_err().to_string().contains("place 2"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<Slots>);

impl Hosts {
    pub fn slots(&self) -> &[Slots] {
        &self.0
    }

    /// How many processes the job has.
    pub fn ranks(&self) -> usize {
        self.0.iter().map(|slots| slots.ranks).sum()
    }

    /// The hosts whose names do not resolve here.
    pub fn unknown(&self) -> Vec<String> {
        let unknown = |slots: &&Slots| host::resolve(&slots.host, 0).is_none();
        self.0.iter().filter(unknown).map(|slots| slots.host.clone()).collect()
    }

    /// Checks that every host's name resolves here.
    pub fn resolve(&self) -> Result<()> {
        let unknown = self.unknown();
        if unknown.is_empty() {
            return Ok(());
        }
        let (noun, verb) = if unknown.len() == 1 { ("host", "does") } else { ("hosts", "do") };
        Err(Error::Usage(format!(
            "the {noun} {} {verb} not resolve: correct the name, or add it to DNS or /etc/hosts",
            crate::describe::list(&unknown)
        )))
    }
}

impl FromStr for Hosts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut hosts: Vec<Slots> = Vec::new();
        for (place, item) in text.split(',').enumerate() {
            let wrong = |problem: String| Error::Usage(format!("--hosts {text}: place {} {problem}", place + 1));
            let slots = slots(item.trim()).map_err(&wrong)?;
            if let Some(first) = hosts.iter().position(|other| other.host == slots.host) {
                let problem = format!(
                    "names {} again, after place {}: name each host once, with all its ranks",
                    slots.host,
                    first + 1
                );
                return Err(wrong(problem));
            }
            hosts.push(slots);
        }
        Ok(Hosts(hosts))
    }
}

fn slots(item: &str) -> std::result::Result<Slots, String> {
    // An IPv6 address has colons of its own, and stands in brackets: [fd00::1]:8.
    let name_end = if item.starts_with('[') { item.find(']').map_or(item.len(), |end| end + 1) } else { 0 };
    let (name, count) = match item[name_end..].find(':') {
        Some(colon) => (&item[..name_end + colon], Some(&item[name_end + colon + 1..])),
        None => (item, None),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
    if name.is_empty() {
        return Err("has no host; write HOST:RANKS,HOST:RANKS".into());
    }
    if let Some(odd) = name.chars().find(|&c| !allowed(c)) {
        return Err(format!("has {odd:?} in the host name {name:?}; write HOST:RANKS,HOST:RANKS"));
    }
    if name.starts_with('-') {
        return Err(format!("has a host name that begins with '-': {name:?}"));
    }
    let ranks = match count {
        None => 1,
        Some(count) => match count.parse::<u32>() {
            Ok(ranks @ 1..) => ranks as usize,
            _ => return Err(format!("has {count:?} where the number of ranks of {name} belongs; write {name}:8")),
        },
    };
    Ok(Slots { host: name.to_owned(), ranks })
}

impl std::fmt::Display for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, Slots { host, ranks }) in self.0.iter().enumerate() {
            write!(f, "{}{host}:{ranks}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        for (text, hosts) in [
            ("a", "a:1"),
            ("a:8,b:8", "a:8,b:8"),
            ("10.77.0.1:2, 10.77.0.2", "10.77.0.1:2,10.77.0.2:1"),
            ("[fd00::1]:4,node-2.cluster:1", "[fd00::1]:4,node-2.cluster:1"),
        ] {
            assert_eq!(text.parse::<Hosts>().unwrap().to_string(), hosts);
        }
    }

    #[test]
    fn lists_that_are_none() {
        for (text, says) in [
            ("", "place 1 has no host"),
            ("a:8,,b:8", "place 2 has no host"),
            ("a:8,", "place 2 has no host"),
            (":8", "place 1 has no host"),
            ("a:0", "place 1 has \"0\" where the number of ranks of a belongs"),
            ("a:", "place 1 has \"\" where"),
            ("a:8:8", "place 1 has \"8:8\" where"),
            ("a,b:-1", "place 2 has \"-1\" where"),
            ("a b", "place 1 has ' ' in the host name"),
            ("a;rm", "place 1 has ';' in"),
            ("-x", "begins with '-'"),
            ("a:8,b:8,a:4", "place 3 names a again, after place 1"),
        ] {
            let error = text.parse::<Hosts>().unwrap_err().to_string();
            assert!(error.starts_with("--hosts") && error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn hosts_that_do_not_resolve_are_named() {
        "localhost:2".parse::<Hosts>().unwrap().resolve().unwrap();
        let error = "localhost,no-such-host.invalid".parse::<Hosts>().unwrap().resolve().unwrap_err().to_string();
        assert!(error.starts_with("the host no-such-host.invalid does not resolve"), "{error}");
    }
}

//! Who is missing where ranks say that they wait, each with how many have joined: the ranks that none of as many lines names.

use crate::data::Cause;
use crate::lines::Line;
use crate::words::listed;
use std::collections::BTreeSet;

/// Ranks that a title names at most.
const MOST_NAMED: usize = 8;

/// `: rank 4 of 8 is missing`, or that too many have joined, where the gaps `RANK`, `WORLD_SIZE`, `JOINED` and `KEY`, what they wait for, tell it.
pub fn named(cause: &Cause, lines: &[&Line]) -> Option<String> {
    let told: Vec<Waiting> = lines.iter().filter_map(|line| Waiting::read(cause, &line.text)).collect();
    let last = told.last()?;
    let of_last = told.iter().filter(|one| (one.key, one.world) == (last.key, last.world));
    let waiting: BTreeSet<u32> = of_last.clone().map(|one| one.rank).collect();
    let joined = of_last.map(|one| one.joined).max()? as usize;
    if joined > last.world as usize {
        return Some(format!(
            ": {joined} have joined a group of {}, others than those meant or some twice",
            last.world
        ));
    }
    if joined != waiting.len() || joined >= last.world as usize {
        return None;
    }
    let missing: Vec<u32> = (0..last.world).filter(|rank| !waiting.contains(rank)).collect();
    let (ranks, are) = if missing.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
    Some(format!(": {ranks} {} of {} {are} missing", listed(missing.into_iter(), MOST_NAMED), last.world))
}

struct Waiting<'a> {
    key: &'a str,
    rank: u32,
    world: u32,
    joined: u32,
}

impl<'a> Waiting<'a> {
    fn read(cause: &'a Cause, text: &'a str) -> Option<Self> {
        const MOST: u32 = 1 << 20;
        let values: Vec<_> = cause.printed.iter().flat_map(|printed| printed.text.values(text)).collect();
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let number = |name: &str| value(name)?.parse().ok().filter(|number| *number <= MOST);
        let key = value("KEY").unwrap_or_default();
        Some(Waiting { key, rank: number("RANK")?, world: number("WORLD_SIZE")?, joined: number("JOINED")? })
    }
}

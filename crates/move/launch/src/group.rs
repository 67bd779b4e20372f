//! Ranks of a job that exchange among themselves: all of them, those of one host, those of one split.

use crate::control::Link;
use crate::wire::{Key, Part, Step, ToServer};
use busbw_transport::{Error, Exchange, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Some of a job's ranks, numbered anew from 0. Its steps are those of every member, in the same order.
pub struct Group {
    link: Arc<Link>,
    /// Ranks of the job, by number in this group.
    ranks: Vec<usize>,
    rank: usize,
    path: Vec<(u32, i64)>,
    steps: u64,
    splits: u32,
}

impl Group {
    pub(crate) fn world(link: Arc<Link>, rank: usize, size: usize) -> Self {
        Group { link, ranks: (0..size).collect(), rank, path: Vec::new(), steps: 0, splits: 0 }
    }

    /// The members, as ranks of the job, in the order of their numbers here.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Waits until every member is here.
    pub fn barrier(&mut self) -> Result<()> {
        self.step(Step::Barrier, &[]).map(drop)
    }

    /// What every member gives, by number, to member `root`; nothing to the others.
    pub fn gather(&mut self, root: usize, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        if root >= self.ranks.len() {
            return Err(Error::Config(format!("there is no root {root} among {} ranks", self.ranks.len())));
        }
        self.step(Step::Gather(root as u32), mine)
    }

    /// The members that give the same `color`, in the order of their `key`, then of their numbers here.
    pub fn split(&mut self, color: i64, key: i64) -> Result<Group> {
        self.splits += 1;
        let wishes = self.all_gather(&[color.to_le_bytes(), key.to_le_bytes()].concat())?;
        let mut same: Vec<(i64, usize)> = Vec::new();
        for (number, wish) in wishes.iter().enumerate() {
            let (Some((theirs, rest)), true) = (wish.split_first_chunk::<8>(), wish.len() == 16) else {
                return Err(Error::Protocol {
                    peer: format!("rank {}", self.ranks[number]),
                    what: "no wish of a split".into(),
                });
            };
            if i64::from_le_bytes(*theirs) == color {
                let key = rest.first_chunk::<8>().map_or(0, |key| i64::from_le_bytes(*key));
                same.push((key, number));
            }
        }
        same.sort_unstable();
        let ranks: Vec<usize> = same.iter().map(|&(_, number)| self.ranks[number]).collect();
        let rank = same.iter().position(|&(_, number)| number == self.rank).unwrap_or_default();
        let mut path = self.path.clone();
        path.push((self.splits, color));
        Ok(Group { link: Arc::clone(&self.link), ranks, rank, path, steps: 0, splits: 0 })
    }

    /// Numbers groups of equal `ids` by first appearance, and splits by that.
    pub(crate) fn split_by(&mut self, ids: &[u64]) -> Result<Group> {
        let mut colors: HashMap<u64, i64> = HashMap::new();
        for id in ids {
            let next = colors.len() as i64;
            colors.entry(*id).or_insert(next);
        }
        let color = ids.get(self.rank).and_then(|id| colors.get(id)).copied().unwrap_or(-1);
        self.split(color, 0)
    }

    fn step(&mut self, step: Step, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.link.cancel.check()?;
        self.steps += 1;
        let key = Key { group: self.path.clone(), number: self.steps };
        let (members, index) = (self.ranks.len() as u32, self.rank as u32);
        let part = Part { key: key.clone(), step, members, index, data: mine.to_vec() };
        self.link.exchanging.store(true, Ordering::Relaxed);
        // If the server is gone, the reason is better than the failed write.
        let sent = self.link.send(&ToServer::Give(part));
        let given = match sent {
            Ok(()) => self.link.wait(|arrived| arrived.steps.remove(&key)),
            Err(error) => match self.link.verdict(std::time::Duration::from_secs(1)) {
                Some(verdict) => Err(Error::Cancelled(verdict)),
                None => Err(error),
            },
        };
        self.link.exchanging.store(false, Ordering::Relaxed);
        given
    }
}

impl Exchange for Group {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let parts = self.step(Step::AllGather, mine)?;
        if parts.len() != self.ranks.len() {
            let what = format!("{} parts of an exchange among {} ranks", parts.len(), self.ranks.len());
            return Err(Error::Protocol { peer: "rank 0".into(), what });
        }
        Ok(parts)
    }
}

//! From samples of a job to what its ranks do: who moved bytes when, who is stopped, who has ended, whether all stand still.

use crate::still::{Progress, Standstill};
use busbw_model::{ProcessEnd, Stall, WatchSource, Watched, WatchedRank};
use busbw_probe::processes::{Connection, Ended, JobSample, RankSample};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use crate::peers;

/// Cores below which a process only waits: pollers and heartbeats take a few hundredths.
const BUSY_CORES: f64 = 0.2;
/// Bytes per second that a process moves besides those between ranks, below which it only logs.
const BUSY_BYTES: u64 = 64 << 10;
/// NCCL's RAS threads send each other some hundred bytes a second (`RAS_KEEPALIVE_INTERVAL` of its src/ras): on a connection of a rank
/// with a GPU, less than this is no collective.
const KEEP_ALIVE_BYTES: u64 = 4 << 10;
/// A stop that is shorter than this many samples is a debugger's.
const STOPPED_SAMPLES: u32 = 2;
/// Ranks that were asked to end, and those that ended well, may precede the others by this many samples.
const LEFT_BEHIND_SAMPLES: u32 = 2;

/// What is wrong, as far as the judge need be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A rank's process has failed.
    Ended,
    /// A signal holds a rank.
    Stopped,
    Stalled,
}

/// Follows the ranks of a job.
#[derive(Debug)]
pub struct Tracker {
    host: String,
    standstill: Standstill,
    ranks: BTreeMap<u32, Followed>,
    last: JobSample,
}

/// A rank's process, from its first sample on.
#[derive(Debug, Clone)]
struct Followed {
    sample: RankSample,
    shown: WatchedRank,
    stopped: u32,
    left: u32,
    /// Processor time, and when, where the standstill began.
    since: (u64, u64),
    /// Since when an address acknowledges nothing.
    unanswered: HashMap<IpAddr, u64>,
}

impl Followed {
    fn new(sample: &RankSample, host: &str, now_us: u64) -> Self {
        let shown = WatchedRank {
            rank: sample.identity.rank,
            host: sample.host.clone().unwrap_or_else(|| host.to_owned()),
            pid: sample.pid,
            state_since_us: now_us,
            ..WatchedRank::default()
        };
        let since = (sample.cpu_us + sample.helpers_cpu_us, now_us);
        Followed { sample: sample.clone(), shown, stopped: 0, left: 0, since, unanswered: HashMap::new() }
    }

    /// Takes the next sample; what happened since the last.
    fn feed(&mut self, next: &RankSample, now_us: u64, time: Duration) -> Progress {
        let seconds = time.as_secs_f64().max(1e-3);
        let before = std::mem::replace(&mut self.sample, next.clone());
        if self.shown.state != next.state {
            // A rank that waits runs now and then.
            let waits =
                |state| matches!(state, busbw_model::ProcessState::Running | busbw_model::ProcessState::Sleeping);
            if !(waits(self.shown.state) && waits(next.state)) {
                self.shown.state_since_us = now_us;
            }
            self.shown.state = next.state;
        }
        self.stopped = if next.state == busbw_model::ProcessState::Stopped { self.stopped + 1 } else { 0 };
        self.shown.system_call = next.system_call.map(crate::calls::name);
        self.shown.kernel_function.clone_from(&next.kernel_function);
        let moved = moved(&before, next, seconds);
        if moved > 0 {
            self.shown.moved_us = Some(now_us);
            self.shown.moved_bytes += moved;
            self.since = (next.cpu_us + next.helpers_cpu_us, now_us);
        }
        for connection in &next.connections {
            let address = connection.remote.ip();
            if peers::is_unanswered(connection) {
                self.unanswered.entry(address).or_insert(now_us);
            }
        }
        let unanswered = |address: &IpAddr| {
            next.connections.iter().any(|one| one.remote.ip() == *address && peers::is_unanswered(one))
        };
        self.unanswered.retain(|address, _| unanswered(address));
        let cpu = |one: &RankSample| one.cpu_us + one.helpers_cpu_us;
        let cores = cpu(next).saturating_sub(cpu(&before)) as f64 / 1e6 / seconds;
        let since_us = now_us.saturating_sub(self.since.1);
        self.shown.cores =
            if since_us == 0 { cores } else { cpu(next).saturating_sub(self.since.0) as f64 / since_us as f64 };
        if moved > 0 {
            Progress::Moved
        } else if cores >= BUSY_CORES || elsewhere(&before, next) as f64 / seconds >= BUSY_BYTES as f64 {
            Progress::Works
        } else {
            Progress::Still
        }
    }

    fn is_there(&self) -> bool {
        self.shown.ended.is_none()
    }
}

/// Bytes that a rank exchanged with others between two samples.
fn moved(before: &RankSample, next: &RankSample, seconds: f64) -> u64 {
    let least = if next.on_gpu { (KEEP_ALIVE_BYTES as f64 * seconds) as u64 } else { 0 };
    let earlier: HashMap<u64, &Connection> = before.connections.iter().map(|one| (one.inode, one)).collect();
    let of_ranks = || next.connections.iter().filter(|one| peers::is_between_ranks(one, next));
    let counted: Vec<u64> = of_ranks()
        .filter_map(|one| {
            let then = earlier.get(&one.inode).and_then(|then| then.carried).unwrap_or(0);
            Some(one.carried?.saturating_sub(then)).filter(|bytes| *bytes > least)
        })
        .collect();
    if of_ranks().any(|one| one.carried.is_some()) {
        return counted.iter().sum();
    }
    // Without counters per connection: all that the process reads and writes, where it has connections at all.
    let (Some(then), Some(now)) = (before.io, next.io) else { return 0 };
    if of_ranks().next().is_none() {
        return 0;
    }
    let bytes = |io: busbw_probe::processes::Io| io.read_chars + io.written_chars;
    bytes(now).saturating_sub(bytes(then))
}

/// Bytes that a rank moved otherwise: files, stores, downloads.
fn elsewhere(before: &RankSample, next: &RankSample) -> u64 {
    let earlier: HashMap<u64, &Connection> = before.connections.iter().map(|one| (one.inode, one)).collect();
    let others = next.connections.iter().filter(|one| !peers::is_between_ranks(one, next));
    let carried = others.filter_map(|one| {
        let then = earlier.get(&one.inode).and_then(|then| then.carried).unwrap_or(0);
        Some(one.carried?.saturating_sub(then))
    });
    let io = |one: &RankSample| one.io.map_or(0, |io| io.read_chars + io.written_chars);
    carried.sum::<u64>() + io(next).saturating_sub(io(before))
}

impl Tracker {
    /// A tracker of ranks on this host, with the limit that was asked for.
    pub fn new(host: &str, limit: Duration) -> Self {
        let standstill = Standstill::new(limit);
        Tracker { host: host.to_owned(), standstill, ranks: BTreeMap::new(), last: JobSample::default() }
    }

    /// Takes a sample.
    pub fn feed(&mut self, sample: &JobSample) {
        let time = Duration::from_micros(sample.time_us.saturating_sub(self.last.time_us));
        let mut happened = Vec::new();
        for rank in &sample.ranks {
            match self.ranks.get_mut(&rank.pid).filter(|followed| followed.is_there()) {
                Some(followed) => happened.push(followed.feed(rank, sample.time_us, time)),
                None => {
                    self.forget(rank.identity.rank);
                    self.ranks.insert(rank.pid, Followed::new(rank, &self.host, sample.time_us));
                }
            }
        }
        let there = |pid: &u32| sample.ranks.iter().any(|rank| rank.pid == *pid);
        let missing: Vec<u32> = self
            .ranks
            .iter()
            .filter(|(pid, followed)| followed.is_there() && !there(pid))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in missing {
            self.ended(Ended { pid, time_us: sample.time_us, wait_status: None });
        }
        self.ranks.values_mut().filter(|followed| !followed.is_there()).for_each(|followed| followed.left += 1);
        if !happened.is_empty() {
            let progress = [Progress::Moved, Progress::Works].into_iter().find(|one| happened.contains(one));
            self.standstill.feed(progress.unwrap_or(Progress::Still), time, sample.time_us);
        }
        self.last = sample.clone();
    }

    /// A rank that is started again takes the place of the one that ended.
    fn forget(&mut self, rank: u32) {
        self.ranks.retain(|_, followed| followed.shown.rank != rank || followed.is_there());
    }

    /// Takes the end of a process.
    pub fn ended(&mut self, end: Ended) {
        let Some(followed) = self.ranks.get_mut(&end.pid).filter(|followed| followed.is_there()) else { return };
        let signal = end.wait_status.map(|status| status & 0x7f).filter(|signal| *signal != 0);
        let status = end.wait_status.filter(|_| signal.is_none()).map(|status| status >> 8 & 0xff);
        followed.shown.ended = Some(ProcessEnd { time_us: end.time_us, status, signal });
    }

    /// The processes of ranks that run.
    pub fn running(&self) -> impl Iterator<Item = &RankSample> {
        self.ranks.values().filter(|followed| followed.is_there()).map(|followed| &followed.sample)
    }

    /// What is wrong now, the surest first.
    pub fn trouble(&self) -> Option<Trouble> {
        // Ctrl-C and schedulers ask all ranks, and the first to go is no fault.
        const ASKED: [i32; 2] = [nix::libc::SIGINT, nix::libc::SIGTERM];
        let others = self.ranks.values().any(Followed::is_there);
        let failed = self.ranks.values().any(|followed| {
            let end = followed.shown.ended.filter(ProcessEnd::failed);
            let asked = end.and_then(|end| end.signal).is_some_and(|signal| ASKED.contains(&signal));
            end.is_some() && (!asked || followed.left >= LEFT_BEHIND_SAMPLES && others)
        });
        let stopped =
            || self.ranks.values().filter(|followed| followed.is_there() && followed.stopped >= STOPPED_SAMPLES);
        let all = self.nranks().is_some_and(|nranks| stopped().count() >= nranks as usize);
        if failed {
            Some(Trouble::Ended)
        } else if stopped().next().is_some() && !all {
            Some(Trouble::Stopped)
        } else if self.standstill.is_over() && others {
            Some(Trouble::Stalled)
        } else {
            None
        }
    }

    /// The limit as it is now.
    pub fn limit(&self) -> Duration {
        self.standstill.limit()
    }

    /// When something moved last.
    pub fn moved_us(&self) -> Option<u64> {
        self.standstill.moved_us()
    }

    fn nranks(&self) -> Option<u32> {
        self.ranks.values().map(|followed| followed.sample.identity.size).max()
    }

    /// What is known now, as it is kept. `name` names an address, as a rank's hosts file does.
    pub fn document(&self, name: impl Fn(u32, IpAddr) -> Option<String>, sources: Vec<WatchSource>) -> Watched {
        let samples: Vec<&RankSample> = self.running().collect();
        let show = |followed: &Followed| {
            let since = |address: &IpAddr| followed.unanswered.get(address).copied();
            let mut shown = followed.shown.clone();
            if followed.is_there() {
                shown.peers = peers::of(&followed.sample, &samples, &self.last.own_addresses, since);
            }
            for peer in &mut shown.peers {
                let rank = peer.rank.and_then(|rank| self.ranks.values().find(|one| one.shown.rank == rank));
                let address = peer.address.parse().ok();
                let named = address.and_then(|address| name(followed.sample.pid, address));
                peer.host = named.or_else(|| rank.map(|rank| rank.shown.host.clone()));
            }
            shown
        };
        let mut ranks: Vec<WatchedRank> = self.ranks.values().map(show).collect();
        ranks.sort_by_key(|rank| rank.rank);
        let limit_us = u64::try_from(self.limit().as_micros()).unwrap_or(u64::MAX);
        let stall = self.standstill.is_over().then_some(()).and(self.moved_us());
        Watched {
            host: self.host.clone(),
            time_us: self.last.time_us,
            nranks: self.nranks(),
            stall: stall.map(|since_us| Stall { since_us, limit_us }),
            ranks,
            without_carrier: self.last.without_carrier.clone(),
            sources,
            ..Watched::default()
        }
    }
}

#[cfg(test)]
mod tests;

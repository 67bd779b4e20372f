//! The rings of a job that runs already: who its processes are, and which of them keep events for a reader.

use busbw_events::{ATTACH, Memory, Reader, VARIABLE};
use busbw_model::ProcessState;
use busbw_probe::Root;
use busbw_probe::processes::{Members, Scope, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

/// How often new processes are looked for: at first, and later.
const LOOK: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_secs(5);
/// How long a job may take until the first of its processes has a ring.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why nothing can be read of a job.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(
        "no process of the job is on this host that this user may read; run busbw profile as the job's user, or as root"
    )]
    Nobody,
    #[error(
        "{0} keep no events: start the job with {VARIABLE}={ATTACH} in its environment, and one of NCCL's with \
         NCCL_PROFILER_PLUGIN=/path/to/libnccl-net-busbw.so as well"
    )]
    NotSet(String),
    #[error(
        "the job was started below busbw profile or busbw watch --profile, which reads its events already ({VARIABLE}={0})"
    )]
    Folder(String),
    #[error("no process of the job has made a communicator within {} s: try again when it trains", PATIENCE.as_secs())]
    Silent,
    #[error(
        "two jobs run here: processes {0} and {1} are both rank {2}; give --attach the process that started one of them (torchrun, \
         mpirun), or slurm:JOBID"
    )]
    Several(u32, u32, u32),
    #[error("process {0}: another busbw reads its events")]
    Read(u32),
    #[error("process {0}: its events cannot be read: {1}")]
    Ring(u32, io::Error),
}

/// A job that is looked on.
pub(crate) struct Attached {
    root: Root,
    members: Members,
    /// Rings that are read, or that cannot be.
    known: BTreeSet<u64>,
    /// Those that were not handed on yet.
    new: Vec<(u32, Reader)>,
    /// Who has a ring, and since when it runs.
    writers: BTreeMap<u32, u64>,
    refused: Vec<AttachError>,
    began: Instant,
    looked: Instant,
}

impl Attached {
    /// Looks for the first time.
    pub fn begin(scope: Scope) -> Result<Self, AttachError> {
        let (root, members) = (Root::live(), Members::of(scope).noting(VARIABLE));
        let (known, new, writers, refused) = Default::default();
        let began = Instant::now();
        let mut attached = Attached { root, members, known, new, writers, refused, began, looked: began };
        attached.search();
        attached.refusal().map_or(Ok(attached), Err)
    }

    /// Rings that are new, each with its process.
    pub fn look(&mut self) -> Result<Vec<(u32, Reader)>, AttachError> {
        let pause = if self.began.elapsed() < PATIENCE { LOOK } else { LATER };
        if self.looked.elapsed() >= pause {
            self.search();
            self.looked = Instant::now();
            if let Some(refusal) = self.refusal() {
                return Err(refusal);
            }
        }
        Ok(std::mem::take(&mut self.new))
    }

    fn search(&mut self) {
        self.members.look(&self.root);
        let ranks = self.members.ranks().into_iter().map(|(pid, _)| pid);
        let others = self.members.all().into_iter().filter(|pid| self.members.noted(*pid) == Some(ATTACH));
        // Ranks first: what they forked has their descriptors.
        for pid in ranks.chain(others).collect::<Vec<_>>() {
            for ring in Memory::of(pid).unwrap_or_default() {
                if self.known.contains(&ring.inode) {
                    continue;
                }
                match ring.open() {
                    Ok(Some(reader)) => {
                        self.writers.extend(self.started(pid).map(|started| (pid, started)));
                        self.new.push((pid, reader));
                    }
                    // Its process still makes it, or has just ended.
                    Ok(None) => continue,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.refused.push(AttachError::Read(pid))
                    }
                    Err(error) => self.refused.push(AttachError::Ring(pid, error)),
                }
                self.known.insert(ring.inode);
            }
        }
    }

    /// When a process was started; none of one that has ended.
    fn started(&self, pid: u32) -> Option<u64> {
        Stat::read(&self.root, pid).filter(|stat| stat.state != ProcessState::Zombie).map(|stat| stat.started)
    }

    /// Whether a process that has a ring runs still.
    pub fn runs(&self, pid: u32) -> bool {
        self.writers.get(&pid).is_some_and(|started| self.started(pid) == Some(*started))
    }

    /// Whether all processes that had a ring have ended.
    pub fn is_over(&self) -> bool {
        !self.writers.is_empty() && self.writers.keys().all(|pid| !self.runs(*pid))
    }

    /// Why there is nothing to read, and will not be; none where it may come still.
    fn refusal(&mut self) -> Option<AttachError> {
        if let Some(several) = self.several() {
            return Some(several);
        }
        if !self.writers.is_empty() {
            return None;
        }
        if !self.refused.is_empty() {
            return Some(self.refused.swap_remove(0));
        }
        let ranks = self.members.ranks();
        let others = self.members.all().into_iter().filter(|pid| *pid != std::process::id());
        let set: BTreeSet<&str> = others.filter_map(|pid| self.members.noted(pid)).collect();
        if set.contains(ATTACH) {
            return (self.began.elapsed() > PATIENCE).then_some(AttachError::Silent);
        }
        if let Some(folder) = set.first() {
            return Some(AttachError::Folder((*folder).to_owned()));
        }
        let nobody = self.members.unreadable() == self.members.all().len();
        Some(match ranks.len() {
            0 if nobody => AttachError::Nobody,
            0 => AttachError::NotSet("the processes here that this user may read".into()),
            1 => AttachError::NotSet("the rank here (1)".into()),
            count => AttachError::NotSet(format!("the {count} ranks here")),
        })
    }

    /// Two jobs have the same ranks.
    fn several(&self) -> Option<AttachError> {
        let ranks = self.members.ranks();
        let mut with_ring = ranks.iter().filter(|(pid, _)| self.writers.contains_key(pid));
        let mut seen = BTreeMap::new();
        with_ring.find_map(|(pid, identity)| {
            let other = seen.insert(identity.rank, *pid)?;
            Some(AttachError::Several(other, *pid, identity.rank))
        })
    }

    /// What of the job cannot be read, though others can.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(ToString::to_string)
    }

    /// The command line of the first process that has a ring.
    pub fn job(&self) -> Option<String> {
        let first = self.writers.first_key_value()?.0;
        let words = self.root.bytes(&format!("/proc/{first}/cmdline")).ok()?;
        let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        Some(words.join(" ").trim_end().to_owned())
    }
}

//! The launchers' key-value stores: rank 0 puts one text there, and the others get it.

mod pmi;
mod pmix;
mod tcp_store;

use crate::error::BY_HAND;
use crate::job_rank::{Discovery, JobRank};
use crate::{Error, Result};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub(crate) use tcp_store::TcpStore;

/// The one key that we use.
const KEY: &str = "busbw-meeting";

/// A session with a store.
trait Store {
    /// Puts `value` under [`KEY`].
    fn put(&mut self, value: &str) -> Result<()>;
    /// Waits until every process has come here; what was put before can be got after.
    fn fence(&mut self) -> Result<()>;
    /// What rank 0 has put under [`KEY`].
    fn get(&mut self) -> Result<String>;
    /// Ends the session, so that the launcher does not take this process for a crashed one.
    fn finish(&mut self) -> Result<()>;
}

/// Shares `mine` (rank 0's) with every process of the job. Every process calls it.
pub(crate) fn share(discovery: &Discovery, rank: usize, mine: Option<&str>, deadline: Instant) -> Result<String> {
    // A store has no time limit of its own, and a process that was never started would hold all others in the fence. The
    // thread that waits there is left behind when time is up: its process is about to end.
    let (answer, answered) = mpsc::channel();
    let (discovery, mine) = (discovery.clone(), mine.map(str::to_owned));
    let work = move || {
        let _ = answer.send(exchange(&discovery, rank, mine.as_deref(), deadline));
    };
    std::thread::Builder::new()
        .name("key-value store".into())
        .spawn(work)
        .map_err(|e| Error::system("start a thread for the launcher's key-value store", e))?;
    answered.recv_timeout(deadline.saturating_duration_since(Instant::now())).unwrap_or_else(|_| {
        Err(Error::Join(format!(
            "the launcher's key-value store did not bring the ranks together in time: check that every rank was started and \
             still runs (its output); or {BY_HAND}"
        )))
    })
}

/// Shares a text of rank 0's with every process of the job, which all call it; the others give `None`. `None` where the launcher
/// has no key-value store.
///
/// # Errors
/// The store does not bring the processes together in time, or cannot be used.
pub fn told_by_rank_0(job_rank: &JobRank, mine: Option<&str>, timeout: Duration) -> Result<Option<String>> {
    let has_store =
        matches!(job_rank.discovery, Discovery::Pmix { .. } | Discovery::Pmi1 { .. } | Discovery::Pmi2 { .. });
    // No time limit is one of a year, which an `Instant` can hold.
    let deadline = Instant::now() + timeout.min(Duration::from_secs(365 * 86_400));
    let told = has_store.then(|| share(&job_rank.discovery, job_rank.rank, mine, deadline));
    told.transpose()
}

pub fn exchange(discovery: &Discovery, rank: usize, mine: Option<&str>, deadline: Instant) -> Result<String> {
    let mut store: Box<dyn Store> = match discovery {
        Discovery::Pmix { namespace } => Box::new(pmix::Session::start(namespace)?),
        Discovery::Pmi1 { fd } => Box::new(pmi::Pmi1::start(*fd, deadline)?),
        Discovery::Pmi2 { fd, job } => Box::new(pmi::Pmi2::start(*fd, job, rank, deadline)?),
        _ => return Err(Error::Join("this job has no key-value store of PMI's".into())),
    };
    if let Some(mine) = mine {
        store.put(mine)?;
    }
    store.fence()?;
    let value = store.get()?;
    store.finish()?;
    Ok(value)
}

//! A rank's membership in its job: small exchanges, and word of who has died.

use crate::control::{self, Link};
use crate::group::Group;
use crate::rendezvous::ServerConnection;
use crate::wire::{RankInfo, ToServer};
use busbw_transport::{Cancellation, Error, Exchange, Result, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a rank that has failed waits for the server's word on who failed first.
const WORD_OF_THE_SERVER: Duration = Duration::from_secs(2);

/// What one rank has of its job. When a rank dies, falls silent or fails, the [`Cancellation`]s of all
/// others are triggered with one line that names it.
///
/// Dropping it without [`ProcessGroup::leave`] looks to the others like the death of this rank.
pub struct ProcessGroup {
    link: Arc<Link>,
    control: Option<JoinHandle<()>>,
    world: Group,
    ranks: Vec<RankInfo>,
    token: Token,
}

impl ProcessGroup {
    /// Joins over a connection that was let in; waits until every rank is there.
    pub(crate) fn start(
        ServerConnection { stream, address, token }: ServerConnection,
        (rank, size): (usize, usize),
        (cancel, timeout): (Arc<Cancellation>, Duration),
    ) -> Result<Self> {
        let link = Arc::new(Link::new(stream, cancel, timeout));
        let shared = Arc::clone(&link);
        let control = std::thread::Builder::new()
            .name(format!("control {rank}"))
            .spawn(move || control::run(&shared, &address.to_string()))
            .map_err(|e| Error::system("start the control thread", e))?;
        let world = Group::world(Arc::clone(&link), rank, size);
        let mut group = ProcessGroup { link, control: Some(control), world, ranks: Vec::new(), token };
        group.ranks = group.link.wait(|arrived| arrived.table.take())?;
        if group.ranks.len() != size {
            let what = format!("a table of {} ranks in a job of {size}", group.ranks.len());
            return Err(Error::Protocol { peer: "rank 0".into(), what });
        }
        Ok(group)
    }

    /// Every rank of the job, by number.
    pub fn ranks(&self) -> &[RankInfo] {
        &self.ranks
    }

    /// The job's token, which connections between its ranks prove that they hold as well.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Waits until every rank is here.
    pub fn barrier(&mut self) -> Result<()> {
        self.world.barrier()
    }

    /// What every rank gives, by number, to rank `root`; nothing to the others.
    pub fn gather(&mut self, root: usize, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.world.gather(root, mine)
    }

    /// What every rank gives, by number.
    ///
    /// # Errors
    /// When the job fails, or the ranks run different versions of busbw.
    pub fn all_gather_values<T: Serialize + DeserializeOwned>(&mut self, mine: &T) -> crate::Result<Vec<T>> {
        let differ = |error| crate::Error::Job(format!("the ranks do not run the same busbw: {error}"));
        let all = self.all_gather(&postcard::to_stdvec(mine).map_err(differ)?)?;
        all.iter().map(|one| postcard::from_bytes(one).map_err(differ)).collect()
    }

    /// The ranks that give the same `color`, in the order of their `key`, then of their ranks.
    pub fn split(&mut self, color: i64, key: i64) -> Result<Group> {
        self.world.split(color, key)
    }

    /// The ranks of this rank's host (those with its `host_id`).
    pub fn split_by_host(&mut self) -> Result<Group> {
        let ids: Vec<u64> = self.ranks.iter().map(|info| info.host_id).collect();
        self.world.split_by(&ids)
    }

    /// Says that an operation begins in which this rank may wait for others. From then on, a job in which nobody's
    /// [`Cancellation::advance`] is called for the timeout counts as stuck.
    pub fn enter(&self) {
        self.link.operating.store(true, Ordering::Relaxed);
    }

    /// Says that the operation is over.
    pub fn leave_operation(&self) {
        self.link.operating.store(false, Ordering::Relaxed);
    }

    pub fn cancellation(&self) -> &Arc<Cancellation> {
        &self.link.cancel
    }

    /// Waits until every rank has said goodbye, then leaves.
    pub fn leave(self) -> Result<()> {
        self.link.operating.store(false, Ordering::Relaxed);
        self.link.exchanging.store(true, Ordering::Relaxed);
        self.link.cancel.check()?;
        self.link.send(&ToServer::Goodbye)?;
        self.link.wait(|arrived| arrived.all_left.then_some(()))
    }

    /// Leaves because of this rank's own error `reason`, which is sent to the others: `rank 2 on host h1 (pid 7): reason`.
    /// Gives what the whole job failed of, for this rank to report: if another rank died first, that.
    pub fn fail(self, reason: &str) -> String {
        self.link.tell(reason);
        self.link.cancel.trigger(reason);
        self.link.verdict(WORD_OF_THE_SERVER).unwrap_or_else(|| reason.to_owned())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.link.close();
        if let Some(control) = self.control.take() {
            // A panic there was printed by the thread itself.
            let _ = control.join();
        }
    }
}

impl Exchange for ProcessGroup {
    fn rank(&self) -> usize {
        self.world.rank()
    }

    fn size(&self) -> usize {
        self.world.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.world.all_gather(mine)
    }
}

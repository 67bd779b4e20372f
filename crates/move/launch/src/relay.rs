//! Within a job that somebody else has started: every rank starts this program again, part by part, as a rank of a job of some of
//! them. Rank 0 says what runs next; the others obey until there is nothing more.

use crate::attendant::{Attendant, Attended};
use crate::{Error, JobRank, Lookup, ProcessGroup, Rendezvous, Result, Settings};
use busbw_transport::{Cancellation, Token};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a rank whose part runs says so: others that have none wait for it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// A part of a command: this program, run with several ranks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Part {
    /// The arguments of this program; none for the end.
    pub words: Vec<String>,
    /// So many of each host's ranks take part.
    pub per_host: usize,
    /// Variables beside those that say which rank it is.
    pub environment: Vec<(String, String)>,
}

/// What runs next.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Order {
    part: Part,
    /// Where rank 0's part listens, and what proves who belongs to it.
    rendezvous: String,
    token: String,
}

/// A rank's place in the job, for as long as parts of it run.
pub struct Relay {
    world: ProcessGroup,
    attendant: Attendant,
    program: PathBuf,
    /// Where rank 0 listens.
    address: IpAddr,
    /// Its server is the job's, and ends after the ranks have left.
    _rendezvous: Rendezvous,
}

impl Relay {
    /// Joins the job. Called before any thread is started.
    pub fn join(job_rank: &JobRank, look: Lookup, flags: String) -> Result<Self> {
        let attendant = Attendant::begin()?;
        let program = crate::command::this_program()?;
        let rendezvous = Rendezvous::open(job_rank, look, Settings { flags, ..Settings::default() })?;
        let address = rendezvous.listens_at().unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let world = rendezvous.join(0, Cancellation::new())?;
        Ok(Relay { world, attendant, program, address, _rendezvous: rendezvous })
    }

    /// On rank 0: has ranks of each host run a part.
    pub fn order(
        &mut self,
        part: &Part,
        output: impl FnMut(&[u8]) + Send + 'static,
        errors: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Attended> {
        let listening = |error| Error::system(format!("listen on {}", self.address), error);
        let listener = TcpListener::bind((self.address, 0)).map_err(listening)?;
        let rendezvous = listener.local_addr().map_err(listening)?.to_string();
        let token = Token::random()?.to_string();
        let order = Order { part: part.clone(), rendezvous, token };
        let order = self.world.all_gather_values(&order)?.swap_remove(0);
        self.carry_out(&order, Some(&listener), output, errors)
    }

    /// On the other ranks: runs what rank 0 says. Gives back an exit status.
    pub fn obey(mut self) -> Result<i32> {
        loop {
            let order = self.world.all_gather_values(&Order::default())?.swap_remove(0);
            if order.part.words.is_empty() {
                return self.world.leave().map(|()| 0).map_err(Error::from);
            }
            let ended =
                self.carry_out(&order, None, |_| {}, |line| crate::local::forward::pass_on(line, std::io::stderr()))?;
            if let Some(status) = ended.interrupted {
                return Ok(status);
            }
        }
    }

    /// On rank 0: nothing more.
    pub fn end(mut self) -> Result<()> {
        self.world.all_gather_values(&Order::default())?;
        Ok(self.world.leave()?)
    }

    fn carry_out(
        &mut self,
        order: &Order,
        listener: Option<&TcpListener>,
        output: impl FnMut(&[u8]) + Send + 'static,
        errors: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Attended> {
        let nothing = Attended { status: 0, interrupted: None };
        let Some(place) = Place::of(&self.world, order.part.per_host) else { return Ok(nothing) };
        let mut command = Command::new(&self.program);
        command.args(&order.part.words).envs(order.part.environment.iter().cloned()).envs(place.variables(order));
        let kept = listener.map(AsRawFd::as_raw_fd);
        match kept {
            Some(fd) => command.env("BUSBW_LISTENER", fd.to_string()),
            None => command.env_remove("BUSBW_LISTENER"),
        };
        let over = AtomicBool::new(false);
        let cancel = Arc::clone(self.world.cancellation());
        std::thread::scope(|scope| {
            let alive = scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    cancel.advance();
                    std::thread::park_timeout(SIGN_OF_LIFE);
                }
            });
            let ended = self.attendant.run(command, kept, output, errors);
            over.store(true, Ordering::Release);
            alive.thread().unpark();
            ended
        })
    }
}

/// This rank among those that take part.
struct Place {
    rank: usize,
    size: usize,
    local_rank: usize,
    local_size: usize,
}

impl Place {
    /// None where it does not take part.
    fn of(world: &ProcessGroup, per_host: usize) -> Option<Self> {
        use busbw_transport::Exchange;
        let hosts: Vec<u64> = world.ranks().iter().map(|info| info.host_id).collect();
        place(&hosts, world.rank(), per_host)
    }

    fn variables(&self, order: &Order) -> [(&'static str, String); 6] {
        [
            ("BUSBW_RANK", self.rank.to_string()),
            ("BUSBW_SIZE", self.size.to_string()),
            ("BUSBW_LOCAL_RANK", self.local_rank.to_string()),
            ("BUSBW_LOCAL_SIZE", self.local_size.to_string()),
            ("BUSBW_RENDEZVOUS", order.rendezvous.clone()),
            ("BUSBW_TOKEN", order.token.clone()),
        ]
    }
}

/// The place of a rank among the first `per_host` ranks of each host; `hosts` has each rank's.
fn place(hosts: &[u64], rank: usize, per_host: usize) -> Option<Place> {
    let local = |rank: usize| hosts[..rank].iter().filter(|host| **host == hosts[rank]).count();
    let takes_part = |rank: &usize| local(*rank) < per_host;
    let local_size = hosts.iter().filter(|host| **host == hosts[rank]).count().min(per_host);
    takes_part(&rank).then(|| Place {
        rank: (0..rank).filter(takes_part).count(),
        size: (0..hosts.len()).filter(takes_part).count(),
        local_rank: local(rank),
        local_size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbered_anew_among_those_that_take_part() {
        let hosts = [7, 7, 9, 7, 9];
        for (per_host, expected) in [
            (1, [Some((0, 2, 0, 1)), None, Some((1, 2, 0, 1)), None, None]),
            (2, [Some((0, 4, 0, 2)), Some((1, 4, 1, 2)), Some((2, 4, 0, 2)), None, Some((3, 4, 1, 2))]),
            (8, [Some((0, 5, 0, 3)), Some((1, 5, 1, 3)), Some((2, 5, 0, 2)), Some((3, 5, 2, 3)), Some((4, 5, 1, 2))]),
        ] {
            let placed =
                |rank| place(&hosts, rank, per_host).map(|at| (at.rank, at.size, at.local_rank, at.local_size));
            assert_eq!([0, 1, 2, 3, 4].map(placed), expected, "{per_host} of each host");
        }
    }
}

//! How the ranks of a job find each other: rank 0's process listens, and every rank of every process connects to it.

mod address;

use crate::Lookup;
use crate::derive::Words;
use crate::job_rank::{Discovery, JobRank};
use crate::secret::Way;
use crate::server::{Log, Plan, Server};
use crate::wire::{self, Hello, RankInfo, ToServer};
use crate::{Error, ProcessGroup, Result, describe, host, silence};
use address::{Finder, InStore};
use busbw_model::text::clean_line;
use busbw_transport::handshake::{Connector, Failure};
use busbw_transport::{Cancellation, Token};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long one address may take to answer before the next is tried, where there are several.
const PATIENCE_OF_ONE: Duration = Duration::from_secs(3);
/// Pause between two rounds of trying.
const PAUSE: Duration = Duration::from_millis(50);
/// A listener that refuses this job's token for so long is another job's.
const REFUSED_LONG_ENOUGH: Duration = Duration::from_secs(5);

/// What a process brings to the rendezvous.
#[derive(Clone)]
pub struct Settings {
    /// Address of the interface that rank 0 listens on, if one was chosen.
    pub bind: Option<IpAddr>,
    /// How long ranks may take to arrive, and later to answer.
    pub timeout: Duration,
    /// Ranks (threads) of each process; the same in every process.
    pub ranks_per_process: usize,
    /// The benchmark's flags, which must be the same on every rank.
    pub flags: String,
    /// Where lines for the user go.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Default for Settings {
    /// One rank per process, a minute's patience, lines to standard error.
    fn default() -> Self {
        Settings {
            bind: None,
            timeout: Duration::from_secs(60),
            ranks_per_process: 1,
            flags: String::new(),
            // A line that nobody can read any more is no reason to end.
            log: Arc::new(|line| drop(writeln!(std::io::stderr(), "{line}"))),
        }
    }
}

/// The token in rank 0's offer.
type Decode = dyn Fn(&[u8]) -> busbw_transport::Result<Token> + Send + Sync;

/// Where a process has the job's token from.
#[derive(Clone)]
pub(crate) enum TokenFrom {
    /// It knows the token.
    Here(Token),
    /// Rank 0 offers it to all who connect, in a form that only this user can read.
    Offer(Arc<Decode>),
}

impl TokenFrom {
    /// By the way of this rank, which is not 0. What rank 0 says twice is decoded once: the ranks of a host are many, and munge
    /// takes its time.
    fn offer(way: Way, words: Words) -> Self {
        let heard: Mutex<Option<(Vec<u8>, Token)>> = Mutex::default();
        TokenFrom::Offer(Arc::new(move |offer| {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            let same = heard.as_ref().filter(|(known, _)| known == offer && !way.may_change());
            if let Some((_, token)) = same {
                return Ok(*token);
            }
            let other_job =
                || busbw_transport::Error::Protocol { peer: "it".into(), what: "another job's offer".into() };
            let token = way.token(&words, offer).ok_or_else(other_job)?;
            let token = token.map_err(|why| busbw_transport::Error::Config(why.to_string()))?;
            *heard = Some((offer.to_vec(), token));
            Ok(token)
        }))
    }
}

/// A connection to rank 0, whose ends have proven to each other that they hold the token.
pub(crate) struct ServerConnection {
    pub stream: TcpStream,
    pub address: SocketAddr,
    pub token: Token,
}

/// Where this job's ranks meet. In rank 0's process it runs the server, until it is dropped.
pub struct Rendezvous {
    job_rank: JobRank,
    settings: Settings,
    token: TokenFrom,
    addresses: Vec<SocketAddr>,
    info: RankInfo,
    store: Option<InStore>,
    /// In rank 0's process, until all have come.
    kept: Mutex<Option<Box<dyn Send>>>,
    server: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Rendezvous {
    /// Finds the address: rank 0's process listens and publishes its address, the others look it up. Every process of
    /// the job calls it, once.
    pub fn open(job_rank: &JobRank, look: Lookup, settings: Settings) -> Result<Rendezvous> {
        if settings.ranks_per_process == 0 {
            return Err(Error::Usage("a process needs at least one rank".into()));
        }
        let deadline = Instant::now() + settings.timeout;
        let info = RankInfo {
            host: host::name(look),
            pid: std::process::id(),
            flags: settings.flags.clone(),
            host_id: host::id(look),
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let finder = Finder { job_rank, look, bind: settings.bind, deadline, log: &*settings.log };
        let found = finder.find()?;
        let mut rendezvous = Rendezvous {
            job_rank: job_rank.clone(),
            token: found.token,
            addresses: found.addresses,
            info,
            store: found.store,
            kept: Mutex::new(found.kept),
            server: None,
            settings,
        };
        if let (Some(listener), TokenFrom::Here(token)) = (found.listener, &rendezvous.token) {
            rendezvous.server = Some(rendezvous.serve(listener, *token, found.offer)?);
        }
        Ok(rendezvous)
    }

    /// The address that rank 0 listens at, where it is known.
    pub fn listens_at(&self) -> Option<IpAddr> {
        self.addresses.first().map(SocketAddr::ip)
    }

    /// How many ranks the job has: processes × ranks per process.
    pub fn size(&self) -> usize {
        self.job_rank.size * self.settings.ranks_per_process
    }

    /// The rank of this process's first thread.
    pub fn first_rank(&self) -> usize {
        self.job_rank.rank * self.settings.ranks_per_process
    }

    pub fn ranks_per_process(&self) -> usize {
        self.settings.ranks_per_process
    }

    /// Joins as this process's rank-thread number `thread`, and waits until every rank of the job is there.
    /// `cancel` is triggered when another rank dies, falls silent or fails.
    pub fn join(&self, thread: usize, cancel: Arc<Cancellation>) -> Result<ProcessGroup> {
        if thread >= self.settings.ranks_per_process {
            let ranks = self.settings.ranks_per_process;
            return Err(Error::Usage(format!("this process has {ranks} ranks, and no number {thread}")));
        }
        let rank = self.first_rank() + thread;
        let reached = self.connect(rank)?;
        let (mut stream, address) = (&reached.stream, reached.address);
        let system = |error| Error::system(format!("talk to rank 0 at {address}"), error);
        // Writing must not hang for ever on a host that is gone.
        stream.set_write_timeout(Some(self.settings.timeout)).map_err(system)?;
        stream.set_read_timeout(None).map_err(system)?;
        let hello = Hello { rank: rank as u32, size: self.size() as u32, info: self.info.clone() };
        let hello = wire::frame(&ToServer::Hello(hello)).map_err(system)?;
        stream.write_all(&hello).map_err(system)?;
        let world = ProcessGroup::start(reached, (rank, self.size()), (cancel, self.settings.timeout));
        let world = world.map_err(|error| Error::Job(error.to_string()))?;
        drop(self.kept.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(world)
    }

    fn serve(&self, listener: TcpListener, token: Token, offer: Vec<u8>) -> Result<(Arc<AtomicBool>, JoinHandle<()>)> {
        let stop = Arc::new(AtomicBool::new(false));
        let log: Log = Arc::clone(&self.settings.log);
        let plan = Plan {
            token,
            offer,
            size: self.size(),
            flags: clean_line(&self.settings.flags).into(),
            timeout: self.settings.timeout,
            has_places: self.has_places(),
            log,
            stop: Arc::clone(&stop),
        };
        let server = Server::new(plan, listener)?;
        let thread = std::thread::Builder::new().name("rendezvous".into());
        let thread = thread.spawn(move || server.run()).map_err(|e| Error::system("listen for the other ranks", e))?;
        Ok((stop, thread))
    }

    /// Tries the addresses in turn until one proves that it holds the token.
    fn connect(&self, rank: usize) -> Result<ServerConnection> {
        let deadline = Instant::now() + self.settings.timeout;
        let (mut addresses, mut token) = (self.addresses.clone(), self.token.clone());
        let mut refused: Option<(Instant, SocketAddr, String)> = None;
        let mut no_token: Option<(Instant, String)> = None;
        let mut last = String::from("nobody listens");
        loop {
            for &address in &addresses {
                match self.try_connect(address, &token, deadline) {
                    Ok((stream, token)) => return Ok(ServerConnection { stream, address, token }),
                    Err(Failure::Offer(busbw_transport::Error::Config(why))) => {
                        no_token = Some((no_token.map_or_else(Instant::now, |(since, _)| since), why));
                    }
                    Err(why) if is_refusal(&why) => {
                        let since = refused.map_or_else(Instant::now, |(since, ..)| since);
                        refused = Some((since, address, why.to_string()));
                    }
                    Err(why) => last = why.to_string(),
                }
            }
            // Several addresses are candidates, of which others may belong to other programs.
            if let (Some((since, address, why)), 1) = (&refused, addresses.len())
                && since.elapsed() > REFUSED_LONG_ENOUGH
            {
                return Err(Error::Join(format!(
                    "what listens at {address} does not know this job's token, or is another version of busbw ({why}): another \
                     job holds that port, or BUSBW_TOKEN differs between the ranks, or busbw is not the same on every host, or addresses \
                     are translated between them (then set BUSBW_RENDEZVOUS and BUSBW_TOKEN)"
                )));
            }
            if let Some((_, why)) = no_token.take_if(|(since, _)| since.elapsed() > REFUSED_LONG_ENOUGH) {
                return Err(Error::Join(why));
            }
            if Instant::now() >= deadline {
                let last = refused.map_or(last, |(_, address, why)| format!("{address}: {why}"));
                return Err(no_token.map_or_else(|| self.nobody(rank, &last), |(_, why)| Error::Join(why)));
            }
            std::thread::sleep(PAUSE);
            if let Some(store) = &self.store {
                let (address, known) = store.read(deadline)?;
                (addresses, token) = (vec![address], TokenFrom::Here(known));
            }
        }
    }

    fn nobody(&self, rank: usize, last: &str) -> Error {
        let tried: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let (tried, time, here) = (describe::list(&tried), describe::seconds(self.settings.timeout), &self.info.host);
        Error::Join(format!(
            "rank {rank} on host {here} did not reach rank 0 at {tried} within {time} ({last}): check that rank 0 was started and \
             still runs (its output), and that this host can connect to it (firewall, NCCL_SOCKET_IFNAME)"
        ))
    }

    /// Whether ranks prove to which address they came: where a stranger could have told it, or could listen there in rank 0's
    /// place. BUSBW_RENDEZVOUS is the user's word, and may name an address that is translated on the way.
    fn has_places(&self) -> bool {
        !matches!(self.job_rank.discovery, Discovery::Fixed { .. })
    }

    fn try_connect(
        &self,
        address: SocketAddr,
        token: &TokenFrom,
        deadline: Instant,
    ) -> std::result::Result<(TcpStream, Token), Failure> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
        let patience = if self.addresses.len() > 1 { left.min(PATIENCE_OF_ONE) } else { left };
        let mut stream =
            TcpStream::connect_timeout(&address, patience.min(PATIENCE_OF_ONE)).map_err(Failure::System)?;
        silence::notice(&stream, self.settings.timeout).map_err(Failure::System)?;
        stream.set_write_timeout(Some(patience)).map_err(Failure::System)?;
        let token = token.clone();
        let connector = Connector::new(wire::PROTOCOL, Vec::new(), move |offer| match token {
            TokenFrom::Here(token) => Ok(token),
            TokenFrom::Offer(read) => read(offer),
        });
        let connector = connector.map_err(Failure::Offer)?;
        let connector = if self.has_places() { connector.to(address) } else { connector };
        let token = connector.run(&mut stream, patience)?;
        Ok((stream, token))
    }
}

/// Whether something listens that is not this job's rank 0, or does not take this process for one of its ranks.
fn is_refusal(why: &Failure) -> bool {
    !matches!(why, Failure::System(_) | Failure::Silent)
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if let Some((stop, server)) = self.server.take() {
            stop.store(true, Ordering::Release);
            // A panic there was printed by the thread itself.
            let _ = server.join();
        }
    }
}

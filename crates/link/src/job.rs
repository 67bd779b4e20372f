//! A whole run: starts the job or takes this process's place in it, and gives rank 0 the answer.

use crate::agent::Agent;
use crate::lead::{Lead, OPENING, Progress};
use crate::plan::Plan;
use crate::wire::{Connection, Introduction};
use crate::{Error, Result, rdma, signals};
use busbw_launch::{Began, Invocation, JobRank, ProcessGroup, Rendezvous, Settings, host};
use busbw_model::LinkRun;
use busbw_net::interfaces::{self, Interface};
use busbw_net::{Cancellation, Exchange, Token};
use busbw_probe::Root;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How long ranks may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);

/// How the command was called.
pub struct Call {
    /// What to measure.
    pub plan: Plan,
    /// Where its ranks are to run.
    pub invocation: Invocation,
}

/// What came of a call.
pub enum Ended {
    /// On rank 0: what was measured.
    Measured(LinkRun),
    /// The command line that would have started the job.
    CommandLine(String),
    /// This process only started ranks, or is one of those that rank 0 led: the exit status.
    Status(i32),
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Runs it. `progress` is told of each pair, on rank 0.
///
/// # Errors
/// One line that says what failed, where, and what to do.
pub fn run(call: &Call, variable: Variable<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Ended> {
    match call.invocation.begin(variable)? {
        Began::CommandLine(line) => Ok(Ended::CommandLine(line)),
        Began::Ended(status) => Ok(Ended::Status(status)),
        Began::Here(job_rank) if job_rank.size == 1 => Err(Error::Usage(
            "a link has two ends: name the hosts (busbw link a b), start it with mpirun or srun, or try it out with --np 2"
                .into(),
        )),
        Began::Here(job_rank) => take_part(call, &job_rank, variable, progress),
    }
}

/// Meets the other ranks, then leads or is led.
fn take_part(
    call: &Call,
    job_rank: &JobRank,
    variable: Variable<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Ended> {
    let cancel = Cancellation::new();
    signals::cancel_on_signal(&cancel)?;
    let interface = interface(variable)?;
    let listener = (job_rank.rank == 0).then(|| listen(&interface)).transpose()?;
    let control = listener.as_ref().map(TcpListener::local_addr).transpose();
    let control = control.map_err(|e| Error::system("ask where rank 0 listens", e))?;
    let mine = Introduction {
        host: host::name(variable),
        host_id: host::id(variable),
        interface: interface.name.clone(),
        address: interface.address,
        rate_gbit_s: rate_gbit_s(&interface),
        rdma: rdma::find(&Root::live(), &call.plan.rdma, job_rank.local_rank),
        control,
    };
    let settings = Settings { bind: None, timeout: ARRIVAL, ..Settings::default() };
    let rendezvous = Rendezvous::open(job_rank, variable, settings)?;
    let token = rendezvous.token();
    let all = introduce(rendezvous.join(0, Arc::clone(&cancel))?, &mine)?;
    let Some(rank_0) = all.first().and_then(|first| first.control) else {
        return Err(Error::Nothing("rank 0 did not say where it listens".into()));
    };
    let agent = Agent::new(interface, token, Arc::clone(&cancel));
    let timeout = call.plan.timeout;
    let Some(listener) = listener else {
        agent.follow(connect(rank_0, token, job_rank.rank, timeout)?)?;
        return Ok(Ended::Status(0));
    };
    let lead = Lead { plan: &call.plan, cancel: &cancel, progress };
    std::thread::scope(|scope| {
        // Rank 0 is an end as well, and led as the others are. What it has to say, its pairs say.
        scope.spawn(move || connect(rank_0, token, 0, timeout).and_then(|connection| agent.follow(connection)));
        let run = lead.gather(&listener, token, all).and_then(|peers| lead.run(peers));
        if run.is_err() {
            cancel.trigger("the run has failed");
        }
        run.map(Ended::Measured)
    })
}

fn introduce(mut world: ProcessGroup, mine: &Introduction) -> Result<Vec<Introduction>> {
    let strange = |error: postcard::Error| Error::Nothing(format!("the ranks do not run the same busbw: {error}"));
    let all = world.all_gather(&postcard::to_stdvec(mine).map_err(strange)?)?;
    world.leave()?;
    all.iter().map(|one| postcard::from_bytes(one).map_err(strange)).collect()
}

/// The interface that NCCL would take first.
fn interface(variable: Variable<'_>) -> Result<Interface> {
    let (names, family) = (variable("NCCL_SOCKET_IFNAME"), variable("NCCL_SOCKET_FAMILY"));
    let chosen = interfaces::choose(&interfaces::list()?, names.as_deref(), family.as_deref())?;
    chosen.into_iter().next().ok_or_else(|| Error::Usage("no network interface to use; set NCCL_SOCKET_IFNAME".into()))
}

/// What the interface's driver says, where there is a device behind it: virtual ones say anything (veth 10 Gbit/s).
fn rate_gbit_s(interface: &Interface) -> Option<f64> {
    let folder = format!("/sys/class/net/{}", interface.name);
    let real = ["device", "bonding"].iter().any(|entry| Root::live().exists(&format!("{folder}/{entry}")));
    interface.speed_mbps.filter(|_| real).map(|speed| f64::from(speed) / 1e3)
}

fn listen(interface: &Interface) -> Result<TcpListener> {
    let address = SocketAddr::new(interface.address, 0);
    TcpListener::bind(address).map_err(|e| Error::system(format!("listen on {} ({address})", interface.name), e))
}

fn connect(rank_0: SocketAddr, token: Token, rank: usize, timeout: Duration) -> Result<Connection> {
    let doing = |e| {
        Error::system(format!("connect to rank 0 at {rank_0} (choose another interface with NCCL_SOCKET_IFNAME)"), e)
    };
    let mut stream = TcpStream::connect_timeout(&rank_0, timeout).map_err(doing)?;
    let mut opening = Vec::with_capacity(OPENING);
    opening.extend_from_slice(token.as_bytes());
    opening.extend_from_slice(&(rank as u32).to_le_bytes());
    stream.write_all(&opening).map_err(doing)?;
    Connection::new(stream, timeout).map_err(doing)
}

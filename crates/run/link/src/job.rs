//! A whole run: starts the job or takes this process's place in it, and gives rank 0 the answer.

use crate::agent::Agent;
use crate::lead::{GATHERED, Lead, PROTOCOL, Progress};
use crate::plan::{Choice, Plan};
use crate::wire::{Connection, Introduction};
use crate::{Error, Result, perftest, rdma};
use busbw_launch::Lookup;
use busbw_launch::start::cancel_on_signal;
use busbw_launch::{Invocation, JobRank, Rendezvous, Settings, Started, host};
use busbw_model::LinkRun;
use busbw_probe::Root;
use busbw_transport::handshake::Connector;
use busbw_transport::interfaces::{self, Interface};
use busbw_transport::tcp::Config;
use busbw_transport::{Cancellation, Token};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How long ranks may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);

/// How the command was called.
pub struct Call {
    pub plan: Plan,
    pub invocation: Invocation,
}

/// Runs it. `progress` is told of each pair, on rank 0, which has the answer in the end.
pub fn run(call: &Call, variable: Lookup<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Started<LinkRun>> {
    call.invocation.begin(variable)?.and_then(|job_rank| match job_rank.size {
        1 => Err(Error::Usage(
            "a link needs two hosts: name them (busbw link a b), start busbw with mpirun or srun, or try it on this host with --np 2"
                .into(),
        )),
        _ => take_part(call, &job_rank, variable, progress),
    })
}

/// Gets to know the other ranks, then leads or is led.
fn take_part(
    call: &Call,
    job_rank: &JobRank,
    variable: Lookup<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Started<LinkRun>> {
    let cancel = Cancellation::new();
    cancel_on_signal(&cancel)?;
    let interface = interface(variable)?;
    let checksum = Config::checksum_from_env(variable)?;
    let listener = (job_rank.rank == 0).then(|| listen(&interface)).transpose()?;
    let control = listener.as_ref().map(TcpListener::local_addr).transpose();
    let control = control.map_err(|e| Error::system("ask where rank 0 listens", e))?;
    let missing = (call.plan.transport == Choice::Rdma).then(|| perftest::missing(&call.plan)).flatten();
    let rdma = rdma::find(&Root::live(), &call.plan.rdma, job_rank.local_rank);
    let rdma = rdma.and_then(|end| missing.clone().map_or(Ok(end), Err));
    let mine = Introduction {
        host: host::name(variable),
        host_id: host::id(variable),
        interface: interface.name.clone(),
        address: interface.address,
        rate_gbit_s: rate_gbit_s(&interface),
        rdma,
        lacks_rdma: missing.is_some() || !rdma::has_device(&Root::live()),
        control,
    };
    let settings = Settings { bind: None, timeout: ARRIVAL, ..Settings::default() };
    let rendezvous = Rendezvous::open(job_rank, variable, settings)?;
    let mut world = rendezvous.join(0, Arc::clone(&cancel))?;
    let token = world.token();
    let all: Vec<Introduction> = world.all_gather_values(&mine)?.into_iter().map(Introduction::cleaned).collect();
    world.leave()?;
    let Some(rank_0) = all.first().and_then(|first| first.control) else {
        return Err(Error::Job("rank 0 did not say where it listens".into()));
    };
    let agent = Agent::new(interface, token, checksum, Arc::clone(&cancel));
    let timeout = call.plan.timeout;
    let Some(listener) = listener else {
        agent.follow(connect(rank_0, token, job_rank.rank, timeout)?)?;
        return Ok(Started::Ended(0));
    };
    let lead = Lead { plan: &call.plan, cancel: &cancel, progress };
    std::thread::scope(|scope| {
        // Rank 0 is an end too and gets the same commands as the others. Its errors are those of its pairs.
        scope.spawn(move || connect(rank_0, token, 0, timeout).and_then(|connection| agent.follow(connection)));
        let run = lead.gather(listener, token, all).and_then(|peers| lead.run(peers));
        if run.is_err() {
            cancel.trigger("the run has failed");
        }
        run.map(Started::Here)
    })
}

/// The interface that NCCL would take first.
fn interface(variable: Lookup<'_>) -> Result<Interface> {
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
    let connector = Connector::new(PROTOCOL, (rank as u32).to_le_bytes().to_vec(), move |_| Ok(token))?;
    let told = || format!("be let in by rank 0 at {rank_0}");
    connector.run(&mut stream, timeout.max(GATHERED)).map_err(|why| why.error(rank_0, told))?;
    Connection::new(stream, timeout).map_err(doing)
}

#[cfg(test)]
#[path = "../../../../tests/support/recorder.rs"]
mod recorder;

#[cfg(test)]
mod tests {
    use super::recorder::Recorder;
    use super::*;
    use crate::plan::RdmaChoice;
    use busbw_model::Bytes;
    use busbw_transport::handshake::{Limits, Listener};
    use std::io::{Read, Write};

    fn loopback() -> Interface {
        let lo = interfaces::list().unwrap().into_iter().find(|one| one.address.is_loopback() && one.address.is_ipv4());
        lo.unwrap()
    }

    fn introduction(rank: usize) -> Introduction {
        Introduction {
            host: format!("h{rank}"),
            host_id: rank as u64,
            interface: "lo".into(),
            address: [127, 0, 0, 1].into(),
            rate_gbit_s: None,
            rdma: Err("none".into()),
            lacks_rdma: true,
            control: None,
        }
    }

    #[test]
    fn a_run_shows_its_token_to_nobody_and_silent_strangers_cost_it_no_time() {
        let (listener, token, cancel) = (listen(&loopback()).unwrap(), Token::random().unwrap(), Cancellation::new());
        let timeout = Duration::from_secs(20);
        let plan = Plan {
            transport: Choice::Tcp,
            sizes: vec![Bytes(65536)],
            flows: vec![1],
            rounds: None,
            read: false,
            both_ways: false,
            expected_gbit_s: None,
            duration: Duration::from_millis(100),
            timeout,
            rdma: RdmaChoice::default(),
        };
        let rank_0 = listener.local_addr().unwrap();
        let recorder = Recorder::before(rank_0);
        // Each silent one took two seconds before, one after the other.
        let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(rank_0).unwrap()).collect();
        let run = std::thread::scope(|scope| {
            for rank in 0..2 {
                let (agent, through) = (Agent::new(loopback(), token, false, Arc::clone(&cancel)), recorder.address);
                scope.spawn(move || connect(through, token, rank, timeout).and_then(|stream| agent.follow(stream)));
            }
            let lead = Lead { plan: &plan, cancel: &cancel, progress: &|_| {} };
            let peers = lead.gather(listener, token, (0..2).map(introduction).collect()).unwrap();
            lead.run(peers).unwrap()
        });
        assert!(run.links.iter().all(|link| link.outcome.is_ok()), "{run:?}");
        assert!(recorder.has_seen(b"busbwlnk") && !recorder.has_seen(token.as_bytes()));
        drop(silent);
    }

    #[test]
    fn a_rank_that_strangers_recorded_is_not_let_in_again() {
        let (listener, token) = (listen(&loopback()).unwrap(), Token::random().unwrap());
        let timeout = Duration::from_secs(20);
        let rank_0 = listener.local_addr().unwrap();
        let recorder = Recorder::before(rank_0);
        let limits = Limits { most: 8, patience: timeout, undisturbed: timeout };
        let mut listener = Listener::new(listener, PROTOCOL, (token, Vec::new()), limits).unwrap();
        let through = recorder.address;
        let rank = std::thread::spawn(move || connect(through, token, 1, timeout).map(drop));
        while listener.accept().unwrap().is_none() {
            std::thread::yield_now();
        }
        rank.join().unwrap().unwrap();
        let mut again = TcpStream::connect(rank_0).unwrap();
        again.write_all(&recorder.recorded()[0][0]).unwrap();
        while listener.strangers().count() == 0 {
            assert!(listener.accept().unwrap().is_none());
        }
        let mut answer = Vec::new();
        let _ = again.read_to_end(&mut answer);
        assert!(answer.len() <= 28, "a challenge and no proof: {answer:?}");
    }
}

//! Rank 0: waits for every rank, then has the pairs measured, round by round.

use crate::judge;
use crate::pair;
use crate::peer::Peer;
use crate::plan::{Choice, Plan};
use crate::rounds::rounds;
use crate::wire::{Connection, Introduction};
use crate::{Error, Result};
use busbw_model::{Link, LinkEnd, LinkRun, LinkTransport};
use busbw_transport::handshake::{Admitted, Arrival, Limits, Listener, Protocol};
use busbw_transport::tcp::sockets_left;
use busbw_transport::{Cancellation, Token};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a connection may take to prove that it is of this job. It keeps nobody waiting, and ranks come only once.
const SILENT_STRANGER: Duration = Duration::from_secs(10);
/// How long the whole may take at least.
pub(crate) const GATHERED: Duration = Duration::from_secs(10);
/// How often links that stand out are measured again.
const SECOND_LOOKS: usize = 2;
/// The handshake, in which a rank says its number in four bytes. Ranks of different versions have not got so far.
pub(crate) const PROTOCOL: Protocol = Protocol { magic: *b"busbwlnk", version: 1, payload: 4 };

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub pairs: usize,
    /// Pairs that are done, or that could not be measured.
    pub done: usize,
    /// The round under way, from 1.
    pub round: usize,
    pub rounds: usize,
}

/// What rank 0 needs to lead.
pub(crate) struct Lead<'a> {
    pub plan: &'a Plan,
    pub cancel: &'a Arc<Cancellation>,
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl Lead<'_> {
    /// Waits for a connection of every rank.
    pub fn gather(&self, listener: TcpListener, token: Token, ranks: Vec<Introduction>) -> Result<Vec<Peer>> {
        let limits = Limits::within(sockets_left() / 4, ranks.len(), SILENT_STRANGER);
        let mut listener = Listener::new(listener, PROTOCOL, (token, Vec::new()), limits)?;
        let deadline = Instant::now() + self.plan.timeout.max(GATHERED);
        let mut connections: Vec<Option<Connection>> = ranks.iter().map(|_| None).collect();
        while connections.iter().any(Option::is_none) {
            self.cancel.check()?;
            if Instant::now() >= deadline {
                let missing = connections.iter().zip(&ranks).filter(|(connection, _)| connection.is_none());
                let missing: Vec<&str> = missing.map(|(_, rank)| rank.host.as_str()).collect();
                return Err(Error::Job(format!(
                    "{} cannot connect to rank 0: check routes and firewalls, or choose another interface with \
                     NCCL_SOCKET_IFNAME",
                    missing.join(", ")
                )));
            }
            let Ok(Some(Arrival::Admitted(Admitted { stream, payload, .. }))) = listener.accept() else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let rank = payload.try_into().map_or(usize::MAX, |rank| u32::from_le_bytes(rank) as usize);
            if let (Some(awaited), Ok(connection)) =
                (connections.get_mut(rank), Connection::new(stream, self.plan.timeout))
            {
                *awaited = Some(connection);
            }
        }
        let peer = |(introduction, connection)| Peer::new(introduction, connection, Arc::clone(self.cancel));
        Ok(ranks.into_iter().zip(connections.into_iter().flatten()).map(peer).collect())
    }

    pub fn run(&self, peers: Vec<Peer>) -> Result<LinkRun> {
        let transport = transport(self.plan.transport, &peers)?;
        let plan = self.plan.completed(transport, peers.len());
        let mut rounds = rounds_apart(&peers);
        rounds.truncate(self.plan.rounds.unwrap_or(usize::MAX));
        let pairs = rounds.iter().map(Vec::len).sum();
        let peers: Vec<Mutex<Peer>> = peers.into_iter().map(Mutex::new).collect();
        let links = Mutex::new(Vec::new());
        for (number, round) in rounds.iter().enumerate() {
            std::thread::scope(|scope| {
                for &(a, b) in round {
                    let (peers, links, rounds, plan) = (&peers, &links, rounds.len(), &plan);
                    scope.spawn(move || {
                        let [there, back] = self.pair(transport, [&peers[a], &peers[b]], plan);
                        let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
                        links.push(Link { from: a, to: b, outcome: there });
                        links.push(Link { from: b, to: a, outcome: back });
                        (self.progress)(Progress { pairs, done: links.len() / 2, round: number + 1, rounds });
                    });
                }
            });
        }
        let mut links = links.into_inner().unwrap_or_else(PoisonError::into_inner);
        links.sort_unstable_by_key(|link| (link.from, link.to));
        let ends = peers.iter().map(|peer| end(transport, &locked(peer))).collect();
        let mut run = LinkRun { transport, ends, links, expected_gbit_s: plan.expected_gbit_s, interrupted: None };
        self.confirm(&mut run, &peers, &plan);
        for (end, peer) in run.ends.iter_mut().zip(&peers) {
            end.trouble = locked(peer).trouble.clone().or(end.trouble.take());
        }
        run.interrupted = self.cancel.reason();
        Ok(run)
    }

    /// Measures links that stand out again, each alone: what else ran on a host at that time must not make a link slow. The
    /// better figures stay.
    fn confirm(&self, run: &mut LinkRun, peers: &[Mutex<Peer>], plan: &Plan) {
        for _ in 0..SECOND_LOOKS {
            for (a, b) in judge::suspects(run) {
                let [there, back] = self.pair(run.transport, [&peers[a], &peers[b]], plan);
                for (from, to, again) in [(a, b, there), (b, a, back)] {
                    let link = run.links.iter_mut().find(|link| (link.from, link.to) == (from, to));
                    if let (Some(link), Ok(again)) = (link, again) {
                        let better = link.outcome.as_ref().is_ok_and(|first| first.gbit_s < again.gbit_s);
                        link.outcome = if better { Ok(again) } else { link.outcome.clone() };
                    }
                }
            }
        }
    }

    /// A pair of a round is nobody else's, so that neither lock is ever waited for.
    fn pair(
        &self,
        transport: LinkTransport,
        [a, b]: [&Mutex<Peer>; 2],
        plan: &Plan,
    ) -> [std::result::Result<busbw_model::LinkFigures, String>; 2] {
        if let Some(reason) = self.cancel.reason() {
            return [Err(reason.clone()), Err(reason)];
        }
        pair::measure(transport, &mut locked(a), &mut locked(b), plan)
    }
}

fn locked(peer: &Mutex<Peer>) -> MutexGuard<'_, Peer> {
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rounds of pairs; where there are several hosts, without the pairs within one.
fn rounds_apart(peers: &[Peer]) -> Vec<Vec<(usize, usize)>> {
    let host = |rank: usize| peers[rank].introduction.host_id;
    let several_hosts = (1..peers.len()).any(|rank| host(rank) != host(0));
    let apart = |round: Vec<(usize, usize)>| -> Vec<(usize, usize)> {
        round.into_iter().filter(|&(a, b)| !several_hosts || host(a) != host(b)).collect()
    };
    rounds(peers.len()).into_iter().map(apart).filter(|round| !round.is_empty()).collect()
}

/// The transport that all ends can do.
fn transport(choice: Choice, peers: &[Peer]) -> Result<LinkTransport> {
    let problems = || {
        let mut problems: Vec<String> = peers
            .iter()
            .filter_map(|peer| Some(format!("{}: {}", peer.introduction.host, peer.introduction.rdma.as_ref().err()?)))
            .collect();
        problems.dedup();
        problems
    };
    match choice {
        Choice::Tcp => Ok(LinkTransport::Tcp),
        // Ends that cannot are reported with their pairs, as long as there is a pair that can.
        Choice::Rdma if peers.iter().filter(|peer| peer.introduction.rdma.is_ok()).count() >= 2 => {
            Ok(LinkTransport::Rdma)
        }
        Choice::Rdma if peers.iter().all(|peer| peer.introduction.lacks_rdma) => {
            Err(Error::Missing(problems().join("; ")))
        }
        Choice::Rdma => Err(Error::Job(problems().join("; "))),
        Choice::Auto => {
            let hardware = |peer: &Peer| peer.introduction.rdma.as_ref().is_ok_and(|end| end.hardware);
            Ok(if peers.iter().all(hardware) { LinkTransport::Rdma } else { LinkTransport::Tcp })
        }
    }
}

fn end(transport: LinkTransport, peer: &Peer) -> LinkEnd {
    let Introduction { host, interface, address, rate_gbit_s, rdma, .. } = peer.introduction.clone();
    let (nic, rate_gbit_s, quality_of_service, trouble) = match (transport, rdma) {
        (LinkTransport::Tcp, _) => (interface, rate_gbit_s, None, None),
        (LinkTransport::Rdma, Ok(end)) => (end.device, end.rate_gbit_s, end.quality_of_service, None),
        (LinkTransport::Rdma, Err(reason)) => ("none".to_string(), None, None, Some(format!("{host}: {reason}"))),
    };
    LinkEnd { host, nic, address: address.to_string(), rate_gbit_s, quality_of_service, trouble }
}

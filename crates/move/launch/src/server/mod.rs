//! The rendezvous server, a thread of rank 0's process: lets the ranks in, passes their parts on, and says who has died.

mod connection;
#[cfg(fuzzing)]
pub mod fuzzing;
mod steps;

use crate::describe;
use crate::watch::{Blame, Watch};
use crate::wire::{self, Hello, RankInfo, ToRank, ToServer};
use busbw_model::text::clean_line;
use busbw_transport::Token;
use busbw_transport::handshake::{Arrival, Limits, Listener};
use busbw_transport::tcp::sockets_left;
use connection::{Connection, Ended};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use steps::Steps;

/// A connection that has not proven that it holds the token by then is dropped, and so is one that then does not say for so
/// long which rank it is.
const SILENT_STRANGER: Duration = Duration::from_secs(2);
/// How long nobody is let in once descriptors have run out.
const REST: Duration = Duration::from_millis(200);
/// A rank's own report waits this long for a better cause: the death of the rank that it met first.
const GRACE: Duration = Duration::from_millis(250);
/// How long the server stays to tell ranks that are late, or slow to read, how it ended.
const LINGER: Duration = Duration::from_secs(3);

/// One line for the user.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What the server must know before anyone comes.
pub(crate) struct Plan {
    pub token: Token,
    /// Told to everyone who connects: it may help the job's ranks to find the token.
    pub offer: Vec<u8>,
    pub size: usize,
    pub flags: String,
    pub timeout: Duration,
    /// See [`crate::Rendezvous`]'s function of this name.
    pub has_places: bool,
    pub log: Log,
    /// Set when rank 0's process has no more use for the server.
    pub stop: Arc<AtomicBool>,
}

/// A rank that has arrived.
struct Joined {
    info: RankInfo,
    left: bool,
    /// Told of an error itself, so its end is no cause.
    failed: bool,
}

/// How the job ended.
struct End {
    at: Instant,
    why: ToRank,
}

pub(crate) struct Server {
    plan: Plan,
    listener: Listener,
    /// When nobody more could be let in for want of descriptors.
    full: Option<Instant>,
    connections: Vec<Connection>,
    joined: Vec<Option<Joined>>,
    /// Ranks that have arrived, be they admitted or refused.
    came: Vec<bool>,
    steps: Steps,
    opened: Instant,
    /// From when everyone is here.
    watch: Option<Watch>,
    next_beat: Instant,
    report: Option<(Instant, usize, String)>,
    end: Option<End>,
}

impl Server {
    pub fn new(mut plan: Plan, listener: TcpListener) -> crate::Result<Self> {
        let now = Instant::now();
        // The ranks need the other descriptors for their own connections. One that is dropped for a newer connection comes again.
        let limits = Limits::within(sockets_left() / 4, plan.size, SILENT_STRANGER);
        let limits = Limits { undisturbed: Duration::ZERO, ..limits };
        let known = (plan.token, std::mem::take(&mut plan.offer));
        let listener = Listener::new(listener, wire::PROTOCOL, known, limits)?;
        let listener = if plan.has_places { listener.with_places() } else { listener };
        Ok(Server {
            connections: Vec::new(),
            joined: (0..plan.size).map(|_| None).collect(),
            came: vec![false; plan.size],
            steps: Steps::of(plan.size),
            opened: now,
            watch: None,
            next_beat: now,
            report: None,
            end: None,
            plan,
            listener,
            full: None,
        })
    }

    /// Serves until everyone has left or been told why the job failed.
    pub fn run(mut self) {
        while !self.finished() {
            if let Err(error) = self.poll_once() {
                self.fail(format!("rank 0's rendezvous server failed: {error}"));
            }
        }
        let last = self.listener.strangers().end();
        self.tell(last);
    }

    fn poll_once(&mut self) -> nix::Result<()> {
        // Who waits to be let in would wake this thread again at once.
        let closed = usize::from(self.full.is_some_and(|since| since.elapsed() < REST));
        let mut waited: Vec<PollFd> =
            self.listener.fds().skip(closed).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let strangers = waited.len();
        waited.extend(self.connections.iter().map(|c| {
            let out = if c.has_output() { PollFlags::POLLOUT } else { PollFlags::empty() };
            PollFd::new(c.stream.as_fd(), PollFlags::POLLIN | out)
        }));
        let beat = Watch::beat_interval(self.plan.timeout).min(Duration::from_millis(200));
        match poll(&mut waited, PollTimeout::try_from(beat).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
        let ready: Vec<bool> = waited.iter().map(ready).collect();
        let now = Instant::now();
        for (connection, _) in self.connections.iter_mut().zip(&ready[strangers..]).filter(|(_, ready)| **ready) {
            connection.pull();
        }
        // New connections are appended, so the positions in `ready` stay valid until then.
        self.accept(now);
        self.answer(now);
        Ok(())
    }

    /// Hears what the connections have brought, and says what there is to say.
    fn answer(&mut self, now: Instant) {
        for at in 0..self.connections.len() {
            self.hear(at, now);
        }
        self.beat(now);
        self.connections.iter_mut().for_each(Connection::push);
        self.remove_ended(now);
        self.judge(now);
    }

    fn accept(&mut self, now: Instant) {
        loop {
            let arrival = match self.listener.accept() {
                Ok(Some(arrival)) => arrival,
                Ok(None) => break,
                Err(error) => {
                    if self.full.replace(now).is_none() {
                        self.tell([format!("can let nobody in ({error}): raise the limit of open files (ulimit -n)")]);
                    }
                    break;
                }
            };
            match arrival {
                Arrival::Admitted(new) => match Connection::new(new.stream, new.from, now, self.plan.timeout) {
                    Ok(connection) => self.connections.push(connection),
                    Err(error) => self.listener.strangers().note(new.from, &error),
                },
                Arrival::Version { from, version } => self.fail(format!(
                    "a rank at {from} runs busbw with rendezvous version {version}, rank 0 has version {}: install the same \
                     busbw on every host",
                    wire::PROTOCOL.version
                )),
            }
        }
        let lines = self.listener.strangers().lines(now);
        self.tell(lines);
    }

    fn tell(&self, lines: impl IntoIterator<Item = String>) {
        lines.into_iter().for_each(|line| (self.plan.log)(&format!("busbw: {line}")));
    }

    /// Takes what one connection has said.
    fn hear(&mut self, at: usize, now: Instant) {
        if self.connections[at].ended.is_some() && self.connections[at].rank.is_none() {
            return;
        }
        loop {
            let message = self.connections[at].inbox.message::<ToServer>();
            match (message, self.connections[at].rank) {
                (Ok(None), _) => return,
                (Ok(Some(ToServer::Hello(hello))), None) => self.admit(at, hello, now),
                (Ok(Some(message)), Some(rank)) => self.take(rank, message, now),
                // This connection was refused and still has to read the reason.
                (Ok(Some(_)), None) if self.end.is_some() => {}
                (Ok(Some(_)), None) | (Err(_), _) => {
                    self.connections[at].ended = Some(Ended::Closed);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, at: usize, hello: Hello, now: Instant) {
        let (rank, size) = (hello.rank as usize, hello.size as usize);
        let info = RankInfo { address: self.connections[at].peer.ip(), ..hello.info.cleaned() };
        self.connections[at].inbox.set_longest(wire::LONGEST_FRAME);
        if let Some(came) = self.came.get_mut(rank) {
            *came = true;
        }
        if let Some(end) = &self.end {
            // The rank is late: tell it at once how the job ended.
            self.connections[at].send(&end.why);
            return;
        }
        let who = describe::rank(rank, Some(&info));
        if info.flags != self.plan.flags {
            let (theirs, ours) = (&info.flags, &self.plan.flags);
            self.connections[at].rank = (rank < self.plan.size).then_some(rank);
            return self.fail(format!(
                "{who} was started with {theirs:?}, rank 0 with {ours:?}: start every rank with the same flags"
            ));
        }
        if size != self.plan.size || rank >= size {
            let ours = self.plan.size;
            return self.fail(format!(
                "{who} takes part in a job of {size} ranks, rank 0 in one of {ours}: start all with one command, and the same -t and -g"
            ));
        }
        if let Some(Joined { info: first, .. }) = &self.joined[rank] {
            let first = describe::rank(rank, Some(first));
            return self
                .fail(format!("{who} arrived where {first} is already: give each process its own rank (BUSBW_RANK)"));
        }
        self.connections[at].rank = Some(rank);
        self.joined[rank] = Some(Joined { info, left: false, failed: false });
        if self.joined.iter().all(Option::is_some) {
            let table = self.joined.iter().flatten().map(|joined| joined.info.clone()).collect();
            self.send_all(&ToRank::Table(table));
            self.watch = Some(Watch::new(self.plan.size, self.plan.timeout, now));
        }
    }

    fn take(&mut self, rank: usize, message: ToServer, now: Instant) {
        if let Some(watch) = &mut self.watch {
            watch.heard(rank, now);
        }
        match message {
            ToServer::Hello(_) => {}
            ToServer::Beat { progress, waiting } => {
                if let Some(watch) = &mut self.watch {
                    watch.beat(rank, progress, waiting, now);
                }
            }
            ToServer::Give(part) => match self.steps.take(rank, part) {
                Ok(deliveries) => {
                    if let Some(watch) = self.watch.as_mut().filter(|_| !deliveries.is_empty()) {
                        watch.advanced(now);
                    }
                    for (ranks, message) in deliveries {
                        self.send_some(&message, |rank| ranks.contains(&rank));
                    }
                }
                Err(problem) => {
                    let who = self.who(rank);
                    self.fail(format!(
                        "{who} {problem}: the ranks run different versions of busbw, or different flags"
                    ));
                }
            },
            ToServer::Fail(reason) => {
                let who = self.who(rank);
                if let Some(joined) = &mut self.joined[rank] {
                    joined.failed = true;
                }
                self.report.get_or_insert((now, rank, format!("{who}: {}", clean_line(&reason))));
            }
            ToServer::Goodbye => self.goodbye(rank, now),
        }
    }

    fn goodbye(&mut self, rank: usize, now: Instant) {
        if let Some(joined) = &mut self.joined[rank] {
            joined.left = true;
        }
        if let Some(watch) = &mut self.watch {
            watch.left(rank, now);
        }
        if self.end.is_none() && self.joined.iter().all(|joined| joined.as_ref().is_some_and(|joined| joined.left)) {
            self.send_all(&ToRank::AllLeft);
            self.end = Some(End { at: now, why: ToRank::AllLeft });
        }
    }

    fn beat(&mut self, now: Instant) {
        if now >= self.next_beat {
            self.next_beat = now + Watch::beat_interval(self.plan.timeout);
            self.send_all(&ToRank::Beat);
        }
    }

    /// Takes away connections that have ended; a rank's end without a goodbye ends the job.
    fn remove_ended(&mut self, now: Instant) {
        for at in (0..self.connections.len()).rev() {
            let connection = &self.connections[at];
            let (rank, age) = (connection.rank, now.duration_since(connection.since));
            // Once the job has ended, a rank that came too late still has to read how.
            let silent = rank.is_none() && self.end.is_none() && age > SILENT_STRANGER;
            let Some(ended) = connection.ended.or(silent.then_some(Ended::Closed)) else { continue };
            let peer = self.connections.swap_remove(at).peer;
            match rank {
                Some(rank) => self.rank_ended(rank, ended),
                None if self.end.is_none() => self.listener.strangers().note(peer, &"it did not say which rank it is"),
                None => {}
            }
        }
    }

    fn rank_ended(&mut self, rank: usize, ended: Ended) {
        let Some(joined) = &self.joined[rank] else { return };
        if joined.left || joined.failed {
            return;
        }
        let who = describe::rank(rank, Some(&joined.info));
        self.fail(match ended {
            Ended::Unreachable => describe::silent(&[who], self.plan.timeout),
            Ended::Closed => describe::ended(&who),
        });
    }

    /// Decides whether the job has failed in a way that no single message says.
    fn judge(&mut self, now: Instant) {
        if self.end.is_some() {
            return;
        }
        let blame = self.watch.as_mut().and_then(|watch| watch.look(now));
        if let Some(blame) = blame {
            return self.fail_for(&blame);
        }
        let ripe = |(at, ..): &(Instant, usize, String)| now.duration_since(*at) >= GRACE;
        if let Some((_, reporter, reason)) = self.report.take_if(|report| ripe(report)) {
            let mut silent = self.watch.as_ref().map_or(Vec::new(), |watch| watch.nearly_silent(now));
            silent.retain(|&rank| rank != reporter);
            return match silent.is_empty() {
                true => self.fail(reason),
                false => self.fail_for(&Blame::Silent(silent, self.plan.timeout / 2)),
            };
        }
        if self.watch.is_none() && now.duration_since(self.opened) >= self.plan.timeout {
            let missing = self.missing();
            // Their time limit has passed already; do not wait again.
            self.came.fill(true);
            return self.fail(missing);
        }
        if self.plan.stop.load(Ordering::Acquire) {
            let who = self.who(0);
            // Use the text for a closed connection: the server may not have noticed the close yet.
            self.fail(describe::ended(&who));
        }
    }

    fn missing(&self) -> String {
        let missing: Vec<usize> = (0..self.plan.size).filter(|&rank| self.joined[rank].is_none()).collect();
        let address = self.listener.local_addr().map_or("rank 0".into(), |address| address.to_string());
        format!(
            "{} did not arrive within {}: check that every rank was started and still runs (its output), and that its host \
             can connect to {address} (firewall, NCCL_SOCKET_IFNAME)",
            describe::numbers(&missing),
            describe::seconds(self.plan.timeout)
        )
    }

    fn fail_for(&mut self, blame: &Blame) {
        self.fail(self.blamed(blame));
        if let Blame::Silent(silent, _) = blame {
            // The message is in their socket's buffer; do not wait until they read it.
            let of_silent = |connection: &&mut Connection| connection.rank.is_some_and(|rank| silent.contains(&rank));
            self.connections.iter_mut().filter(of_silent).for_each(|connection| connection.rank = None);
        }
    }

    fn blamed(&self, blame: &Blame) -> String {
        let who = |ranks: &[usize]| ranks.iter().map(|&rank| self.who(rank)).collect::<Vec<_>>();
        match blame {
            Blame::Silent(ranks, time) => {
                self.cut_off(ranks, *time).unwrap_or_else(|| describe::silent(&who(ranks), *time))
            }
            Blame::Stuck(ranks, time) => describe::stuck(&who(ranks), *time),
        }
    }

    /// When nobody of at least two other hosts is heard, it is this host that is cut off.
    fn cut_off(&self, silent: &[usize], time: Duration) -> Option<String> {
        let here = &self.joined.first()?.as_ref()?.info;
        let elsewhere =
            |rank: &usize| self.joined[*rank].as_ref().is_some_and(|joined| joined.info.host_id != here.host_id);
        let others: Vec<usize> = (0..self.plan.size).filter(elsewhere).collect();
        let mut hosts: Vec<u64> = others.iter().flat_map(|&rank| &self.joined[rank]).map(|s| s.info.host_id).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let whole = hosts.len() >= 2 && silent == others;
        whole.then(|| {
            format!(
                "no rank of the {} other hosts has answered for {}: host {} ({}), where rank 0 runs, is cut off from them",
                hosts.len(),
                describe::seconds(time),
                here.host,
                here.address
            )
        })
    }

    fn who(&self, rank: usize) -> String {
        describe::rank(rank, self.joined[rank].as_ref().map(|joined| &joined.info))
    }

    /// Ends the job with `reason`, unless it has ended.
    fn fail(&mut self, reason: String) {
        if self.end.is_some() {
            return;
        }
        let why = ToRank::Failed(reason);
        // Also to connections that have not sent their rank yet.
        for connection in &mut self.connections {
            connection.send(&why);
            connection.push();
        }
        self.end = Some(End { at: Instant::now(), why });
    }

    fn send_all(&mut self, message: &ToRank) {
        self.send_some(message, |_| true);
    }

    fn send_some(&mut self, message: &ToRank, which: impl Fn(usize) -> bool) {
        match wire::frame(message).map(Arc::new) {
            Ok(frame) => {
                for connection in self.connections.iter_mut().filter(|c| c.rank.is_some_and(&which)) {
                    connection.send_frame(&frame);
                }
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn finished(&self) -> bool {
        let Some(end) = &self.end else { return false };
        let everyone_came = self.came.iter().all(|&came| came);
        let told = self.connections.iter().all(|connection| connection.rank.is_none());
        (told && everyone_came) || end.at.elapsed() > LINGER
    }
}

//! A rank's connection to the rendezvous server, and the thread that reads it and gives signs of life.

use crate::describe;
use crate::frames::Inbox;
use crate::watch::Watch;
use crate::wire::{self, Key, RankInfo, ToRank, ToServer};
use busbw_model::text::clean_line;
use busbw_transport::{Cancellation, Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// While waiting for the server, the cancellation is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What has come from the server and was not asked for yet.
#[derive(Default)]
pub(crate) struct Arrived {
    pub table: Option<Vec<RankInfo>>,
    pub steps: HashMap<Key, Vec<Vec<u8>>>,
    /// Why the job failed: what the server says, or that the server is gone.
    pub verdict: Option<String>,
    pub all_left: bool,
}

/// A rank's end of its connection, shared by its thread and the control thread.
pub(crate) struct Link {
    stream: TcpStream,
    writing: Mutex<()>,
    arrived: Mutex<Arrived>,
    news: Condvar,
    pub cancel: Arc<Cancellation>,
    pub timeout: Duration,
    /// In an operation, as the rank itself says.
    pub operating: AtomicBool,
    /// In a step of the process group.
    pub exchanging: AtomicBool,
    /// An error of this rank's own was told to the others.
    told: AtomicBool,
    /// This rank ends the connection itself.
    closing: AtomicBool,
}

impl Link {
    pub fn new(stream: TcpStream, cancel: Arc<Cancellation>, timeout: Duration) -> Self {
        Link {
            stream,
            writing: Mutex::default(),
            arrived: Mutex::default(),
            news: Condvar::new(),
            cancel,
            timeout,
            operating: AtomicBool::new(false),
            exchanging: AtomicBool::new(false),
            told: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        }
    }

    pub fn send(&self, message: &ToServer) -> Result<()> {
        let frame = wire::frame(message).map_err(|e| Error::system("tell rank 0", e))?;
        let _one_frame_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(&frame).map_err(|e| Error::system("tell rank 0", e))
    }

    /// Tells the others of an error of this rank, once.
    pub fn tell(&self, reason: &str) {
        if !self.told.swap(true, Ordering::AcqRel) {
            // If it cannot be told, the end of the connection tells them.
            let _ = self.send(&ToServer::Fail(reason.to_owned()));
        }
    }

    /// Waits until `look` finds what it looks for. Ends with the reason when the job fails.
    pub fn wait<T>(&self, mut look: impl FnMut(&mut Arrived) -> Option<T>) -> Result<T> {
        let mut arrived = self.arrived();
        loop {
            if let Some(found) = look(&mut arrived) {
                return Ok(found);
            }
            if let Some(verdict) = &arrived.verdict {
                return Err(Error::Cancelled(verdict.clone()));
            }
            self.cancel.check()?;
            arrived = self.news.wait_timeout(arrived, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Why the job failed, waited for at most `patience`.
    pub fn verdict(&self, patience: Duration) -> Option<String> {
        let missing = |arrived: &mut Arrived| arrived.verdict.is_none();
        let waited = self.news.wait_timeout_while(self.arrived(), patience, missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.verdict.clone()
    }

    /// Ends the connection, and with it the control thread.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, reason: String) {
        let mut arrived = self.arrived();
        if arrived.verdict.is_none() {
            self.cancel.trigger(&*reason);
            arrived.verdict = Some(reason);
            self.news.notify_all();
        }
    }

    /// A sign of life, unless something longer is being sent, which is one too.
    fn beat(&self) -> std::io::Result<()> {
        let waiting = self.operating.load(Ordering::Relaxed) || self.exchanging.load(Ordering::Relaxed);
        let frame = wire::frame(&ToServer::Beat { progress: self.cancel.progress(), waiting })?;
        match self.writing.try_lock() {
            Ok(_one_frame_at_a_time) => (&self.stream).write_all(&frame),
            Err(_) => Ok(()),
        }
    }
}

/// Whom the control thread names when the server is gone.
fn server_name(link: &Link, address: &str) -> String {
    let arrived = link.arrived();
    match arrived.table.as_ref().and_then(|table| table.first()) {
        Some(info) => describe::rank(0, Some(info)),
        None => format!("rank 0 at {address}"),
    }
}

/// Reads what the server says and gives signs of life until the connection ends. `address` is the server's.
pub(crate) fn run(link: &Link, address: &str) {
    let mut inbox = Inbox::new(wire::LONGEST_FRAME);
    let interval = Watch::beat_interval(link.timeout);
    let (mut heard, mut looked) = (Instant::now(), Instant::now());
    let mut next_beat = heard;
    let mut bytes = vec![0; 64 << 10];
    let mut here: Vec<RankInfo> = Vec::new();
    let name = |here: &[RankInfo]| {
        here.first().map_or_else(|| server_name(link, address), |zero| describe::rank(0, Some(zero)))
    };
    loop {
        if let Err(problem) = take_all(link, &mut inbox, &mut here) {
            return link.fail(format!("{} sent {problem}; check that every rank runs the same busbw", name(&here)));
        }
        let now = Instant::now();
        if now.duration_since(looked) > link.timeout / 2 {
            // This process was stopped itself: the server's silence is unknown.
            heard = now;
        }
        looked = now;
        if now.duration_since(heard) >= link.timeout {
            return link.fail(describe::silent(&[name(&here)], link.timeout));
        }
        if now >= next_beat {
            next_beat = now + interval;
            if let Some(reason) = link.cancel.reason() {
                link.tell(&reason);
            }
            // A broken connection shows when it is read.
            let _ = link.beat();
        }
        let patience = next_beat.saturating_duration_since(now);
        match readable(&link.stream, patience) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(error) => return link.fail(format!("cannot wait for rank 0: {error}")),
        }
        match (&link.stream).read(&mut bytes) {
            Ok(count) if count > 0 => {
                heard = now;
                inbox.push(&bytes[..count]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            ended => return server_ended(link, ended.err(), &name(&here), heard.elapsed()),
        }
    }
}

fn server_ended(link: &Link, error: Option<std::io::Error>, name: &str, unheard: Duration) {
    if link.closing.load(Ordering::Acquire) || link.arrived().all_left {
        return;
    }
    let unreachable = [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
    link.fail(match error {
        Some(error) if unreachable.contains(&error.kind()) => describe::silent(&[name.to_owned()], unheard),
        _ => describe::ended(name),
    });
}

fn readable(stream: &TcpStream, patience: Duration) -> nix::Result<bool> {
    let mut waited = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    let patience = PollTimeout::try_from(patience + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    match poll(&mut waited, patience) {
        Ok(count) => Ok(count > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error),
    }
}

fn take_all(link: &Link, inbox: &mut Inbox, here: &mut Vec<RankInfo>) -> std::result::Result<(), String> {
    while let Some(message) = inbox.message::<ToRank>()? {
        let mut arrived = link.arrived();
        match message {
            ToRank::Beat => continue,
            ToRank::Table(table) => {
                let table: Vec<RankInfo> = table.into_iter().map(RankInfo::cleaned).collect();
                here.clone_from(&table);
                arrived.table = Some(table);
            }
            ToRank::Take { key, parts } => {
                arrived.steps.insert(key, parts);
            }
            ToRank::AllLeft => arrived.all_left = true,
            ToRank::Failed(reason) => {
                drop(arrived);
                link.fail(clean_line(&reason).into());
                continue;
            }
        }
        link.news.notify_all();
    }
    Ok(())
}

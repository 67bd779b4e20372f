//! Empties the rings of a job's processes while it runs.

use crate::attached::{AttachError, Attached};
use crate::ledger::Ledger;
use crate::report::{Recorded, Recording, Report};
use busbw_events::{Drained, Reader};
use busbw_model::Profile;
use busbw_probe::processes::Scope;
use nix::sys::statvfs::statvfs;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// How long events may lie: a ring holds a quarter of a second of a million per second.
const LOOK: Duration = Duration::from_millis(20);

/// Where files are memory, and room there for the rings of 32 processes.
const MEMORY: &str = "/dev/shm";
const LEAST_FREE: u64 = 512 << 20;

/// How long a question to the thread may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which recordings are wanted, and by whom.
type Question = (Recorded, SyncSender<Vec<Recording>>);

/// The thread that empties a job's rings.
pub struct Agent {
    /// Where a job that is to be started writes.
    folder: Option<TempDir>,
    over: Arc<AtomicBool>,
    questions: Sender<Question>,
    thread: JoinHandle<Result<Profile, AgentError>>,
}

/// Why nothing can be told of a job.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error("events: {0}")]
    Events(#[from] io::Error),
}

impl Agent {
    /// Begins with a job that is to be started, with a report that may write a trace.
    pub fn begin(host: &str, report: Report) -> io::Result<Self> {
        let folder = folder()?;
        let place = Place::Folder(folder.path().to_owned(), HashSet::new());
        Ok(Agent { folder: Some(folder), ..Self::of(place, host, report) })
    }

    /// Begins with a job that runs, from now on.
    ///
    /// # Errors
    /// The job keeps no events, or another reads them.
    pub fn attach(scope: Scope, host: &str, report: Report) -> Result<Self, AttachError> {
        Ok(Self::of(Place::Attached(Attached::begin(scope)?), host, report))
    }

    fn of(place: Place, host: &str, report: Report) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (host, until) = (Arc::from(host), Arc::clone(&over));
        let (questions, asked) = channel();
        let thread = std::thread::spawn(move || Rings::new(place, host).run(report, &until, &asked));
        Agent { folder: None, over, questions, thread }
    }

    /// What a job that is to be started needs as `BUSBW_PROFILE`.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// What each rank did last, of a report that keeps it; nothing where the reader of events has failed.
    pub fn recordings(&self, which: Recorded) -> Vec<Recording> {
        let (answer, answered) = sync_channel(1);
        let sent = self.questions.send((which, answer));
        sent.ok().and_then(|()| answered.recv_timeout(PATIENCE).ok()).unwrap_or_default()
    }

    /// Whether there is nothing more to read: all processes of a job that was attached to have ended, or something is wrong.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends: reads what is there still.
    pub fn finish(self) -> Result<Profile, AgentError> {
        self.over.store(true, Ordering::Release);
        self.thread.join().map_err(|_| io::Error::other("the reader of events has failed"))?
    }
}

/// A folder for rings: of memory if there is one with room, for nothing is to wait for a disk, and a container may have little.
fn folder() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("busbw-profile-");
    let free = statvfs(MEMORY).map_or(0, |of| of.blocks_available().saturating_mul(of.fragment_size()));
    let in_memory = (free >= LEAST_FREE).then(|| builder.tempdir_in(MEMORY).ok()).flatten();
    in_memory.map_or_else(|| builder.tempdir(), Ok)
}

/// Where rings come from.
enum Place {
    /// A folder, and the rings that were found in it.
    Folder(PathBuf, HashSet<PathBuf>),
    Attached(Attached),
}

/// A ring, and the process that it was found by.
struct Ring {
    reader: Reader,
    found_by: Option<u32>,
}

struct Rings {
    place: Place,
    host: Arc<str>,
    rings: Vec<Ring>,
    ledger: Ledger,
    events: u64,
    last_ns: u64,
}

impl Rings {
    fn new(place: Place, host: Arc<str>) -> Self {
        let (rings, ledger) = Default::default();
        Rings { place, host, rings, ledger, events: 0, last_ns: 0 }
    }

    fn run(mut self, mut report: Report, over: &AtomicBool, asked: &Receiver<Question>) -> Result<Profile, AgentError> {
        loop {
            // Asked before looking: what the job wrote before it ended is then read.
            let ended = over.load(Ordering::Acquire) || self.place.is_over();
            self.look(&mut report)?;
            let more = self.drain(ended);
            self.ledger.settle(Some(self.last_ns));
            report.take(&mut self.ledger)?;
            for (which, answer) in asked.try_iter() {
                // Whoever asked may have waited long enough.
                let _ = answer.send(report.recordings(&self.ledger, which));
            }
            // A job that goes on may write faster than this reads.
            if ended && (!more || self.place.goes_on()) {
                break;
            }
            if !more {
                std::thread::sleep(LOOK);
            }
        }
        if self.place.goes_on() {
            self.ledger.cut();
        }
        let lost = self.rings.iter().map(|ring| ring.reader.lost()).sum();
        let mut profile = report.finish(&mut self.ledger, self.events, lost)?;
        if let Place::Attached(attached) = &self.place {
            profile.notes.extend(attached.notes());
            profile.job = attached.job().unwrap_or_default();
        }
        Ok(profile)
    }

    /// Finds new rings.
    fn look(&mut self, report: &mut Report) -> Result<(), AgentError> {
        for (found_by, reader) in self.place.look()? {
            self.ledger.add();
            report.add_process(&self.host, reader.process(), reader.since_1970_ns());
            self.rings.push(Ring { reader, found_by });
        }
        Ok(())
    }

    /// Reads what is there; whether there is more.
    fn drain(&mut self, ended: bool) -> bool {
        let mut more = false;
        for (number, Ring { reader, found_by }) in self.rings.iter_mut().enumerate() {
            let (ledger, events, last_ns) = (&mut self.ledger, &mut self.events, &mut self.last_ns);
            let pid = reader.process();
            // What a process that runs has begun to write, it will end.
            let ended = ended && !found_by.is_some_and(|pid| self.place.runs(pid));
            let drained = reader.drain(ended, |record| {
                *events += 1;
                *last_ns = record.time_ns.max(*last_ns);
                ledger.feed(number, pid, &record);
            });
            more |= drained == Drained::More;
        }
        more
    }
}

impl Place {
    /// New rings, each with the process that it was found by.
    fn look(&mut self) -> Result<Vec<(Option<u32>, Reader)>, AgentError> {
        match self {
            Place::Folder(folder, known) => Ok(look_into(folder, known)?),
            Place::Attached(attached) => {
                Ok(attached.look()?.into_iter().map(|(pid, reader)| (Some(pid), reader)).collect())
            }
        }
    }

    fn runs(&self, pid: u32) -> bool {
        matches!(self, Place::Attached(attached) if attached.runs(pid))
    }

    fn is_over(&self) -> bool {
        matches!(self, Place::Attached(attached) if attached.is_over())
    }

    /// Whether the job is not at its end when reading is.
    fn goes_on(&self) -> bool {
        matches!(self, Place::Attached(attached) if !attached.is_over())
    }
}

/// New rings in a folder.
fn look_into(folder: &Path, known: &mut HashSet<PathBuf>) -> io::Result<Vec<(Option<u32>, Reader)>> {
    let mut new = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if known.contains(&path) || path.extension().is_none_or(|ending| ending != "ring") {
            continue;
        }
        if let Some(reader) = Reader::open(&path)? {
            known.insert(path);
            new.push((None, reader));
        }
    }
    Ok(new)
}

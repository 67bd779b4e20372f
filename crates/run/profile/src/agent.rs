//! Empties the rings of a job's processes while it runs.

use crate::ledger::Ledger;
use crate::report::{Recorded, Recording, Report};
use busbw_events::{Drained, Reader};
use busbw_model::Profile;
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

/// A folder with the rings of a job, and the thread that empties them.
pub struct Agent {
    folder: TempDir,
    over: Arc<AtomicBool>,
    questions: Sender<Question>,
    thread: JoinHandle<io::Result<Collected>>,
}

/// What came together.
pub struct Collected {
    pub profile: Profile,
}

impl Agent {
    /// Begins, with a report that may write a trace.
    ///
    /// # Errors
    /// There is no place for the rings.
    pub fn begin(report: Report) -> io::Result<Self> {
        let folder = folder()?;
        let over = Arc::new(AtomicBool::new(false));
        let (path, until) = (folder.path().to_owned(), Arc::clone(&over));
        let (questions, asked) = channel();
        let thread = std::thread::spawn(move || Rings::new(path).run(report, &until, &asked));
        Ok(Agent { folder, over, questions, thread })
    }

    /// What the job needs as `BUSBW_PROFILE`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What each rank did last, of a report that keeps it; nothing where the reader of events has failed.
    pub fn recordings(&self, which: Recorded) -> Vec<Recording> {
        let (answer, answered) = sync_channel(1);
        let sent = self.questions.send((which, answer));
        sent.ok().and_then(|()| answered.recv_timeout(PATIENCE).ok()).unwrap_or_default()
    }

    /// Ends, when the job has: reads what is there still.
    ///
    /// # Errors
    /// A ring cannot be read, or the trace not written.
    pub fn finish(self) -> io::Result<Profile> {
        self.over.store(true, Ordering::Release);
        let collected = self.thread.join().map_err(|_| io::Error::other("the reader of events has failed"))??;
        Ok(collected.profile)
    }
}

/// A folder of memory if there is one with room: nothing is to wait for a disk, and a container may have little.
fn folder() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("busbw-profile-");
    let free = statvfs(MEMORY).map_or(0, |of| of.blocks_available().saturating_mul(of.fragment_size()));
    let in_memory = (free >= LEAST_FREE).then(|| builder.tempdir_in(MEMORY).ok()).flatten();
    in_memory.map_or_else(|| builder.tempdir(), Ok)
}

struct Rings {
    folder: PathBuf,
    known: HashSet<PathBuf>,
    readers: Vec<Reader>,
    ledger: Ledger,
    events: u64,
    last_ns: u64,
}

impl Rings {
    fn new(folder: PathBuf) -> Self {
        let (known, readers, ledger) = Default::default();
        Rings { folder, known, readers, ledger, events: 0, last_ns: 0 }
    }

    fn run(mut self, mut report: Report, over: &AtomicBool, asked: &Receiver<Question>) -> io::Result<Collected> {
        loop {
            // Asked before looking: what the job wrote before it ended is then read.
            let ended = over.load(Ordering::Acquire);
            self.look(&mut report)?;
            let more = self.drain(ended);
            self.ledger.settle(Some(self.last_ns));
            report.take(&mut self.ledger)?;
            for (which, answer) in asked.try_iter() {
                // Whoever asked may have waited long enough.
                let _ = answer.send(report.recordings(&self.ledger, which));
            }
            if ended && !more {
                break;
            }
            if !more {
                std::thread::sleep(LOOK);
            }
        }
        let profile = report.finish(&mut self.ledger)?;
        let lost = self.readers.iter().map(Reader::lost).sum();
        Ok(Collected { profile: Profile { events: self.events, lost, ..profile } })
    }

    /// Finds new rings.
    fn look(&mut self, report: &mut Report) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if self.known.contains(&path) || path.extension().is_none_or(|ending| ending != "ring") {
                continue;
            }
            if let Some(reader) = Reader::open(&path)? {
                self.known.insert(path);
                self.ledger.add();
                report.add_process(reader.process(), reader.since_1970_ns());
                self.readers.push(reader);
            }
        }
        Ok(())
    }

    /// Reads what is there; whether there is more.
    fn drain(&mut self, ended: bool) -> bool {
        let mut more = false;
        for (ring, reader) in self.readers.iter_mut().enumerate() {
            let (ledger, events, last_ns) = (&mut self.ledger, &mut self.events, &mut self.last_ns);
            let pid = reader.process();
            let drained = reader.drain(ended, |record| {
                *events += 1;
                *last_ns = record.time_ns.max(*last_ns);
                ledger.feed(ring, pid, &record);
            });
            more |= drained == Drained::More;
        }
        more
    }
}

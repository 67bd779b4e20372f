//! A session: samples come in until the job ends or somebody asks to end; on trouble, the moment is kept and judged.

use crate::answer::{Answer, Judge, Recorder};
use crate::capture;
use crate::folder::Folder;
use crate::stragglers::Stragglers;
use crate::tracker::{Tracker, Trouble};
use busbw_model::{WatchSource, Watched};
use busbw_probe::Root;
use busbw_probe::processes::{Ends, JobReader, JobSample, Scope};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// What a session does.
#[derive(Debug, Clone)]
pub struct Settings {
    pub scope: Scope,
    /// Time between samples.
    pub interval: Duration,
    /// How long nothing may move.
    pub stall: Duration,
    /// The name of this host.
    pub host: String,
    /// The job's command line, where busbw started it.
    pub job: Option<String>,
    /// Where NCCL's RAS listens, if not where the ranks' environment says.
    pub ras: Option<String>,
}

/// A session ended early.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("{path}: {error}")]
    Folder { path: String, error: io::Error },
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// What goes on besides the samples, and what is shown.
pub trait Observer {
    /// Takes a sample; false ends the session.
    fn sample(&mut self, facts: &Watched, tracker: &Tracker) -> io::Result<bool>;

    /// Whether the job has ended, and how.
    fn over(&mut self) -> Option<Option<i32>>;

    /// Whether somebody ended it on purpose.
    fn interrupted(&self) -> bool;

    /// Somebody was named; whether the job is ended for it.
    fn trouble(&mut self) -> bool {
        false
    }

    /// Tells a line.
    fn say(&mut self, line: &str) {
        say(line);
    }
}

/// Looks on.
pub struct Session<'a> {
    settings: Settings,
    folder: &'a Folder,
    reader: JobReader,
    tracker: Tracker,
    ends: Ends,
    told: Option<Told>,
    /// The job is being ended by this session: what its ranks do now is no news.
    ending: bool,
    /// Whether it was told that no rank is seen, or one was.
    told_of_ranks: bool,
    sources: Vec<WatchSource>,
    stragglers: Option<Stragglers<'a>>,
}

/// What was told last.
struct Told {
    trouble: Trouble,
    at_us: u64,
    facts: Watched,
    line: Option<String>,
}

impl<'a> Session<'a> {
    pub fn new(settings: Settings, folder: &'a Folder) -> Self {
        let reader = JobReader::new(Root::live(), settings.scope.clone());
        let tracker = Tracker::new(&settings.host, settings.stall);
        Session {
            settings,
            folder,
            reader,
            tracker,
            ends: Ends::default(),
            told: None,
            ending: false,
            told_of_ranks: false,
            sources: Vec::new(),
            stragglers: None,
        }
    }

    /// With what the ranks record of their collectives.
    pub fn recorded(self, recorder: Option<Recorder<'a>>) -> Self {
        Session { stragglers: recorder.map(Stragglers::new), ..self }
    }

    /// Looks on until the job has ended, or the observer wants an end. Whether somebody was named.
    pub fn run(mut self, observer: &mut dyn Observer, judge: Judge) -> Result<bool, WatchError> {
        let since = Instant::now();
        loop {
            let began = Instant::now();
            let sample = self.reader.read();
            self.take(&sample);
            let facts = self.facts();
            if !observer.sample(&facts, &self.tracker)? {
                break;
            }
            self.miss_ranks(since, &facts, observer);
            if !observer.interrupted() {
                self.look(observer, judge);
                self.compare(observer, judge);
            }
            if let Some(status) = observer.over() {
                self.end(status, observer, judge);
                break;
            }
            self.wait(began, observer);
            if !observer.interrupted() {
                self.look(observer, judge);
            }
        }
        Ok(self.told.is_some())
    }

    /// Tells once that nothing can be watched, and why: else silence would look like health.
    fn miss_ranks(&mut self, since: Instant, facts: &Watched, observer: &mut dyn Observer) {
        self.told_of_ranks |= !facts.ranks.is_empty();
        if !self.told_of_ranks && since.elapsed() >= self.settings.stall {
            self.told_of_ranks = true;
            let why = self.sources.first().map_or("", |source| &source.detail);
            observer.say(&format!(
                "no ranks seen: {why}. Start them by torchrun, mpirun or srun, or set RANK and WORLD_SIZE"
            ));
        }
    }

    fn take(&mut self, sample: &JobSample) {
        self.tracker.feed(sample);
        self.ends.await_all(self.tracker.running().map(|rank| rank.pid).collect::<Vec<_>>());
        self.sources = vec![sockets(sample)];
    }

    /// Waits for the time of the next sample, at most until a rank or the job ends.
    fn wait(&mut self, began: Instant, observer: &mut dyn Observer) {
        /// How long the end of the job may go unnoticed.
        const LOOK_UP: Duration = Duration::from_millis(100);
        while began.elapsed() < self.settings.interval {
            let ended =
                self.ends.wait(&Root::live(), LOOK_UP.min(self.settings.interval.saturating_sub(began.elapsed())));
            let any = !ended.is_empty();
            ended.into_iter().for_each(|end| self.tracker.ended(end));
            if any || observer.over().is_some() {
                return;
            }
        }
    }

    fn facts(&self) -> Watched {
        let name = |pid: u32, address| self.reader.name_of(pid, address).map(str::to_owned);
        let facts = self.tracker.document(name, self.sources.clone());
        Watched { job: self.settings.job.clone(), ..facts }
    }

    /// Tells trouble that is new, and takes back what has passed.
    fn look(&mut self, observer: &mut dyn Observer, judge: Judge) {
        if self.ending {
            return;
        }
        let trouble = self.tracker.trouble();
        match (&self.told, trouble) {
            // What follows from a standstill or a stopped rank does not replace what was seen in it.
            (Some(_), Some(_)) | (None, None) => {}
            (None, Some(trouble)) => {
                self.keep();
                let facts = self.facts();
                let line = say_answer(observer, &judge(self.folder.path()), "");
                self.told = Some(Told { trouble, at_us: facts.time_us, facts, line });
                self.ending = observer.trouble();
            }
            (Some(told), None) if told.trouble != Trouble::Ended && self.tracker.running().next().is_some() => {
                let lasted = told.facts.stall.map_or(told.at_us, |stall| stall.since_us);
                let seconds = self.facts().time_us.saturating_sub(lasted) / 1_000_000;
                let limit = self.tracker.limit().as_secs();
                observer
                    .say(&format!("it moves again after {seconds} s: that was no hang. The limit is {limit} s now"));
                self.told = None;
            }
            (Some(_), None) => {}
        }
    }

    /// Tells who is late while the job goes on.
    fn compare(&mut self, observer: &mut dyn Observer, judge: Judge) {
        let stragglers = self.stragglers.as_mut().filter(|_| self.told.is_none());
        if let Some(line) = stragglers.and_then(|stragglers| stragglers.look(self.folder, judge)) {
            observer.say(&line);
        }
    }

    /// Keeps the moment.
    fn keep(&mut self) {
        let ranks: Vec<_> = self.tracker.running().cloned().collect();
        let facts = self.facts();
        // The facts first: what follows takes seconds, in which the job may be killed.
        let first = self.folder.write_facts(&facts).and_then(|()| self.record());
        let told = capture::all(&Root::live(), &self.settings.host, &ranks, self.settings.ras.as_deref(), self.folder);
        self.sources.extend(told);
        let kept = first.and_then(|()| self.folder.write_facts(&Watched { sources: self.sources.clone(), ..facts }));
        if let Err(error) = kept {
            say(&format!("{}: {error}", self.folder.path().display()));
        }
    }

    /// Keeps what the ranks recorded.
    fn record(&mut self) -> io::Result<()> {
        let Some(stragglers) = &self.stragglers else { return Ok(()) };
        let recordings = (stragglers.recorder)(true);
        self.folder.without_stragglers()?;
        self.folder.write_recordings(&recordings)?;
        let detail = match recordings.len() {
            0 => "no rank wrote an event yet: NCCL loads busbw's profiler with its first communicator".into(),
            1 => "which collective a rank is in".into(),
            ranks => format!("which collective each of {ranks} ranks is in"),
        };
        self.sources.push(WatchSource { name: "events".into(), told: !recordings.is_empty(), detail });
        Ok(())
    }

    /// The job has ended.
    fn end(&mut self, status: Option<i32>, observer: &mut dyn Observer, judge: Judge) {
        let failed = status.is_some_and(|status| status != 0);
        if observer.interrupted() || !(failed || self.told.is_some()) {
            return;
        }
        let facts = match &self.told {
            Some(told) => told.facts.clone(),
            None => self.facts(),
        };
        let sources =
            if facts.sources.len() < self.sources.len() { self.sources.clone() } else { facts.sources.clone() };
        if let Err(error) = self.folder.write_facts(&Watched { exit_status: status, sources, ..facts }) {
            say(&format!("{}: {error}", self.folder.path().display()));
        }
        let how = status.map_or("the job ended".into(), |status| format!("the job ended with exit status {status}"));
        match (judge(self.folder.path()), &self.told) {
            // It was said when it was seen.
            (Ok(Answer { line, page, .. }), Some(told)) if line == told.line => {
                observer.say(&format!("{how}. Page: {page}"));
            }
            (answer, _) => {
                say_answer(observer, &answer, &format!("{how}: "));
            }
        }
    }
}

/// What the samples themselves tell, and what this user may not see.
fn sockets(sample: &JobSample) -> WatchSource {
    let unseen = sample.ranks.iter().filter(|rank| !rank.readable).count() + sample.unreadable;
    let counted = sample.ranks.iter().flat_map(|rank| &rank.connections).any(|one| one.carried.is_some());
    let detail = match (sample.ranks.len(), unseen) {
        (0, 0) => "no process of the job on this host has RANK and WORLD_SIZE, or what mpirun and srun set".into(),
        (_, 1..) => {
            let those = if unseen == 1 { "a process belongs".into() } else { format!("{unseen} processes belong") };
            format!("{those} to another user: run busbw watch as that user, or as root")
        }
        _ if counted => "bytes of each connection, queues, retransmissions; system calls, processor time".into(),
        _ => "queues and retransmissions; bytes only of whole processes: the kernel's list of sockets cannot be read"
            .into(),
    };
    WatchSource { name: "processes".into(), told: !sample.ranks.is_empty(), detail }
}

/// Tells the answer; the line that names somebody.
fn say_answer(observer: &mut dyn Observer, answer: &Result<Answer, String>, before: &str) -> Option<String> {
    let (line, said) = match answer {
        Ok(Answer { line: Some(line), page, .. }) => (Some(line.clone()), format!("{before}{line}. Page: {page}")),
        Ok(Answer { line: None, page, .. }) => (None, format!("{before}nothing names who is at fault. Page: {page}")),
        Err(error) => (None, error.clone()),
    };
    observer.say(&said);
    line
}

/// A line on standard error, which nobody need read.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "busbw watch: {}", busbw_model::text::clean(line));
}

//! A session: samples come in, everything that shows or keeps them gets them, until it ends.

use crate::alerts::Thresholds;
use crate::fleet::Fleet;
use crate::moment::Alert;
use crate::moment::Moment;
use crate::perfetto::Trace;
use crate::prometheus::{self, Snapshot};
use crate::recording::{Recorder, RecordingError};
use crate::request::Hosts;
use crate::serve::Server;
use crate::source::Source;
use crate::stop::Stop;
use crate::tracker::Tracker;
use crate::{json, summary, text};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a signal, a key or the end of the terminal may wait.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(100);

/// How moments are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Text,
    Json,
    /// Not at all: only what keeps or serves them.
    None,
}

/// What a session does besides showing moments.
#[derive(Debug, Default)]
pub struct Options {
    /// How many moments; none goes on until it is stopped.
    pub count: Option<u64>,
    pub thresholds: Thresholds,
    /// Record here; `-` is standard output.
    pub record: Option<PathBuf>,
    /// Write a trace for Perfetto here.
    pub perfetto: Option<PathBuf>,
    /// Write every moment here, a line of JSON each, whatever is shown.
    pub json: Option<PathBuf>,
    /// Replace recordings and traces that are there.
    pub force: bool,
    /// Serve scrapes at this address.
    pub prometheus: Option<SocketAddr>,
    /// Names that scrapers may ask for, beside this host's own.
    pub prometheus_hosts: Vec<String>,
    /// Serve node_exporter's names too.
    pub node_exporter_names: bool,
}

/// A session ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The recording that is replayed.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error("{path}: {error}; choose a place that can be written")]
    File { path: String, error: io::Error },
    /// A recording cannot be made again.
    #[error("{0} is there already; choose another name, or replace it with --force")]
    There(String),
    /// The address that Prometheus is to be served at.
    #[error("--prometheus {address}: {error}; choose a free port of an address of this host")]
    Address {
        /// The address that was asked for.
        address: SocketAddr,
        error: io::Error,
    },
    #[error("no host answers; `busbw check --hosts` with the same hosts says why")]
    NoHost,
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl SessionError {
    fn at(path: &Path) -> impl Fn(io::Error) -> SessionError {
        let path = path.display().to_string();
        move |error| SessionError::File { path: path.clone(), error }
    }
}

/// What takes in samples: the tracker, and what keeps or serves them.
pub struct Intake {
    tracker: Tracker,
    recorder: Option<(PathBuf, Recorder<Box<dyn Write>>)>,
    trace: Option<(PathBuf, Trace<BufWriter<File>>)>,
    json: Option<(PathBuf, File)>,
    server: Option<Server>,
    node_exporter_names: bool,
}

impl Intake {
    /// Opens what keeps or serves samples.
    pub fn new(options: &Options) -> Result<Self, SessionError> {
        let recorder = |path: &PathBuf| {
            let out: Box<dyn Write> =
                if path.as_os_str() == "-" { Box::new(io::stdout()) } else { Box::new(create(path, options.force)?) };
            Ok::<_, SessionError>((path.clone(), Recorder::new(out).map_err(SessionError::at(path))?))
        };
        let trace = |path: &PathBuf| {
            let file = BufWriter::new(create(path, options.force)?);
            Ok::<_, SessionError>((path.clone(), Trace::new(file).map_err(SessionError::at(path))?))
        };
        let json = |path: &PathBuf| Ok::<_, SessionError>((path.clone(), create(path, options.force)?));
        let server = |address: SocketAddr| {
            let hosts = Hosts::and(&options.prometheus_hosts);
            Server::start(address, hosts).map_err(|error| SessionError::Address { address, error })
        };
        Ok(Intake {
            tracker: Tracker::new(options.thresholds.clone()),
            recorder: options.record.as_ref().map(recorder).transpose()?,
            trace: options.perfetto.as_ref().map(trace).transpose()?,
            json: options.json.as_ref().map(json).transpose()?,
            server: options.prometheus.map(server).transpose()?,
            node_exporter_names: options.node_exporter_names,
        })
    }

    /// Whether it does anything that nobody need look at.
    pub(crate) fn keeps_or_serves(&self) -> bool {
        self.recorder.is_some() || self.trace.is_some() || self.json.is_some() || self.server.is_some()
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Takes the next sample of a source; none at its end.
    pub fn next(&mut self, source: &mut Source) -> Result<Option<Moment>, SessionError> {
        let Some(sample) = source.take()? else { return Ok(None) };
        if let Some((path, recorder)) = &mut self.recorder {
            recorder.add(&sample).map_err(SessionError::at(path))?;
        }
        let moment = self.tracker.feed(&sample);
        if let Some((path, trace)) = &mut self.trace {
            trace.add(&moment).map_err(SessionError::at(path))?;
        }
        if let Some((path, file)) = self.json.as_mut().filter(|_| moment.interval_us.is_some()) {
            file.write_all(json::line(&moment).as_bytes()).map_err(SessionError::at(path))?;
        }
        if let Some(server) = &self.server {
            let (raised, untold) = (self.tracker.raised(), source.untold().map(str::to_owned));
            let snapshot = Snapshot { sample, raised, untold, node_exporter_names: self.node_exporter_names };
            server.show(move || prometheus::metrics(&snapshot).to_string());
        }
        Ok(Some(moment))
    }

    pub fn alerts(&self) -> Vec<Alert> {
        self.tracker.alerts().cloned().collect()
    }

    /// Closes everything; what moved in all, in words.
    pub fn finish(self) -> Result<String, SessionError> {
        if let Some((path, trace)) = self.trace {
            trace.finish().map_err(SessionError::at(&path))?;
        }
        Ok(summary::of(&self.tracker))
    }
}

/// Opens a file to write to. What is empty or no file, such as a pipe or /dev/null, has nothing that could be lost.
fn create(path: &Path, force: bool) -> Result<File, SessionError> {
    if force || path.metadata().is_ok_and(|there| !there.is_file() || there.len() == 0) {
        return File::create(path).map_err(SessionError::at(path));
    }
    File::create_new(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => SessionError::There(path.display().to_string()),
        _ => SessionError::at(path)(error),
    })
}

/// Runs until the count is reached, the recording ends, nobody reads any more, or a signal comes. Returns what moved in all.
pub fn run(mut source: Source, options: &Options, view: View, out: &mut dyn Write) -> Result<String, SessionError> {
    let mut stop = Stop::on_signals()?;
    let mut intake = Intake::new(options)?;
    if let Some(address) = intake.address() {
        say(&format!("http://{address}/metrics"));
    }
    go_on(&mut source, &mut intake, &mut stop, options.count, view, out)?;
    intake.finish()
}

/// Takes and shows moments, at most `count`, until the source or somebody ends it.
pub(crate) fn go_on(
    source: &mut Source,
    intake: &mut Intake,
    stop: &mut Stop,
    count: Option<u64>,
    view: View,
    out: &mut dyn Write,
) -> Result<(), SessionError> {
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        let Some(due) = source.due_in() else { break };
        if stop.wait(due) {
            break;
        }
        let Some(moment) = intake.next(source)? else { break };
        // The first has nothing to be compared with.
        if moment.interval_us.is_none() {
            if let Some(untold) = source.untold() {
                say(untold);
            }
            continue;
        }
        match show(&moment, view, shown == 0, out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            other => other?,
        }
        shown += 1;
    }
    Ok(())
}

/// Shows what several hosts tell, each moment by itself. Returns what moved in all.
pub fn run_fleet(
    mut fleet: Fleet,
    count: Option<u64>,
    view: View,
    out: &mut dyn Write,
) -> Result<String, SessionError> {
    let mut stop = Stop::on_signals()?;
    let mut silent: Vec<Option<String>> = fleet.names().map(|_| None).collect();
    while !fleet.is_over(count) && !stop.wait(Duration::ZERO) {
        if let Some((at, moment)) = fleet.next(LOOK_UP)
            && moment.interval_us.is_some()
            && count.is_none_or(|count| fleet.told(at) <= count)
        {
            match show(&moment, view, true, out) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                other => other?,
            }
        }
        for (at, name) in fleet.names().enumerate() {
            let now = fleet.silent(at);
            if let (None, Some(why)) = (&silent[at], &now) {
                say(&format!("{name}: {why}"));
            }
            silent[at] = now;
        }
    }
    if fleet.any_told() || stop.wait(Duration::ZERO) { Ok(fleet.summary()) } else { Err(SessionError::NoHost) }
}

fn show(moment: &Moment, view: View, first: bool, out: &mut dyn Write) -> io::Result<()> {
    match view {
        View::None => return Ok(()),
        View::Json => out.write_all(json::line(moment).as_bytes())?,
        View::Text => {
            if first {
                out.write_all(text::legend(moment).as_bytes())?;
            }
            out.write_all(text::block(moment).as_bytes())?;
        }
    }
    out.flush()
}

/// A line on standard error, which nobody need read.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "busbw: {}", busbw_model::text::clean(line));
}

//! Several hosts: a busbw on each of them writes its recording here, so that a host that goes away costs no other its samples.

use crate::alerts::Thresholds;
use crate::moment::{Alert, Moment};
use crate::recording::Recording;
use crate::summary;
use crate::tracker::Tracker;
use busbw_launch::launcher::telling_line;
use busbw_probe::counters::Sample;
use busbw_probe::{Program, Started};
use std::io::{BufReader, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// How long a host may take until its first sample: a launcher starts, ssh logs in.
const TO_START: Duration = Duration::from_secs(20);
/// How long it may be silent afterwards, and how many intervals.
const SILENCE: Duration = Duration::from_secs(5);
const INTERVALS: u32 = 3;
/// More than this of what a launcher complains of is not kept.
const MOST_SAID: u64 = 64 << 10;

/// What a host sends.
enum Said {
    Sample(Box<Sample>),
    /// The last: why no more comes.
    Gone(String),
}

/// A host that is watched.
#[derive(Debug)]
struct Watched {
    name: String,
    tracker: Tracker,
    heard: Instant,
    /// How many intervals it has told.
    told: u64,
    gone: Option<String>,
}

/// Hosts, each with its own tracker.
pub struct Fleet {
    hosts: Vec<Watched>,
    programs: Vec<Started>,
    said: Receiver<(usize, Said)>,
    interval: Duration,
}

impl Fleet {
    /// Starts a program per host, which has busbw there write a recording with this interval to standard output.
    pub fn start(hosts: Vec<(String, Program)>, interval: Duration, thresholds: &Thresholds) -> Self {
        let (says, said) = channel();
        let mut fleet = Fleet { hosts: Vec::new(), programs: Vec::new(), said, interval };
        for (at, (name, program)) in hosts.into_iter().enumerate() {
            let started = program.start().map(|mut started| {
                listen(at, &mut started, says.clone());
                fleet.programs.push(started);
            });
            let gone = started.err().map(|error| error.to_string());
            let tracker = Tracker::new(thresholds.clone());
            fleet.hosts.push(Watched { name, tracker, heard: Instant::now(), told: 0, gone });
        }
        fleet
    }

    /// How it gives samples, in words.
    pub fn describe(&self) -> String {
        format!("every {:?}", self.interval)
    }

    /// What the hosts are called, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.name.as_str())
    }

    /// The next moment of any host; none if no host tells one within the time.
    pub fn next(&mut self, time: Duration) -> Option<(usize, Moment)> {
        loop {
            let (at, said) = self.said.recv_timeout(time).ok()?;
            let host = &mut self.hosts[at];
            match said {
                Said::Gone(why) => host.gone = Some(why),
                Said::Sample(sample) => {
                    let moment = host.tracker.feed(&sample);
                    host.heard = Instant::now();
                    host.told += u64::from(moment.interval_us.is_some());
                    return Some((at, moment));
                }
            }
        }
    }

    /// All alerts of a host, the latest last.
    pub fn alerts(&self, at: usize) -> Vec<Alert> {
        self.hosts[at].tracker.alerts().cloned().collect()
    }

    /// How many intervals a host has told.
    pub fn told(&self, at: usize) -> u64 {
        self.hosts[at].told
    }

    /// Why a host tells nothing, where that is so.
    pub fn silent(&self, at: usize) -> Option<String> {
        let host = &self.hosts[at];
        let bears = if host.tracker.first_us().is_none() { TO_START } else { SILENCE.max(self.interval * INTERVALS) };
        let since = host.heard.elapsed();
        host.gone.clone().or_else(|| (since > bears).then(|| format!("no answer for {} s", since.as_secs())))
    }

    /// Whether there is nothing to wait for: every host has told so many intervals, or tells nothing.
    pub fn is_over(&self, count: Option<u64>) -> bool {
        let done = |at: usize| count.is_some_and(|count| self.told(at) >= count);
        (0..self.hosts.len())
            .all(|at| self.hosts[at].gone.is_some() || done(at) || count.is_some() && self.silent(at).is_some())
    }

    /// Whether any host has told anything.
    pub fn any_told(&self) -> bool {
        self.hosts.iter().any(|host| host.tracker.first_us().is_some())
    }

    /// What moved in all, in words, host by host.
    pub fn summary(&self) -> String {
        let lines = |host: &Watched| {
            let of = summary::of(&host.tracker);
            of.lines().map(|line| format!("{}: {line}\n", host.name)).collect::<String>()
        };
        self.hosts.iter().map(lines).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // All at once; each is waited for when it is dropped itself.
        self.programs.iter().for_each(Started::end);
    }
}

/// Passes on what a program writes, in a thread of its own.
fn listen(at: usize, program: &mut Started, says: Sender<(usize, Said)>) {
    let Some((output, errors)) = program.outputs() else { return };
    let errors = spawn(move || complaints(errors));
    spawn(move || {
        let end = pass_on(output, |sample| says.send((at, Said::Sample(Box::new(sample)))).is_ok());
        let why = end.or_else(|| told(errors)).unwrap_or_else(|| "its busbw ended".into());
        // Nobody may be left who wants to know.
        let _ = says.send((at, Said::Gone(why)));
    });
}

/// Hands over samples until there are no more, or nobody takes them. Why the recording cannot be read, where it is that.
fn pass_on(output: impl Read, take: impl Fn(Sample) -> bool) -> Option<String> {
    let mut recording = match Recording::open(BufReader::new(output)) {
        Ok(recording) => recording,
        // Nothing at all was written: what the launcher complained of says why.
        Err(crate::RecordingError::NoRecording) => return None,
        Err(error) => return Some(error.to_string()),
    };
    loop {
        match recording.next_sample() {
            Ok(Some(sample)) => {
                if !take(sample) {
                    return None;
                }
            }
            Ok(None) => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
}

fn complaints(errors: impl Read) -> String {
    let mut bytes = Vec::new();
    // An error ends the reading as the pipe's end does.
    let _ = errors.take(MOST_SAID).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn told(errors: JoinHandle<String>) -> Option<String> {
    let errors = errors.join().ok()?;
    telling_line(&errors).map(|line| busbw_model::text::clean(line).into_owned())
}

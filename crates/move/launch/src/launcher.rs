//! Runs a launcher of ranks on other hosts, and ends it when it outlives them: Open MPI 4.1's mpirun waits for minutes for its
//! daemon on a host that is cut off.
//!
//! Ranks say on standard error when they begin and end, which every launcher hands on. A connection of our own would need a way
//! from their hosts to this one.

use crate::local::forward::{Forwarder, pass_on};
use crate::local::processes::{End, Process, attend, prepare};
use crate::local::signals::Signals;
use crate::{Error, JobRank, Lookup, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The variable with the word that such a line begins with; for a rank's own subprocesses to be removed.
pub const MARK: &str = "BUSBW_MARK";
/// A launcher that is still there this long after its ranks is asked to end.
const AFTER_ITS_RANKS: Duration = Duration::from_secs(10);
/// What was printed last may take this long to arrive.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The line that tells most of a launcher's many: busbw's own, else ssh's, else the first with a word.
pub fn telling_line(errors: &str) -> Option<&str> {
    let lines = || errors.lines().map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric));
    let own = lines().find(|line| line.starts_with("busbw: "));
    let told = own.or_else(|| lines().find(|line| line.contains("ssh"))).or_else(|| lines().next());
    told.map(|line| line.trim_start_matches("busbw: "))
}

/// This process as a rank whose launcher busbw has started.
pub struct LaunchedRank {
    mark: String,
    rank: usize,
}

impl LaunchedRank {
    /// Says that this rank has begun. None where nobody waits for that.
    pub fn begin(look: Lookup) -> Option<Self> {
        let mark = look(MARK)?;
        // Where the launcher dies without a word (Open MPI 4.1's mpirun at times crashes of SIGTERM), nobody ends its ranks here.
        // What fails is the call's own matter: the rank runs all the same.
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
        let marked = LaunchedRank { mark, rank: JobRank::detect(look).ok()?.rank };
        marked.say("begun");
        Some(marked)
    }

    /// Says that it ends with this exit status.
    pub fn end(&self, status: u8) {
        self.say(&status.to_string());
    }

    fn say(&self, what: &str) {
        pass_on(format!("{} {} {what}\n", self.mark, self.rank).as_bytes(), std::io::stderr());
    }
}

/// What the ranks of a launcher have said.
#[derive(Debug, Default)]
struct RankReports {
    begun: usize,
    /// Exit status of rank 0, or of the first that failed.
    status: Option<i32>,
    /// Since when there is nothing more to come: rank 0 has ended, or another failed.
    over: Option<Instant>,
    /// Rank 0 has ended, with the answer: what the launcher then says of its exit status is no news.
    answered: bool,
    /// The launcher is being ended: what it complains of is known.
    silenced: bool,
}

impl RankReports {
    /// Takes what a rank says to us; gives back whether that was one.
    fn take(&mut self, line: &[u8], mark: &str) -> bool {
        let line = String::from_utf8_lossy(line);
        // A launcher may put a tag before it.
        let Some((_, said)) = line.split_once(mark) else { return false };
        let mut words = said.split_whitespace();
        let (first, what) = (words.next() == Some("0"), words.next().unwrap_or_default());
        self.answered |= first && what != "begun";
        match what.parse::<i32>() {
            Err(_) => self.begun += 1,
            Ok(status) if first || (status != 0 && self.status.is_none()) => {
                self.status = Some(status);
                self.over.get_or_insert_with(Instant::now);
            }
            Ok(_) => {}
        }
        true
    }

    fn is_overdue(&self) -> bool {
        self.over.is_some_and(|since| since.elapsed() >= AFTER_ITS_RANKS)
    }
}

/// Runs the launcher of `ranks` ranks: the exit status. It stays in this process's group: so ssh can ask for a
/// password, and Ctrl-C reaches it.
///
/// # Errors
/// It could not be started, or [`Error::NotStarted`].
pub(crate) fn run(words: &[String], hosts: &str, ranks: usize) -> Result<i32> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::Usage("there is no command to start".into()));
    };
    let starting = |error| Error::system(format!("start {program}"), error);
    let signals = Signals::block()?;
    become_subreaper()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mark = format!("busbw-mark-{}-{}", std::process::id(), now.as_nanos());
    let mut command = Command::new(program);
    command.args(arguments).env(MARK, &mark).stderr(Stdio::piped());
    // It ends its ranks when it is asked to.
    prepare(&mut command, None, &signals, Signal::SIGTERM);
    let mut child = command.spawn().map_err(starting)?;
    let heard = Arc::new(Mutex::new(RankReports::default()));
    let errors = child.stderr.take().map(|pipe| listen(pipe, mark, Arc::clone(&heard)));
    let end = attend(&signals, &mut [Process::new(child, false)], || overdue(&heard))?;
    if end.asked || end.interrupted.is_some() {
        kill_orphans();
    }
    errors.into_iter().for_each(wait_for_the_last_words);
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    judge(&end, &heard, hosts, ranks)
}

/// What a launcher leaves behind when it is killed (ssh, ranks here) is then ours.
pub(crate) fn become_subreaper() -> Result<()> {
    let taking = |error: nix::errno::Errno| Error::system("take over what launchers leave behind", error.into());
    nix::sys::prctl::set_child_subreaper(true).map_err(taking)
}

fn listen(pipe: std::process::ChildStderr, mark: String, heard: Arc<Mutex<RankReports>>) -> Forwarder {
    Forwarder::to(pipe, move |line| {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = heard.silenced || (heard.answered && !line.windows(6).any(|word| word == b"busbw:"));
        if !heard.take(line, &mark) && !stale {
            pass_on(line, std::io::stderr());
        }
    })
}

fn overdue(heard: &Mutex<RankReports>) -> bool {
    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    heard.silenced = heard.is_overdue();
    heard.silenced
}

/// The exit status: what stopped the job counts for more than how the launcher then ended.
fn judge(end: &End, heard: &RankReports, hosts: &str, ranks: usize) -> Result<i32> {
    match (end.interrupted, heard.status) {
        (Some(status), _) => Ok(status),
        (None, Some(status)) if end.asked => Ok(status),
        (None, None) if end.status != 0 && heard.begun < ranks => Err(Error::NotStarted(hosts.to_owned())),
        _ => Ok(end.status),
    }
}

/// Waits for processes that were left behind and end by themselves, as a launcher that ends its ranks elsewhere, then kills the rest.
pub(crate) fn end_orphans() {
    let since = Instant::now();
    while !reap().is_empty() && since.elapsed() < LAST_WORDS {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_orphans();
}

/// Takes the status of children that have ended; gives back the others.
fn reap() -> Vec<Pid> {
    let ended = |pid: &Pid| nix::sys::wait::waitpid(*pid, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
    children().into_iter().filter(|pid| ended(pid) == Ok(nix::sys::wait::WaitStatus::StillAlive)).collect()
}

fn children() -> Vec<Pid> {
    let listed = std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
    listed.unwrap_or_default().split_whitespace().filter_map(|pid| Some(Pid::from_raw(pid.parse().ok()?))).collect()
}

/// Kills processes that a launcher left behind, and those that they left. Where the kernel does not list children, they stay
/// until they notice by themselves.
fn kill_orphans() {
    for _ in 0..100 {
        let left = children();
        if left.is_empty() {
            return;
        }
        for pid in left {
            // It may have ended; then this reaps it.
            let _ = kill(pid, Signal::SIGKILL).and_then(|()| nix::sys::wait::waitpid(pid, None));
        }
    }
}

/// A process elsewhere may hold the pipe for long: an ssh that other connections share.
fn wait_for_the_last_words(errors: Forwarder) {
    let since = Instant::now();
    while !errors.is_finished() && since.elapsed() < LAST_WORDS {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = std::io::stderr().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> RankReports {
        let mut heard = RankReports::default();
        for line in lines {
            assert_eq!(heard.take(line.as_bytes(), "mark"), line.contains("mark"), "{line}");
        }
        heard
    }

    #[test]
    fn what_the_exit_status_is_made_of() {
        let (began, failed) = (["mark 0 begun", "[1,1]<stderr>:mark 1 begun", "busbw: a word"], "mark 1 1");
        let ended = |status| End { interrupted: None, asked: false, status };
        let asked = End { asked: true, ..ended(143) };
        for (end, lines, expected) in [
            (ended(0), &began[..], Some(0)),
            (ended(139), &began, Some(139)),
            (ended(1), &[&began[..], &[failed]].concat(), Some(1)),
            // The launcher had to be ended.
            (asked, &[&began[..], &["mark 0 0"]].concat(), Some(0)),
            (End { asked: true, ..ended(139) }, &[&began[..], &[failed]].concat(), Some(1)),
            (End { interrupted: Some(130), ..ended(1) }, &began, Some(130)),
            // Ranks have not begun.
            (ended(1), &[][..], None),
            (ended(1), &began[..1], None),
        ] {
            let status = judge(&end, &heard(lines), "a,b", 2).ok();
            assert_eq!(status, expected, "{} {lines:?}", end.status);
        }
    }
}

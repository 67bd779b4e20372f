//! What a sweep says as it goes, on standard error, and how it is stopped.

use crate::output::say;
use busbw_launch::start::heeded;
use busbw_report::text::measured_value;
use busbw_tune::script::SilentMpirun;
use busbw_tune::space::Setting;
use busbw_tune::store::{Key, Outcome};
use busbw_tune::sweep::Watcher;
use nix::sys::signal::Signal;
use signal_hook::flag;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is said of each trial, and an ear for signals.
pub struct Progress {
    stop: Arc<AtomicBool>,
    quiet: bool,
    began: Instant,
    /// Trials that ended here.
    ended: Cell<u32>,
    /// Trials that are done, and how many there may be.
    counts: Cell<(usize, usize)>,
}

impl Progress {
    /// From now on Ctrl-C ends the trial under way and keeps what is done; a second one ends busbw at once.
    pub fn new(quiet: bool) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in heeded([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]).iter().map(|signal| signal as i32) {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .map_err(|e| format!("signals cannot be watched: {e}"))?;
        }
        let (began, ended, counts) = (Instant::now(), Cell::new(0), Cell::default());
        Ok(Progress { stop, quiet, began, ended, counts })
    }

    /// The sweep is over: signals end busbw again.
    pub fn finish(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The time that the trials left take at most, if they are like those so far.
    fn left(&self) -> Option<Duration> {
        let (done, most) = self.counts.get();
        (self.ended.get() > 0).then(|| self.began.elapsed() / self.ended.get() * most.saturating_sub(done) as u32)
    }

    /// Settings would not reach all ranks.
    pub fn warn(&self, found: &SilentMpirun) {
        let flags: Vec<String> = found.unnamed.iter().map(|name| format!("-x {name}")).collect();
        say(format_args!(
            "{}:{}: calls mpirun by itself, and Open MPI hands ranks on other hosts only what -x names: write `mpirun {} …` \
             there, if ranks are on other hosts",
            found.script,
            found.line,
            flags.join(" ")
        ));
    }
}

impl Watcher for Progress {
    fn counts(&self, done: usize, most: usize) {
        self.counts.set((done, most));
    }

    fn begins(&self, key: Key, setting: &Setting) {
        let left = self.left().map_or(String::new(), |left| format!(", {} left at most", in_words(left)));
        let (done, most) = self.counts.get();
        self.counts.set((done + 1, most));
        if self.quiet {
            return;
        }
        // The numbers behind are those of the trial's folder.
        let round = if key.round == 0 { "warm-up".into() } else { format!("round {}", key.round) };
        say(format_args!(
            "trial {} of at most {most}{left} ({round}, setting {}): {}",
            done + 1,
            key.setting,
            setting.name()
        ));
    }

    fn queued(&self, told: &str) {
        if !self.quiet {
            say(format_args!("  {told}"));
        }
    }

    fn ended(&self, _: Key, setting: &Setting, outcome: &Outcome) {
        self.ended.set(self.ended.get() + 1);
        if self.quiet {
            return;
        }
        let name = setting.name();
        say(match (outcome.value(), outcome.failure()) {
            (Some(value), _) => format!("  {name}: {}", measured_value(value)),
            (None, reason) => format!("  {name}: failed: {}", reason.unwrap_or_default()),
        });
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// `40 s`, `35 min`, `2 h 10 min`: as exact as an estimate can be.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs().max(1);
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_left_in_words() {
        for (seconds, words) in [(0, "1 s"), (99, "99 s"), (100, "2 min"), (2100, "35 min"), (7800, "2 h 10 min")] {
            assert_eq!(in_words(Duration::from_secs(seconds)), words);
        }
    }
}

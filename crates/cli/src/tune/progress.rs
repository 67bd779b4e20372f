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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A line per trial, and an ear for signals.
pub struct Progress {
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// From now on Ctrl-C ends the trial under way and keeps what is done; a second one ends busbw at once.
    pub fn new() -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in heeded([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]).iter().map(|signal| signal as i32) {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
                .and_then(|_| flag::register(signal, Arc::clone(&stop)))
                .map_err(|e| format!("signals cannot be watched: {e}"))?;
        }
        Ok(Progress { stop })
    }

    /// The sweep is over: signals end busbw again.
    pub fn finish(&self) {
        self.stop.store(true, Ordering::Relaxed);
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
    fn begins(&self, key: Key, setting: &Setting) {
        // The numbers are those of the trial's folder.
        let round = if key.round == 0 { "warm-up".into() } else { format!("round {}", key.round) };
        say(format_args!("{round}, setting {}: {}", key.setting, setting.name()));
    }

    fn ended(&self, _: Key, setting: &Setting, outcome: &Outcome) {
        let name = setting.name();
        say(match outcome {
            Outcome::Value(value) => format!("  {name}: {}", measured_value(*value)),
            Outcome::Failed(reason) => format!("  {name}: failed: {reason}"),
            Outcome::TimedOut(limit) => format!("  {name}: took more than {} s", limit.as_secs_f64()),
        });
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

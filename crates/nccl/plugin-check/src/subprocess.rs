//! The process that loads a plugin: it runs the steps that its rank asks for, and ends.

use crate::api::{Plugin, Watchdog, unusable};
use crate::case::{Case, CaseResult, PEER_GONE, Stop};
use crate::measure::Measurement;
use crate::rules;
use crate::wire::{self, FromSubprocess, Outcome, Setup, Step, ToSubprocess};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// NCCL's number of a communicator, of which subprocesses need one each.
const COMMUNICATOR: u64 = 0xB0B;

/// Serves the rank at the other end of standard input. Called by the hidden flag with which ranks start subprocesses.
pub fn run() -> ExitCode {
    // SAFETY: standard input is the socket that the rank made for this process, and nothing else here reads it.
    let mut rank = unsafe { UnixStream::from_raw_fd(0) };
    // If the rank is gone, there is no one to report to.
    let Ok(ToSubprocess::Setup(setup)) = wire::receive(&mut rank) else { return ExitCode::from(2) };
    let _ = serve(rank, setup);
    // Threads of the plugin may still run; the process ends without asking them.
    ExitCode::SUCCESS
}

fn serve(mut rank: UnixStream, setup: Setup) -> CaseResult<()> {
    watch(&rank, setup.patience)?;
    let mut plugin = match Plugin::open(&setup.path, setup.version) {
        Ok(plugin) => plugin,
        Err(error) => return refuse(&mut rank, error),
    };
    if let Err(wrong) = plugin.init(COMMUNICATOR) {
        return refuse(&mut rank, wrong.to_string());
    }
    let mut case = Case { plugin, setup, rank };
    let mut measurement = None;
    loop {
        let ToSubprocess::Step(step) = wire::receive(&mut case.rank)? else { continue };
        let outcome = match take(&mut case, step, &mut measurement) {
            Ok(outcome) => outcome,
            Err(Stop::Wrong(wrong)) if step == Step::Offer => Outcome::Unusable(unusable(wrong.to_string())),
            Err(Stop::Wrong(wrong)) => Outcome::Failed(wrong),
            Err(Stop::PeerGone) => Outcome::Failed(PEER_GONE.to_owned().into()),
            Err(Stop::RankGone) => return Err(Stop::RankGone),
        };
        wire::send(&mut case.rank, &FromSubprocess::Done(outcome))?;
    }
}

/// Answers whatever is asked with the reason why the plugin cannot be used.
fn refuse(rank: &mut UnixStream, why: String) -> CaseResult<()> {
    let outcome = FromSubprocess::Done(Outcome::Unusable(unusable(why)));
    loop {
        if let ToSubprocess::Step(_) = wire::receive(rank)? {
            wire::send(rank, &outcome)?;
        }
    }
}

/// A call that does not come back is told to the rank, and the process ends: nothing else can be done with it.
fn watch(rank: &UnixStream, patience: Duration) -> CaseResult<()> {
    let rank = rank.try_clone()?;
    let expired = move |call: &'static str| {
        let told = format!("{call} did not come back within {} s; no call may wait", patience.as_secs_f64());
        let outcome = match call {
            "init" | "devices" | "getProperties" => Outcome::Unusable(unusable(told)),
            _ => Outcome::Lost(told.into()),
        };
        // The step's own thread is in the plugin and writes nothing now.
        let _ = wire::send(&mut &rank, &FromSubprocess::Done(outcome));
        std::process::exit(1);
    };
    Ok(Watchdog::start(patience, Arc::new(expired))?)
}

fn take(case: &mut Case, step: Step, measurement: &mut Option<Measurement>) -> CaseResult<Outcome> {
    let missing = || Stop::Wrong("a measurement was asked for before the connection".to_owned().into());
    match step {
        Step::Offer => Ok(Outcome::Offer(case.plugin.offer()?)),
        Step::Rule(number) => match rules::ALL.get(number) {
            Some(rule) => (rule.run)(case).map(Outcome::Rule),
            None => Err(Stop::Wrong(format!("there is no rule {number}; do both ends run the same busbw?").into())),
        },
        Step::Connect { most_bytes, in_flight } => {
            *measurement = Some(Measurement::connect(case, most_bytes, in_flight)?);
            Ok(Outcome::Connected)
        }
        Step::Bandwidth { bytes, duration } => {
            measurement.as_mut().ok_or_else(missing)?.bandwidth(case, bytes, duration)
        }
        Step::Latency { duration } => measurement.as_mut().ok_or_else(missing)?.latency(case, duration),
        Step::MessageRate { duration } => measurement.as_mut().ok_or_else(missing)?.message_rate(case, duration),
    }
}

//! The process that loads a plugin: it runs the steps that its rank asks for, and ends.

use crate::api::{Plugin, Profiler, Tuner, Watchdog, exports, unusable};
use crate::case::{Case, CaseResult, PEER_GONE, Stop};
use crate::measure::Measurement;
use crate::rules::{self, Run};
use crate::wire::{self, FromSubprocess, Outcome, Setup, Step, ToSubprocess};
use busbw_model::{PluginOffer, RuleOutcome};
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
    let step = next_step(&mut rank)?;
    let rule = if let Step::Rule(number) = step { rules::all().nth(number).map(|rule| rule.run) } else { None };
    match rule {
        Some(Run::Tuner(_, act)) => serve_part(rank, Tuner::open(&setup.path, setup.version), setup, act),
        Some(Run::Profiler(_, act)) => serve_part(rank, Profiler::open(&setup.path, setup.version), setup, act),
        _ if step == Step::Offer => serve_offer(rank, setup),
        _ => serve_network(rank, setup, step),
    }
}

fn next_step(rank: &mut UnixStream) -> CaseResult<Step> {
    loop {
        if let ToSubprocess::Step(step) = wire::receive(rank)? {
            return Ok(step);
        }
    }
}

/// Runs the test case of a tuner or profiler.
fn serve_part<P>(
    mut rank: UnixStream,
    opened: Result<P, String>,
    setup: Setup,
    act: fn(&mut Case<P>) -> CaseResult<RuleOutcome>,
) -> CaseResult<()> {
    let plugin = match opened {
        Ok(plugin) => plugin,
        Err(error) => return refuse(&mut rank, error),
    };
    let mut case = Case { plugin, setup, rank };
    let outcome = act(&mut case).map(Outcome::Rule);
    answer(&mut case.rank, outcome)
}

/// Tells what the file exports, and what its network says of itself.
fn serve_offer(mut rank: UnixStream, setup: Setup) -> CaseResult<()> {
    let exports = match exports(&setup.path) {
        Ok(exports) => exports,
        Err(error) => return refuse(&mut rank, error),
    };
    let has_parts = exports.tuner.is_some() || exports.profiler.is_some();
    let mut network = None;
    if exports.network || setup.version.is_some() {
        let opened = open_network(&setup);
        network = match opened.and_then(|plugin| plugin.offer().map_err(|wrong| wrong.to_string())) {
            Ok(offer) => Some(offer),
            Err(error) => return refuse(&mut rank, error),
        };
    } else if !has_parts {
        let none = "is no plugin: it exports none of ncclNetPlugin_v6 to v12, ncclTunerPlugin_v2 to v6 and ncclProfiler_v1 to v6";
        return refuse(&mut rank, none.into());
    }
    let offer = PluginOffer { network, tuner: exports.tuner, profiler: exports.profiler };
    answer(&mut rank, Ok(Outcome::Offer(offer)))
}

fn open_network(setup: &Setup) -> Result<Plugin, String> {
    let mut plugin = Plugin::open(&setup.path, setup.version)?;
    plugin.init(COMMUNICATOR).map_err(|wrong| wrong.to_string())?;
    Ok(plugin)
}

fn serve_network(mut rank: UnixStream, setup: Setup, first: Step) -> CaseResult<()> {
    let plugin = match open_network(&setup) {
        Ok(plugin) => plugin,
        Err(error) => return refuse(&mut rank, error),
    };
    let mut case = Case { plugin, setup, rank };
    let (mut step, mut measurement) = (first, None);
    loop {
        let outcome = take(&mut case, step, &mut measurement);
        answer(&mut case.rank, outcome)?;
        step = next_step(&mut case.rank)?;
    }
}

fn answer(rank: &mut UnixStream, outcome: CaseResult<Outcome>) -> CaseResult<()> {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(Stop::Wrong(wrong)) => Outcome::Failed(wrong),
        Err(Stop::PeerGone) => Outcome::Failed(PEER_GONE.to_owned().into()),
        Err(Stop::RankGone) => return Err(Stop::RankGone),
    };
    Ok(wire::send(rank, &FromSubprocess::Done(outcome))?)
}

/// Answers whatever is asked with the reason why the plugin cannot be used.
fn refuse(rank: &mut UnixStream, why: String) -> CaseResult<()> {
    let outcome = FromSubprocess::Done(Outcome::Unusable(unusable(why)));
    loop {
        wire::send(rank, &outcome)?;
        next_step(rank)?;
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
        Step::Rule(number) => match rules::all().nth(number).map(|rule| rule.run) {
            Some(Run::Network(run)) => run(case).map(Outcome::Rule),
            _ => Err(Stop::Wrong(format!("there is no rule {number}; do both ends run the same busbw?").into())),
        },
        Step::Offer => Err(missing()),
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

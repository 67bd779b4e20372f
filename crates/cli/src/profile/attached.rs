//! `busbw profile --attach`: reads the events of a job that runs on this host.

use super::{LOOK_UP, Profile};
use crate::output::{self, Refusal};
use crate::watch::host_name;
use busbw_model::Profile as Profiled;
use busbw_monitor::Stop;
use busbw_profile::Agent;
use std::time::{Duration, Instant};

pub fn run(flags: &Profile) -> Result<Profiled, Refusal> {
    let (scope, report) = (flags.attach.scope()?, flags.report()?);
    let mut stop = Stop::on_signals().map_err(|error| error.to_string())?;
    let agent = Agent::attach(scope, &host_name(), report).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let left = || flags.seconds.map_or(Duration::MAX, |seconds| seconds.saturating_sub(begun.elapsed()));
    if flags.seconds.is_none() {
        output::say("reads until Ctrl-C or the end of the job; --seconds 30 ends by itself");
    }
    while !(agent.is_over() || left().is_zero() || stop.wait(LOOK_UP.min(left()))) {}
    let wall_us = begun.elapsed().as_secs_f64() * 1e6;
    let profile = agent.finish().map_err(|error| error.to_string())?;
    Ok(Profiled { wall_us, ..profile })
}

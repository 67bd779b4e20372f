//! `busbw profile -- COMMAND`: starts a job and reads its events until it ends.

use super::{LOOK_UP, Profile};
use crate::output::{self, Refusal};
use crate::watch::host_name;
use busbw_launch::attendant::Attendant;
use busbw_model::Profile as Profiled;
use busbw_profile::{Agent, Report};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// What NCCL takes as the profiler plugin.
const PLUGIN: &str = "NCCL_PROFILER_PLUGIN";

pub fn run(flags: &Profile) -> Result<Profiled, Refusal> {
    if flags.output.is_json() && flags.output.file().is_none() {
        let told = "a job's output goes to standard output: write the answer elsewhere, with --json=FILE or -o FILE";
        return Err(told.to_owned().into());
    }
    let report = flags.report()?;
    let (program, arguments) = flags.command.split_first().ok_or_else(|| "give the command of the job".to_owned())?;
    let mut command = Command::new(program);
    command.args(arguments);
    // Threads must leave signals to this one.
    let attendant = Attendant::begin()?;
    let agent = record(&mut command, report)?;
    let begun = Instant::now();
    let mut job = attendant.wrap(command, |_, _| {})?;
    let status = loop {
        if let Some(status) = job.wait(LOOK_UP)? {
            break status;
        }
    };
    let wall_us = begun.elapsed().as_secs_f64() * 1e6;
    job.finish();
    let profile = agent.finish().map_err(|error| error.to_string())?;
    let words: Vec<_> = flags.command.iter().map(|word| word.to_string_lossy()).collect();
    Ok(Profiled { job: words.join(" "), host: host_name(), wall_us, exit_status: Some(status), ..profile })
}

/// Has a job write events, which a report takes.
pub fn record(command: &mut Command, report: Report) -> Result<Agent, String> {
    let agent = Agent::begin(&host_name(), report).map_err(|error| format!("a folder for events: {error}"))?;
    command.envs(agent.folder().map(|folder| (busbw_profile::VARIABLE, folder)));
    match (std::env::var_os(PLUGIN), library()) {
        (Some(own), _) => output::say(format!("{PLUGIN}={} is set: NCCL's events are that profiler's", own.display())),
        (None, Some(library)) => {
            command.env(PLUGIN, library);
        }
        (None, None) => {}
    }
    Ok(agent)
}

/// NCCL's plugin, where it lies beside this command, or in the folder of libraries beside that.
fn library() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let folder = here.parent()?;
    let names = ["libnccl-net-busbw.so", "../lib/libnccl-net-busbw.so", "libnccl_net_busbw.so"];
    names.into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

//! `busbw monitor --hosts`: a launcher per host, so that one that hangs or dies is the only one.

use super::Monitor;
use crate::output::Refusal;
use busbw_launch::command::{Starter, this_program, variables};
use busbw_launch::hosts::Hosts;
use busbw_monitor::{Fleet, Thresholds};
use busbw_probe::Program;
use std::time::Duration;

/// Starts busbw on every host of the list.
pub fn start(list: &str, flags: &Monitor, thresholds: &Thresholds) -> Result<Fleet, Refusal> {
    let asked: Hosts = list.parse()?;
    let starter = Starter::find(&|name| std::env::var(name).ok())?;
    let interval = format!("{}ms", flags.sampling.interval.as_millis());
    let program = this_program()?.display().to_string();
    let mut command = vec![program.as_str(), "monitor", "--quiet", "--record", "-", "--interval", &interval];
    let devices = flags.devices.join(",");
    if !devices.is_empty() {
        command.extend(["--devices", &devices]);
    }
    let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
    let names = asked.slots().iter().map(|slots| slots.host.clone());
    let hosts = names.map(|name| {
        let alone: Hosts = name.parse()?;
        let words = starter.command_line(&alone, &variables(), &command);
        let program = Program::new(&words[0], &words[1..], Duration::MAX);
        // srun: beside the job that is watched (--overlap), and each sample at once (--unbuffered).
        Ok((name, program.with("SLURM_OVERLAP", "1").with("SLURM_UNBUFFEREDIO", "1")))
    });
    Ok(Fleet::start(hosts.collect::<Result<_, Refusal>>()?, flags.sampling.interval, thresholds))
}

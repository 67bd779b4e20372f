//! `busbw simulate`: what the fabric gives, and what changes would gain.

use crate::cli::Simulate;
use crate::flags::Format;
use crate::predict::load;
use crate::{described, output};
use busbw_model::Communicator;
use busbw_predict::{Cluster, Options, SimulationError, Traffic, WhatIf};
use busbw_report::{Comparison, Scenario, html, json, text};
use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(flags: &Simulate) -> Result<ExitCode, String> {
    let cluster = described::cluster(&flags.cluster)?;
    let comparison = compare(flags, cluster)?;
    let style = flags.look.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_simulate(&comparison, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::simulate(&comparison)),
        _ => out.write_all(text::simulate(&comparison, &style).as_bytes()),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Simulates the cluster as it is and with each change.
fn compare(flags: &Simulate, cluster: Cluster) -> Result<Comparison, String> {
    let fault = |error: SimulationError| described::about(&flags.cluster, error);
    let traffic = match (&flags.log, &flags.load) {
        (Some(log), _) => Traffic::of_communicator(&rings(log, &cluster)?, &cluster),
        (None, Some(named)) => Traffic::of_load(&Arc::new(load(named, cluster.ranks())?), &cluster),
        (None, None) => Traffic::of_cluster(&cluster),
    }
    .map_err(fault)?;
    let options = Options { seeds: flags.seeds, ..Options::default() };
    let (all, done) = (1 + flags.what_if.len(), Cell::new(0));
    let bar = flags.quiet.bar(all as u64, "simulating {msg} {spinner} {pos} of {len} done, {elapsed}");
    let simulated = |name: String, cluster: Cluster, traffic: &Traffic| {
        bar.show(done.replace(done.get() + 1), all, name.clone());
        let simulation = busbw_predict::simulate(&cluster, traffic, &options)?;
        Ok(Scenario { name, cluster, simulation })
    };
    let base = simulated("as described".into(), cluster, &traffic).map_err(fault)?;
    let alternative = |change: &WhatIf| {
        // The message of a change that cannot be made names it.
        let changed = change.apply(&base.cluster).map_err(|error| format!("--what-if {error}"))?;
        let traffic = change.traffic(&traffic, &changed).map_err(fault)?;
        simulated(change.to_string(), changed, &traffic).map_err(|error| format!("--what-if {change}: {error}"))
    };
    let alternatives = flags.what_if.iter().map(alternative).collect::<Result<_, String>>()?;
    Ok(Comparison { base, alternatives })
}

/// The largest communicator of a log that has rings, if it is one of the cluster.
fn rings(log: &Path, cluster: &Cluster) -> Result<Communicator, String> {
    let run = described::run_of(&[log.to_path_buf()])?;
    let log = log.display();
    // Communicators are sorted, the largest first.
    let found = run.communicators.into_iter().find(|comm| comm.ring_count() > 0);
    let comm = found.ok_or_else(|| {
        format!("{log}: no rings; give the log of a run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH")
    })?;
    match comm.nranks.map(|ranks| ranks as usize).filter(|ranks| *ranks != cluster.ranks()) {
        Some(ranks) => {
            let described = cluster.ranks();
            Err(format!("{log}: has {ranks} ranks and the cluster {described} GPUs; describe the cluster of that run"))
        }
        None => Ok(comm),
    }
}

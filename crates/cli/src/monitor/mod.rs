//! `busbw monitor`: the traffic and errors of every port, now or in a recording.

mod flags;
mod hosts;

pub use flags::Monitor;

use crate::output::{self, Refusal};
use busbw_monitor::session::{self, Options, View};
use busbw_monitor::{Source, Thresholds, screen};
use busbw_probe::Root;
use busbw_probe::counters::{Devices, Sampler};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

pub fn run(flags: &Monitor) -> Result<ExitCode, Refusal> {
    if flags.list_alerts {
        output::write(None, |out| out.write_all(busbw_monitor::list_alerts().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if flags.quiet.quiet && flags.output.is_json() && flags.output.file().is_none() {
        return Err("--quiet prints no samples and --json prints them; leave one out, or write --json=FILE"
            .to_owned()
            .into());
    }
    let options = Options {
        count: if flags.sampling.once { Some(1) } else { flags.count },
        thresholds: flags.thresholds.as_deref().map_or(Ok(Thresholds::default()), thresholds)?,
        record: flags.record.clone(),
        perfetto: flags.perfetto.clone(),
        json: flags.output.json_file().map(Path::to_owned),
        force: flags.force,
        prometheus: flags.sampling.prometheus,
        prometheus_hosts: flags.sampling.prometheus_host.clone(),
        node_exporter_names: flags.node_exporter_names,
    };
    let is_plain = flags.sampling.once || flags.quiet.quiet || flags.output.is_json() || flags.output.file().is_some();
    let on_screen = !is_plain && io::stdout().is_terminal();
    let moved = if let Some(list) = flags.hosts.or(&flags.others) {
        let fleet = hosts::start(&list, flags, &options.thresholds)?;
        if on_screen {
            screen::run_fleet(fleet, options.count)
        } else {
            session::run_fleet(fleet, options.count, view(flags), &mut *out(flags)?)
        }
    } else if on_screen {
        let source = source(flags, on_screen)?;
        let name = flags.replay.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        screen::run(source, &options, &name.unwrap_or_default())
    } else {
        session::run(source(flags, on_screen)?, &options, view(flags), &mut *out(flags)?)
    };
    let moved = moved.map_err(|error| error.to_string())?;
    if !flags.sampling.once {
        // Standard error may be closed; that is no reason to fail.
        let _ = io::stderr().write_all(moved.as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}

fn view(flags: &Monitor) -> View {
    match (flags.output.is_json(), flags.quiet.quiet) {
        (true, _) => View::Json,
        (_, true) => View::None,
        _ => View::Text,
    }
}

/// Where samples are shown; in a file they are there as they come.
fn out(flags: &Monitor) -> Result<Box<dyn Write>, String> {
    let Some(path) = flags.output.file() else { return Ok(Box::new(io::stdout().lock())) };
    let file =
        File::create(path).map_err(|e| format!("{}: {e}; choose a place that can be written", path.display()))?;
    Ok(Box::new(file))
}

fn source(flags: &Monitor, on_screen: bool) -> Result<Source, String> {
    if let Some(path) = &flags.replay {
        let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| output::unread(path, &error))?;
        let speed = flags.speed.or(on_screen.then_some(1.0));
        return Source::replay(Box::new(BufReader::new(file)), speed).map_err(|error| fault(&error));
    }
    let root = flags.root.open()?.unwrap_or_else(Root::live);
    let devices = if flags.devices.is_empty() { Devices::Usual } else { Devices::Named(flags.devices.clone()) };
    if let Some((missing, there)) = devices.missing(&root) {
        let (missing, there) = (missing.join(", "), there.join(", "));
        return Err(format!("--devices {missing}: no such RDMA device or network interface; here are {there}"));
    }
    Ok(Source::live(Sampler::new(root, devices), flags.sampling.interval))
}

fn thresholds(path: &Path) -> Result<Thresholds, String> {
    let text = std::fs::read_to_string(path).map_err(|error| output::unread(path, &error))?;
    Thresholds::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

//! `busbw monitor`: what happens on the wire, now or in a recording.

mod flags;

pub use flags::Monitor;

use crate::output;
use busbw_monitor::session::{self, Options, View};
use busbw_monitor::{Source, Thresholds, screen};
use busbw_probe::Root;
use busbw_probe::counters::{Devices, Sampler};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write as _};
use std::path::Path;
use std::process::ExitCode;

pub fn run(flags: &Monitor) -> Result<ExitCode, String> {
    if flags.list_alerts {
        output::write(None, |out| out.write_all(busbw_monitor::list_alerts().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        count: if flags.once { Some(1) } else { flags.count },
        thresholds: flags.thresholds.as_deref().map_or(Ok(Thresholds::default()), thresholds)?,
        record: flags.record.clone(),
        perfetto: flags.perfetto.clone(),
        force: flags.force,
        prometheus: flags.prometheus,
        prometheus_hosts: flags.prometheus_host.clone(),
        node_exporter_names: flags.node_exporter_names,
    };
    let on_screen = !(flags.once || flags.json || flags.quiet) && io::stdout().is_terminal();
    let source = source(flags, on_screen)?;
    let moved = if on_screen {
        let name = flags.replay.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        screen::run(source, &options, &name.unwrap_or_default())
    } else {
        session::run(source, &options, view(flags), &mut io::stdout().lock())
    };
    let moved = moved.map_err(|error| error.to_string())?;
    if !flags.once {
        // Standard error may be closed; that is no reason to fail.
        let _ = io::stderr().write_all(moved.as_bytes());
    }
    Ok(ExitCode::SUCCESS)
}

fn view(flags: &Monitor) -> View {
    match (flags.json, flags.quiet) {
        (true, _) => View::Json,
        (_, true) => View::None,
        _ => View::Text,
    }
}

fn source(flags: &Monitor, on_screen: bool) -> Result<Source, String> {
    if let Some(path) = &flags.replay {
        let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| fault(&error))?;
        let speed = flags.speed.or(on_screen.then_some(1.0));
        return Source::replay(Box::new(BufReader::new(file)), speed).map_err(|error| fault(&error));
    }
    let root = match &flags.root {
        None => Root::live(),
        Some(directory) => Root::captured(directory).map_err(|error| format!("{}: {error}", directory.display()))?,
    };
    let devices = if flags.devices.is_empty() { Devices::Usual } else { Devices::Named(flags.devices.clone()) };
    Ok(Source::live(Sampler::new(root, devices), flags.interval))
}

fn thresholds(path: &Path) -> Result<Thresholds, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Thresholds::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

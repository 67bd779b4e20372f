//! `busbw monitor`: what happens on the wire, now or in a recording.

use crate::cli::Monitor;
use busbw_monitor::session::{self, Options, View};
use busbw_monitor::{Source, Thresholds};
use busbw_probe::Root;
use busbw_probe::counters::{Devices, Sampler};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::process::ExitCode;

/// Runs the subcommand.
pub fn run(flags: &Monitor) -> Result<ExitCode, String> {
    let options = Options {
        count: if flags.once { Some(1) } else { flags.count },
        thresholds: flags.thresholds.as_deref().map_or(Ok(Thresholds::default()), thresholds)?,
        record: flags.record.clone(),
    };
    let view = if flags.json {
        View::Json
    } else if flags.quiet {
        View::None
    } else {
        View::Text
    };
    let source = source(flags)?;
    let moved = session::run(source, &options, view, &mut io::stdout().lock()).map_err(|error| error.to_string())?;
    if !flags.once {
        eprint!("{moved}");
    }
    Ok(ExitCode::SUCCESS)
}

fn source(flags: &Monitor) -> Result<Source, String> {
    if let Some(path) = &flags.replay {
        let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| fault(&error))?;
        return Source::replay(Box::new(BufReader::new(file)), flags.speed).map_err(|error| fault(&error));
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

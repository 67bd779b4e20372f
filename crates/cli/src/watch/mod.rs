//! `busbw watch`: looks on a job, and has `explain` answer about what was seen.

mod attached;
mod by_ras;
mod flags;
mod wrapped;

pub use flags::Watch;

use crate::output::{self, Refusal};
use busbw_ingest::{ReadOptions, Source, read};
use busbw_launch::host;
use busbw_model::{Diagnosis, Watched};
use busbw_monitor::{Hosts, Server};
use busbw_probe::processes::Scope;
use busbw_profile::{Agent, Recorded};
use busbw_report::html;
use busbw_watch::session::say;
use busbw_watch::{Answer, Folder, Settings, Tracker, metrics};
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(flags: &Watch) -> Result<ExitCode, Refusal> {
    match (flags.command.is_empty(), &flags.attach.attach, &flags.ras) {
        (false, ..) => wrapped::run(flags),
        (true, None, Some(address)) => by_ras::run(flags, address),
        (true, ..) => attached::run(flags),
    }
}

/// The folder of this session.
fn folder(flags: &Watch, host: &str) -> Result<Folder, String> {
    // Hosts of one job often share the folder that they are started in.
    let path = flags.folder.clone().unwrap_or_else(|| PathBuf::from("busbw-watch").join(host));
    Folder::make(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn settings(flags: &Watch, scope: Scope, host: String) -> Settings {
    let words: Vec<_> = flags.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let job = (!words.is_empty()).then(|| words.join(" "));
    Settings { scope, interval: flags.sampling.interval, stall: flags.stall, host, job, ras: flags.ras.clone() }
}

/// Where what is seen is written.
fn shown_in(flags: &Watch) -> Result<Box<dyn Write>, String> {
    let Some(path) = flags.output.file() else { return Ok(Box::new(io::stdout())) };
    Ok(Box::new(File::create(path).map_err(|error| format!("{}: {error}", path.display()))?))
}

/// Serves metrics, where that is asked for.
fn server(flags: &Watch) -> Result<Option<Server>, String> {
    let Some(address) = flags.sampling.prometheus else { return Ok(None) };
    let server = Server::start(address, Hosts::and(&flags.sampling.prometheus_host));
    let server = server
        .map_err(|error| format!("--prometheus {address}: {error}; choose a free port of an address of this host"))?;
    say(&format!("http://{}/metrics", server.address()));
    Ok(Some(server))
}

/// Serves a sample.
fn serve(server: Option<&Server>, facts: &Watched, tracker: &Tracker) {
    if let Some(server) = server {
        let text = metrics::of(facts, tracker).to_string();
        server.show(move || text.clone());
    }
}

pub(crate) fn host_name() -> String {
    host::name(&|name| std::env::var(name).ok())
}

/// The last collectives of each rank.
fn recordings(agent: &Agent, begun: bool) -> Vec<(u32, Vec<u8>)> {
    let which = if begun { Recorded::Begun } else { Recorded::Over };
    agent.recordings(which).into_iter().map(|one| (one.rank, one.dump.to_string().into_bytes())).collect()
}

/// What `busbw explain FOLDER` says, with its page beside the facts.
fn judge(folder: &Path) -> Result<Answer, String> {
    let sources = Source::all(folder).map_err(|error| error.to_string())?;
    let options = ReadOptions { threads: NonZeroUsize::new(1), ..ReadOptions::default() };
    let run = read(&sources, &options).map_err(|error| error.to_string())?;
    let diagnosis = busbw_diagnose::diagnose(&run);
    let page = folder.join("report.html");
    let around = crate::explain::context(&run, &diagnosis, None);
    output::write(Some(&page), |out| output::page(out, &html::explain(&run, &diagnosis, &around)))?;
    let first = diagnosis.findings.first().and_then(|finding| finding.suspects.as_ref());
    let late =
        first.filter(|suspects| suspects.slower.is_some()).map(|suspects| suspects.ranks.clone()).unwrap_or_default();
    Ok(Answer { line: line(&diagnosis), page: page.display().to_string(), late })
}

/// The line that names who is at fault.
fn line(diagnosis: &Diagnosis) -> Option<String> {
    diagnosis.has_problems().then(|| diagnosis.findings.first()).flatten().map(|finding| finding.title.clone())
}

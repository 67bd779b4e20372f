//! `busbw watch -- COMMAND`: one thread passes output and signals on, another looks on.

use super::{Watch, folder, host_name, judge, recordings, serve, server, settings};
use crate::output::Refusal;
use crate::profile;
use busbw_launch::attendant::Attendant;
use busbw_model::Watched;
use busbw_model::answer::Document;
use busbw_monitor::Server;
use busbw_probe::processes::Scope;
use busbw_profile::Report;
use busbw_watch::session::{Observer, Session, say};
use busbw_watch::{Folder, Tracker};
use std::fs::File;
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the end of the job, or a signal, may go unnoticed where nothing wakes this process.
const LOOK_UP: Duration = Duration::from_millis(100);

/// What both threads know of the job.
#[derive(Default)]
struct Shared {
    ended: Mutex<Option<i32>>,
    interrupted: AtomicBool,
    kill: AtomicBool,
    gone: AtomicBool,
}

pub fn run(flags: &Watch) -> Result<ExitCode, Refusal> {
    if flags.output.is_json() || flags.output.file().is_some() {
        return Err("a job's output goes to standard output: write the samples elsewhere, with --json=FILE"
            .to_owned()
            .into());
    }
    let host = host_name();
    let folder = folder(flags, &host)?;
    let ended = watch(flags, host, &folder);
    folder.leave();
    ended
}

fn watch(flags: &Watch, host: String, folder: &Folder) -> Result<ExitCode, Refusal> {
    let json = flags.output.json_file().map(File::create).transpose();
    let json = json.map_err(|error| format!("--json: {error}; choose a place that can be written"))?;
    let (program, arguments) = flags.command.split_first().ok_or_else(|| "give the command of the job".to_owned())?;
    let mut command = Command::new(program);
    command.args(arguments);
    // Threads must leave signals to this one.
    let attendant = Attendant::begin()?;
    let server = server(flags)?;
    let agent = if flags.profile { Some(profile::record(&mut command, Report::recording())?) } else { None };
    let recorder = |begun: bool| agent.as_ref().map(|agent| recordings(agent, begun)).unwrap_or_default();
    let kept = folder.clone();
    let mut job = attendant.wrap(command, move |_, bytes| kept.take(bytes))?;
    let settings = settings(flags, Scope::Below(vec![job.pid()]), host);
    let shared = Shared::default();
    let status = std::thread::scope(|scope| {
        let mut looking = Looking { shared: &shared, kill: flags.kill, json, server };
        let session = Session::new(settings, folder).recorded(flags.profile.then_some(&recorder));
        let watch = scope.spawn(move || session.run(&mut looking, &mut judge).map(|_| ()));
        let status = loop {
            match job.wait(LOOK_UP) {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            shared.interrupted.store(job.interrupted().is_some(), Ordering::Relaxed);
            if shared.kill.swap(false, Ordering::Relaxed) {
                say("the job is asked to end (--kill)");
                job.ask_to_end();
            }
        };
        shared.interrupted.store(job.interrupted().is_some(), Ordering::Relaxed);
        // What it printed last is kept before it is judged.
        job.finish();
        *shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = status.as_ref().ok().copied();
        shared.gone.store(true, Ordering::Relaxed);
        // A session that cannot go on is told; the job's status counts.
        if let Ok(Err(error)) = watch.join() {
            say(&error.to_string());
        }
        status
    })?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

/// What the looking thread sees of the job.
struct Looking<'a> {
    shared: &'a Shared,
    kill: bool,
    json: Option<File>,
    server: Option<Server>,
}

impl Observer for Looking<'_> {
    fn sample(&mut self, facts: &Watched, tracker: &Tracker) -> io::Result<bool> {
        serve(self.server.as_ref(), facts, tracker);
        if let Some(file) = &mut self.json {
            let mut line = serde_json::to_vec(&Document::new(facts))?;
            line.push(b'\n');
            file.write_all(&line)?;
        }
        Ok(true)
    }

    fn over(&mut self) -> Option<Option<i32>> {
        let gone = self.shared.gone.load(Ordering::Relaxed);
        gone.then(|| *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn interrupted(&self) -> bool {
        self.shared.interrupted.load(Ordering::Relaxed)
    }

    fn trouble(&mut self) -> bool {
        self.shared.kill.store(self.kill, Ordering::Relaxed);
        self.kill
    }
}

//! `busbw watch --attach`: looks on a job that runs on this host.

use super::{Watch, folder, host_name, judge, recordings, serve, server, settings, shown_in};
use crate::output::Refusal;
use busbw_model::Watched;
use busbw_model::answer::Document;
use busbw_monitor::{Server, Stop};
use busbw_profile::{Agent, Report};
use busbw_watch::session::{Observer, Session, say};
use busbw_watch::text::Blocks;
use busbw_watch::{Screen, Tracker};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

pub fn run(flags: &Watch) -> Result<ExitCode, Refusal> {
    let scope = flags.attach.scope()?;
    let host = host_name();
    let agent = flags.profile.then(|| Agent::attach(scope.clone(), &host, Report::recording())).transpose();
    let agent = agent.map_err(|error| format!("--profile: {error}"))?;
    let folder = folder(flags, &host)?;
    let server = server(flags)?;
    let json = flags.output.json_file().map(File::create).transpose();
    let json = json.map_err(|error| format!("--json: {error}; choose a place that can be written"))?;
    let on_screen = !flags.sampling.once && flags.output.file().is_none() && io::stdout().is_terminal();
    let view = match (flags.output.is_json(), flags.quiet.quiet) {
        (true, _) => View::Json,
        (_, true) => View::None,
        _ if on_screen => View::Screen(Box::new(Screen::take().map_err(|error| error.to_string())?)),
        _ => View::Text(Blocks::default()),
    };
    let out = shown_in(flags)?;
    let stop = Stop::on_signals().map_err(|error| error.to_string())?;
    let mut looking = Looking {
        stop,
        view,
        out,
        json,
        server,
        seen: 0,
        once: flags.sampling.once,
        over: false,
        ranks: false,
        told: Vec::new(),
    };
    let recorder = |begun: bool| agent.as_ref().map(|agent| recordings(agent, begun)).unwrap_or_default();
    let session = Session::new(settings(flags, scope, host), &folder).recorded(flags.profile.then_some(&recorder));
    let named = session.run(&mut looking, &mut judge);
    // The terminal is given back before anything is said on it.
    looking.view = View::None;
    looking.told.iter().for_each(|line| say(line));
    let named = named.map_err(|error| error.to_string())?;
    if let Some(Err(error)) = agent.map(Agent::finish) {
        say(&format!("--profile: {error}"));
    }
    if !looking.ranks && !looking.over {
        return Err(nobody(flags.attach.named()).into());
    }
    Ok(ExitCode::from(u8::from(named)))
}

fn nobody(what: &str) -> String {
    let who = if what == "all" { "on this host".to_owned() } else { format!("of {what}") };
    format!(
        "no process {who} is a rank that this user may read: ranks have RANK and WORLD_SIZE in their environment, or the variables \
         of mpirun or srun; run busbw watch as the job's user, or as root"
    )
}

enum View {
    Text(Blocks),
    Json,
    Screen(Box<Screen>),
    None,
}

struct Looking {
    stop: Stop,
    view: View,
    out: Box<dyn Write>,
    /// Beside what is shown.
    json: Option<File>,
    server: Option<Server>,
    seen: u64,
    once: bool,
    /// Somebody ended it, or nobody reads any more.
    over: bool,
    ranks: bool,
    /// What the screen told, to be said again when it is gone.
    told: Vec<String>,
}

/// The first sample has no rates.
const FIRST: u64 = 2;
/// Ranks that are not there after so many samples are not there.
const PATIENCE: u64 = 5;

impl Observer for Looking {
    fn sample(&mut self, facts: &Watched, tracker: &Tracker) -> io::Result<bool> {
        self.seen += 1;
        self.ranks |= !facts.ranks.is_empty();
        if self.stop.wait(Duration::ZERO) {
            self.over = true;
            return Ok(false);
        }
        if !self.ranks && self.seen >= PATIENCE {
            return Ok(false);
        }
        if self.seen < FIRST || facts.ranks.is_empty() {
            return Ok(true);
        }
        serve(self.server.as_ref(), facts, tracker);
        if let Some(file) = &mut self.json {
            file.write_all((serde_json::to_string(&Document::new(facts))? + "\n").as_bytes())?;
        }
        let text = match &mut self.view {
            View::Text(blocks) => blocks.block(facts, tracker),
            View::Json => serde_json::to_string(&Document::new(facts))? + "\n",
            View::Screen(screen) => {
                screen.feed(facts, tracker)?;
                String::new()
            }
            View::None => String::new(),
        };
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.over = true;
                return Ok(false);
            }
            other => other?,
        }
        let ended = facts.ranks.iter().all(|rank| rank.ended.is_some());
        Ok(!(self.once || ended))
    }

    fn over(&mut self) -> Option<Option<i32>> {
        let left = match &mut self.view {
            View::Screen(screen) => screen.wants_end(),
            _ => false,
        };
        self.over |= left || self.stop.wait(Duration::ZERO);
        self.over.then_some(None)
    }

    fn interrupted(&self) -> bool {
        self.over
    }

    fn say(&mut self, line: &str) {
        match &mut self.view {
            View::Screen(screen) => {
                screen.shown.told.push(line.to_owned());
                self.told.push(line.to_owned());
            }
            _ => say(line),
        }
    }
}

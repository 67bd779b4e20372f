//! Runs the screen on a terminal.

use super::terminal::{Taken, is_closed, keys};
use super::{Asked, Screen};
use crate::fleet::Fleet;
use crate::session::{self, Intake, LOOK_UP, Options, SessionError, View};
use crate::source::Source;
use crate::stop::Stop;
use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Why the screen ended.
#[derive(PartialEq)]
enum End {
    /// By a key, a signal, or the count.
    Wanted,
    Closed,
}

/// Shows moments on the terminal until somebody wants an end, or the terminal is closed: what records or serves then goes on
/// without a screen. Returns what moved in all.
pub fn run(source: Source, options: &Options, name: &str) -> Result<String, SessionError> {
    let mut stop = Stop::on_signals()?;
    let mut here = Here { source, intake: Intake::new(options)?, name, left: options.count };
    let mut screen = Screen::new(String::new());
    let end = show(&mut here, &mut screen, &mut stop)?;
    let Here { mut source, mut intake, left, .. } = here;
    if end == End::Closed && intake.keeps_or_serves() {
        session::go_on(&mut source, &mut intake, &mut stop, left, View::None, &mut io::sink())?;
    }
    intake.finish()
}

/// Shows several hosts on the terminal, as [`run`] does one.
pub fn run_fleet(fleet: Fleet, count: Option<u64>) -> Result<String, SessionError> {
    let mut screen = Screen::of(fleet.names());
    let mut hosts = Hosts { fleet, count };
    show(&mut hosts, &mut screen, &mut Stop::on_signals()?)?;
    Ok(hosts.fleet.summary())
}

/// What the screen shows.
trait Feed {
    /// Shows what there is by now; how long until there may be more.
    fn show(&mut self, screen: &mut Screen) -> Result<Duration, SessionError>;
    fn is_over(&self) -> bool;
    /// Takes so many times as long from moment to moment.
    fn pace(&mut self, times: f64);
}

/// This host, or a recording.
struct Here<'a> {
    source: Source,
    intake: Intake,
    name: &'a str,
    /// How many moments are left to show.
    left: Option<u64>,
}

impl Feed for Here<'_> {
    fn show(&mut self, screen: &mut Screen) -> Result<Duration, SessionError> {
        if self.source.due_in().is_some_and(|due| due.is_zero())
            && let Some(moment) = self.intake.next(&mut self.source)?
        {
            // The first has nothing to be compared with.
            self.left = self.left.map(|left| left - u64::from(moment.interval_us.is_some()));
            screen.show(moment, self.intake.alerts());
            screen.untold = self.source.untold().map(str::to_owned);
        }
        screen.note = self.source.describe(self.name);
        // At the end of a recording the last moment stays until somebody leaves.
        Ok(self.source.due_in().unwrap_or(LOOK_UP))
    }

    fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    fn pace(&mut self, times: f64) {
        self.source.pace(times);
    }
}

struct Hosts {
    fleet: Fleet,
    count: Option<u64>,
}

impl Feed for Hosts {
    fn show(&mut self, screen: &mut Screen) -> Result<Duration, SessionError> {
        while let Some((at, moment)) = self.fleet.next(Duration::ZERO) {
            screen.show_host(at, moment, self.fleet.alerts(at));
        }
        for at in 0..self.fleet.names().count() {
            screen.silent(at, self.fleet.silent(at));
        }
        screen.note = self.fleet.describe();
        Ok(LOOK_UP)
    }

    /// What is known of hosts that are gone stays until somebody leaves.
    fn is_over(&self) -> bool {
        self.count.is_some() && self.fleet.is_over(self.count)
    }

    /// The hosts were told their interval when they were started.
    fn pace(&mut self, _: f64) {}
}

fn show(feed: &mut dyn Feed, screen: &mut Screen, stop: &mut Stop) -> Result<End, SessionError> {
    let mut terminal = Taken::take()?;
    let keys = keys()?;
    while !feed.is_over() && !stop.wait(Duration::ZERO) {
        let wait = feed.show(screen)?.min(LOOK_UP);
        let drawn = terminal.draw(|frame| screen.draw(frame));
        if is_closed() {
            terminal.leave();
            return Ok(End::Closed);
        }
        drawn?;
        let asked = match keys.recv_timeout(wait) {
            Ok(key) => screen.key(key),
            Err(RecvTimeoutError::Timeout) => Asked::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                terminal.leave();
                return Ok(End::Closed);
            }
        };
        match asked {
            Asked::Quit => break,
            Asked::Slower => feed.pace(2.0),
            Asked::Faster => feed.pace(0.5),
            Asked::Nothing => {}
        }
    }
    Ok(End::Wanted)
}

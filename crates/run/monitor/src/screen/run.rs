//! Runs the screen on a terminal, and gives the terminal back as it was.

use super::{Asked, Screen};
use crate::session::{Intake, Options, SessionError};
use crate::source::Source;
use crate::stop::Stop;
use crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use std::io;
use std::time::Duration;

/// How long a signal may wait while no key is pressed.
const LOOK_UP: Duration = Duration::from_millis(100);

/// A terminal that shows the screen; as it was again when dropped. A panic gives it back before it prints.
struct Taken(DefaultTerminal);

impl Taken {
    fn take() -> io::Result<Self> {
        ratatui::try_init().map(Taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows moments on the terminal until somebody wants an end. Returns what moved in all.
///
/// # Errors
/// The terminal fails, or a file cannot be read or written.
pub fn run(mut source: Source, options: &Options, name: &str) -> Result<String, SessionError> {
    let mut stop = Stop::on_signals()?;
    let mut intake = Intake::new(options)?;
    let mut terminal = Taken::take()?;
    let mut screen = Screen::new(source.describe(name));
    let mut shown = 0;
    while options.count.is_none_or(|count| shown < count) && !stop.wait(Duration::ZERO) {
        if source.due_in().is_some_and(|due| due.is_zero())
            && let Some(moment) = intake.next(&mut source)?
        {
            shown += u64::from(moment.interval_us.is_some());
            screen.show(moment, intake.alerts());
            screen.untold = source.untold().map(str::to_owned);
        }
        screen.note = source.describe(name);
        terminal.0.draw(|frame| screen.draw(frame))?;
        // At the end of a recording the last moment stays until somebody leaves.
        let wait = source.due_in().unwrap_or(LOOK_UP).min(LOOK_UP);
        if event::poll(wait)?
            && let Event::Key(key) = event::read()?
        {
            match screen.key(key) {
                Asked::Quit => break,
                Asked::Slower => source.pace(2.0),
                Asked::Faster => source.pace(0.5),
                Asked::Nothing => {}
            }
        }
    }
    drop(terminal);
    intake.finish()
}

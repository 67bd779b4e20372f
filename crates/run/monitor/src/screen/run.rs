//! Runs the screen on a terminal, and gives the terminal back as it was.

use super::{Asked, Screen};
use crate::session::{self, Intake, Options, SessionError, View};
use crate::source::Source;
use crate::stop::Stop;
use crossterm::event::{self, Event, KeyEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long a signal or the end of the terminal may wait while no key is pressed.
const LOOK_UP: Duration = Duration::from_millis(100);

/// A terminal that shows the screen; as it was again when dropped. A panic gives it back before it prints.
struct Taken(DefaultTerminal);

impl Taken {
    fn take() -> io::Result<Self> {
        ratatui::try_init().map(Taken)
    }

    /// Leaves a terminal that was closed as it is. ratatui would complain on standard error, which is closed as well: a panic.
    fn leave(self) -> End {
        std::mem::forget(self);
        End::Closed
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Why the screen ended.
#[derive(PartialEq)]
enum End {
    /// By a key, a signal, or the count.
    Wanted,
    Closed,
}

/// Shows moments on the terminal until somebody wants an end, or the terminal is closed: what records or serves then goes on
/// without a screen. Returns what moved in all.
///
/// # Errors
/// The terminal fails, or a file cannot be read or written.
pub fn run(mut source: Source, options: &Options, name: &str) -> Result<String, SessionError> {
    let mut stop = Stop::on_signals()?;
    let mut intake = Intake::new(options)?;
    let mut left = options.count;
    let end = show(&mut source, &mut intake, &mut stop, &mut left, name)?;
    if end == End::Closed && intake.keeps_or_serves() {
        session::go_on(&mut source, &mut intake, &mut stop, left, View::None, &mut io::sink())?;
    }
    intake.finish()
}

/// Shows moments, and counts down how many are left to show.
fn show(
    source: &mut Source,
    intake: &mut Intake,
    stop: &mut Stop,
    left: &mut Option<u64>,
    name: &str,
) -> Result<End, SessionError> {
    let mut terminal = Taken::take()?;
    let keys = keys()?;
    let mut screen = Screen::new(source.describe(name));
    while *left != Some(0) && !stop.wait(Duration::ZERO) {
        if source.due_in().is_some_and(|due| due.is_zero())
            && let Some(moment) = intake.next(source)?
        {
            // The first has nothing to be compared with.
            *left = left.map(|left| left - u64::from(moment.interval_us.is_some()));
            screen.show(moment, intake.alerts());
            screen.untold = source.untold().map(str::to_owned);
        }
        screen.note = source.describe(name);
        let drawn = terminal.0.draw(|frame| screen.draw(frame)).map(|_| ());
        if is_closed() {
            return Ok(terminal.leave());
        }
        drawn?;
        // At the end of a recording the last moment stays until somebody leaves.
        let wait = source.due_in().unwrap_or(LOOK_UP).min(LOOK_UP);
        let asked = match keys.recv_timeout(wait) {
            Ok(key) => screen.key(key),
            Err(RecvTimeoutError::Timeout) => Asked::Nothing,
            Err(RecvTimeoutError::Disconnected) => return Ok(terminal.leave()),
        };
        match asked {
            Asked::Quit => break,
            Asked::Slower => source.pace(2.0),
            Asked::Faster => source.pace(0.5),
            Asked::Nothing => {}
        }
    }
    Ok(End::Wanted)
}

/// Keys as they are pressed, until the terminal is closed. crossterm 0.29 must not read a closed terminal: it would get nothing
/// for ever, and return neither from `read` nor from `poll`.
fn keys() -> io::Result<Receiver<KeyEvent>> {
    // Where crossterm reads them.
    let input: OwnedFd = if io::stdin().is_terminal() {
        io::stdin().as_fd().try_clone_to_owned()?
    } else {
        File::open("/dev/tty")?.into()
    };
    let (pressed, keys) = mpsc::channel();
    thread::spawn(move || {
        while state(&input, PollFlags::POLLIN, PollTimeout::NONE).is_ok_and(|state| state == PollFlags::POLLIN) {
            // One read may bring several keys.
            while event::poll(Duration::ZERO).unwrap_or(false) {
                let Ok(event) = event::read() else { return };
                if let Event::Key(key) = event
                    && pressed.send(key).is_err()
                {
                    return;
                }
            }
        }
    });
    Ok(keys)
}

/// Whether the terminal that the screen is on was closed: ssh or tmux ended, its window is gone.
fn is_closed() -> bool {
    state(io::stdout(), PollFlags::empty(), PollTimeout::ZERO).is_ok_and(|state| !state.is_empty())
}

/// What a descriptor is ready for, or that it was hung up, within a time.
fn state(descriptor: impl AsFd, wanted: PollFlags, time: PollTimeout) -> nix::Result<PollFlags> {
    let mut asked = [PollFd::new(descriptor.as_fd(), wanted)];
    poll(&mut asked, time)?;
    Ok(asked[0].revents().unwrap_or(PollFlags::POLLERR))
}

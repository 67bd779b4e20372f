//! A terminal that is taken for a screen, its keys, and whether it is there still; given back as it was.

use crossterm::event::{self, Event, KeyEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::{DefaultTerminal, Frame};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// A terminal that shows the screen; as it was again when dropped. A panic gives it back before it prints.
pub struct Taken(DefaultTerminal);

impl Taken {
    /// Takes the terminal of standard output.
    pub fn take() -> io::Result<Self> {
        ratatui::try_init().map(Taken)
    }

    /// Leaves a terminal that was closed as it is. ratatui would complain on standard error, which is closed as well: a panic.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// Draws it anew.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.0.draw(draw).map(|_| ())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Keys as they are pressed, until the terminal is closed. crossterm 0.29 must not read a closed terminal: it would get nothing
/// for ever, and return neither from `read` nor from `poll`.
pub fn keys() -> io::Result<Receiver<KeyEvent>> {
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
pub fn is_closed() -> bool {
    state(io::stdout(), PollFlags::empty(), PollTimeout::ZERO).is_ok_and(|state| !state.is_empty())
}

/// What a descriptor is ready for, or that it was hung up, within a time.
fn state(descriptor: impl AsFd, wanted: PollFlags, time: PollTimeout) -> nix::Result<PollFlags> {
    let mut asked = [PollFd::new(descriptor.as_fd(), wanted)];
    poll(&mut asked, time)?;
    Ok(asked[0].revents().unwrap_or(PollFlags::POLLERR))
}

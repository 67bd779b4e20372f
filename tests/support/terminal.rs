//! Commands on a terminal of their own, which a test looks at and closes.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Longer than any of these takes on a machine that does much else.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A command, and the other end of its terminal. Killed when dropped.
pub struct OnTerminal {
    pub child: Child,
    terminal: Option<OwnedFd>,
    shown: String,
}

impl OnTerminal {
    /// On a terminal that nobody else knows: no signal comes when it is closed.
    pub fn alone(command: Command) -> Self {
        Self::sized(command, 40, 120)
    }

    /// On one of so many rows and columns.
    pub fn sized(mut command: Command, rows: u16, columns: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(&size, None).expect("a terminal can be made");
        // The child must not hold the end that the test closes.
        fcntl(&terminal.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a flag can be set");
        let end = || terminal.slave.try_clone().expect("a descriptor");
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("the command starts");
        OnTerminal { child, terminal: Some(terminal.master), shown: String::new() }
    }

    /// As a login shell's command has it: SIGHUP comes when it is closed.
    pub fn of_a_session(command: &Command) -> Self {
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        session.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        session.current_dir(command.get_current_dir().unwrap_or(std::path::Path::new(".")));
        Self::alone(session)
    }

    /// Waits until the screen shows this.
    pub fn see(&mut self, text: &str) {
        self.see_times(text, 1);
    }

    /// Waits until the screen has shown this so often.
    pub fn see_times(&mut self, text: &str, times: usize) {
        let mut reader = File::from(self.terminal.as_ref().expect("it is open").try_clone().expect("a descriptor"));
        while self.shown.matches(text).count() < times {
            let mut bytes = [0; 4096];
            let read = reader.read(&mut bytes).unwrap_or_else(|error| panic!("{error}, not {text}: {}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }

    /// All that it shows until its end.
    pub fn whole(mut self) -> String {
        let mut reader = File::from(self.terminal.take().expect("it is open"));
        let mut bytes = [0; 4096];
        // A terminal that nobody holds any more is an error to read.
        while let Ok(read @ 1..) = reader.read(&mut bytes) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        std::mem::take(&mut self.shown).replace("\r\n", "\n")
    }

    pub fn press(&self, keys: &str) {
        let mut writer = File::from(self.terminal.as_ref().expect("it is open").try_clone().expect("a descriptor"));
        writer.write_all(keys.as_bytes()).expect("keys can be pressed");
    }

    pub fn close(&mut self) {
        self.terminal = None;
    }

    /// Waits for the end of the command.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for(&format!("an end, after {}", self.shown), || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended before; both calls then only say so.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let since = Instant::now();
    while !happened() {
        assert!(since.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! busbw run to its end, for tests that need no more of it than what it printed.

use super::process::Ended;
use super::skip::root_folder;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The command under test.
pub const BUSBW: &str = env!("CARGO_BIN_EXE_busbw");

impl Ended {
    /// The answer on standard output.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// What busbw makes of these arguments in a folder, with `input` on standard input.
pub fn busbw(folder: &Path, arguments: &[&str], input: Option<&[u8]>) -> Ended {
    let mut child = Command::new(BUSBW)
        .args(arguments)
        .current_dir(folder)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("busbw starts");
    if let (Some(bytes), Some(mut stdin)) = (input, child.stdin.take()) {
        let _ = stdin.write_all(bytes); // busbw may have seen enough, or refused, before the end
    }
    Ended::of(child.wait_with_output().expect("busbw ends"))
}

/// What it makes of a line that somebody types at the top of the repository.
pub fn typed(line: &str) -> Ended {
    busbw(&root_folder(), &line.split_whitespace().collect::<Vec<_>>(), None)
}

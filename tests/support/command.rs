//! busbw run to its end, for tests that need no more of it than what it printed.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The command under test.
pub const BUSBW: &str = env!("CARGO_BIN_EXE_busbw");

/// What busbw makes of these arguments in a folder, with `input` on standard input.
pub fn busbw(folder: &Path, arguments: &[&str], input: Option<&[u8]>) -> Output {
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
    child.wait_with_output().expect("busbw ends")
}

/// What a run that ended well has printed.
pub fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

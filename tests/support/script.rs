//! Scripts that a test writes and starts.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be started, by another process: while this one has it open, a child that another test has just
/// forked has it open, too, and until that child becomes its own program, to start the script fails with "Text file busy".
pub fn executable(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("a shell");
    writer.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the shell reads");
    assert!(writer.wait().expect("it ends").success(), "{} cannot be written", path.display());
}

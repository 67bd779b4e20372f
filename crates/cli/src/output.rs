//! Where answers go: standard output, or the file of --output; and what is said beside them.

use busbw_launch::Started;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// Has `print` write to the file, or to standard output without one. A reader of standard output that leaves early has
/// seen enough: that is no error.
pub fn write(file: Option<&Path>, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let Some(path) = file else {
        return match flushed(io::stdout().lock(), print) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| format!("standard output: {e}")),
        };
    };
    let written = File::create(path).and_then(|file| flushed(file, print));
    written.map_err(|e| format!("{}: {e}; choose a place that can be written", path.display()))
}

/// Ends a command that runs with several ranks: with rank 0's `answer`, a command line, or a status.
pub fn finish<T>(
    ended: busbw_launch::Result<Started<T>>,
    answer: impl FnOnce(T) -> Result<ExitCode, String>,
) -> Result<ExitCode, String> {
    match ended.map_err(|error| error.to_string())? {
        Started::Here(found) => answer(found),
        Started::CommandLine(line) => write(None, |out| writeln!(out, "{line}")).map(|()| ExitCode::SUCCESS),
        Started::Ended(status) => Ok(ExitCode::from(u8::try_from(status).unwrap_or(1))),
    }
}

/// A line for people on standard error. Nobody need read it, and what it tells of goes on.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "busbw: {text}");
}

fn flushed(out: impl Write, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    print(&mut out)?;
    out.flush()
}

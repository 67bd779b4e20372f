//! `busbw bench`, also under the names of nccl-tests' programs.

use crate::cli::PrometheusFile;
use crate::output;
use busbw_bench::job::{self, Call};
use busbw_bench::{Error, Flags, flags};
use busbw_ingest::{ReadOptions, Source};
use busbw_launch::command::this_program;
use busbw_model::Collective;
use busbw_report::prometheus;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

pub fn run(collective: Collective, flags: &Flags) -> Result<ExitCode, String> {
    output::open()?;
    let program = this_program().map_err(|e| e.to_string())?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let call = Call { collective, flags: flags.clone(), program, arguments };
    let mut out = Kept { out: io::stdout(), text: flags.prometheus_file.as_ref().map(|_| Vec::new()) };
    let ended = job::run(&call, &|name| std::env::var(name).ok(), &mut out);
    write_metrics(flags, out.text)?;
    let status = match ended {
        Ok(status) => u8::try_from(status).unwrap_or(1),
        Err(Error::Launch(error)) => return Err(output::why(error)),
        Err(error) if error.is_unread() => 0,
        Err(error) if error.is_told_by_rank_0() => error.status(),
        Err(error) if error.status() == 2 => return Err(error.to_string()),
        Err(error) => {
            output::say(&error);
            error.status()
        }
    };
    Ok(ExitCode::from(status))
}

/// Standard output, of which what is needed for metrics is kept.
struct Kept {
    out: io::Stdout,
    text: Option<Vec<u8>>,
}

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        if let Some(text) = &mut self.text {
            text.extend_from_slice(&bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The table that was printed, as metrics. A process that has printed none, as every rank but 0, leaves the file alone.
fn write_metrics(flags: &Flags, text: Option<Vec<u8>>) -> Result<(), String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
    let source = Source::Bytes("the table".to_owned(), text);
    let Ok(read) = busbw_ingest::read(&[source], &ReadOptions::default()) else { return Ok(()) };
    if read.tables.is_empty() {
        return Ok(());
    }
    let file = PrometheusFile::at(flags.prometheus_file.as_deref());
    output::metrics(&file, "bench", |metrics| prometheus::tables("bench", &read.tables, metrics))
}

/// Runs as the program of nccl-tests that this process is called by the name of, if it is one.
pub fn run_as_program() -> Option<Result<ExitCode, String>> {
    let called = std::env::args_os().next()?.into_string().ok()?;
    let collective = flags::program(&called)?;
    let name: &'static str = Box::leak(called.rsplit('/').next()?.to_owned().into_boxed_str());
    Some(match Flags::parse(name, std::env::args_os()) {
        Ok(flags) => run(collective, &flags),
        Err(error) => output::refuse(&error),
    })
}

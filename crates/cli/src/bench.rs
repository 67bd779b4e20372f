//! `busbw bench`, also under the names of nccl-tests' programs.

use busbw_bench::job::{self, Call};
use busbw_bench::{Flags, flags};
use busbw_model::Collective;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

/// Runs the subcommand.
pub fn run(collective: Collective, flags: &Flags) -> Result<ExitCode, String> {
    let program = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let call = Call { collective, flags: flags.clone(), program, arguments };
    let status = match job::run(&call, &|name| std::env::var(name).ok(), &mut io::stdout()) {
        Ok(status) => u8::try_from(status).unwrap_or(1),
        Err(error) if error.status() == 2 => return Err(error.to_string()),
        Err(error) => {
            eprintln!("busbw: {error}");
            error.status()
        }
    };
    Ok(ExitCode::from(status))
}

/// Runs as the program of nccl-tests that this process is called by the name of, if it is one.
pub fn run_as_program() -> Option<Result<ExitCode, String>> {
    let name = std::env::args().next()?;
    let collective = flags::program(&name)?;
    let name: &'static str = Box::leak(name.rsplit('/').next()?.to_owned().into_boxed_str());
    Some(match Flags::parse(name, std::env::args_os()) {
        Ok(flags) => run(collective, &flags),
        Err(error) => error.exit(),
    })
}

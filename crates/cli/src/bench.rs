//! `busbw bench`, also under the names of nccl-tests' programs.

use crate::output::{self, Refusal};
use busbw_bench::job::{self, Call};
use busbw_bench::{Error, Flags, flags};
use busbw_launch::command::this_program;
use busbw_model::Collective;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

pub fn run(collective: Collective, flags: &Flags) -> Result<ExitCode, Refusal> {
    output::open()?;
    let program = this_program().map_err(|e| e.to_string())?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let call = Call { collective, flags: flags.clone(), program, arguments };
    let status = match job::run(&call, &|name| std::env::var(name).ok(), &mut io::stdout()) {
        Ok(status) => u8::try_from(status).unwrap_or(1),
        Err(Error::Launch(error)) => return Err(error.into()),
        Err(error) if error.is_unread() => 0,
        Err(error) if error.is_told_by_rank_0() => error.status(),
        Err(error) if error.status() == 2 => return Err(error.to_string().into()),
        Err(error) => {
            output::say(&error);
            error.status()
        }
    };
    Ok(ExitCode::from(status))
}

/// Runs as the program of nccl-tests that this process is called by the name of, if it is one.
pub fn run_as_program() -> Option<Result<ExitCode, Refusal>> {
    let called = std::env::args_os().next()?.into_string().ok()?;
    let collective = flags::program(&called)?;
    let name: &'static str = Box::leak(called.rsplit('/').next()?.to_owned().into_boxed_str());
    Some(match Flags::parse(name, std::env::args_os()) {
        Ok(flags) => run(collective, &flags),
        Err(error) => output::refuse(&error),
    })
}

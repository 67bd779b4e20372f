//! The `busbw` command: parses flags and calls one function per subcommand.

mod cli;
mod explain;
mod generate;

use clap::Parser;
use mimalloc::MiMalloc;
use std::io::{self, Write};
use std::process::ExitCode;

/// Reading a log makes millions of small allocations in several threads, which the system's allocator serves at half the speed.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = cli::Cli::parse();
    let result = match &arguments.command {
        cli::Command::Explain(flags) => explain::run(flags),
        cli::Command::Completions { shell } => generate::completions(*shell),
        cli::Command::Man { directory } => generate::man(directory.as_deref()),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            // One line, and nothing to be done if even that cannot be written.
            let _ = writeln!(io::stderr(), "busbw: {message}");
            ExitCode::from(2)
        }
    }
}

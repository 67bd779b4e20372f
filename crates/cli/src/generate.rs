//! Shell completions and man pages, made from the flags.

use crate::command::Cli;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<ExitCode, String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "busbw", &mut script);
    print(&script)
}

/// Prints busbw's man page, or writes a page per subcommand.
pub fn man(directory: Option<&Path>) -> Result<ExitCode, String> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(|e| e.to_string())?;
        return print(&page);
    };
    let failed = |e: io::Error| format!("{}: {e}; choose a directory that can be written", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn print(bytes: &[u8]) -> Result<ExitCode, String> {
    match io::stdout().lock().write_all(bytes) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

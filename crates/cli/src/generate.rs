//! Shell completions and man pages, made from the flags.

use crate::command::Cli;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<ExitCode, String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "busbw", &mut script);
    output::write(None, |out| out.write_all(&script)).map(|()| ExitCode::SUCCESS)
}

/// Prints busbw's man page, or writes a page per subcommand.
pub fn man(directory: Option<&Path>) -> Result<ExitCode, String> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(|e| e.to_string())?;
        return output::write(None, |out| out.write_all(&page)).map(|()| ExitCode::SUCCESS);
    };
    let failed = |e: io::Error| format!("{}: {e}; choose a directory that can be written", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

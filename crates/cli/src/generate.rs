//! Shell completions and man pages, made from the flags.

use crate::command::Cli;
use crate::output;
use clap::{Arg, Command, CommandFactory};
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
        clap_mangen::Man::new(for_man(Cli::command(), "")).render(&mut page).map_err(|e| e.to_string())?;
        return output::write(None, |out| out.write_all(&page)).map(|()| ExitCode::SUCCESS);
    };
    let failed = |e: io::Error| format!("{}: {e}; choose a directory that can be written", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(for_man(Cli::command(), ""), directory).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// With a synopsis that shows the values of flags, which clap_mangen's own leaves out, and every list of values.
fn for_man(command: Command, above: &str) -> Command {
    let name = format!("{above}{}", command.get_name());
    let usage = command.clone().render_usage().to_string();
    let arguments =
        usage.split_once("[OPTIONS]").or_else(|| usage.split_once(command.get_name())).unwrap_or_default().1;
    let flags: Vec<String> = command.get_arguments().filter_map(shown).collect();
    let usage = format!("{name} {}{arguments}", flags.join(" "));
    let command = command.override_usage(usage).mut_args(|flag| flag.hide_possible_values(false));
    command.mut_subcommands(|below| for_man(below, &format!("{name} ")))
}

/// More values than these have their place among the options.
const FEW: usize = 6;

/// A flag with what it takes: `[--format text|json]`, `[--json[=FILE]]`.
fn shown(flag: &Arg) -> Option<String> {
    let long = flag.get_long().filter(|_| !flag.is_hide_set())?;
    if !flag.get_action().takes_values() {
        return Some(format!("[--{long}]"));
    }
    let values: Vec<String> = flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let names = || flag.get_value_names().map_or(String::new(), |names| names.join(" "));
    let value = if (1..=FEW).contains(&values.len()) { values.join("|") } else { names() };
    let may_be_left_out = flag.get_num_args().is_some_and(|count| count.min_values() == 0);
    Some(if may_be_left_out { format!("[--{long}[={value}]]") } else { format!("[--{long} {value}]") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_completions_show_values() {
        let folder = tempfile::tempdir().unwrap();
        man(Some(folder.path())).unwrap();
        for (page, shows) in [
            ("explain", "[\\-\\-format text|json|html] [\\-\\-json[=FILE]]"),
            ("explain", "[\\-\\-code CODE]"),
            ("explain", "\\(bu 2\ngdr.disabled"),
            ("predict", "[COLLECTIVE] <CLUSTER>"),
            ("link", "[\\-\\-timeout TIME]"),
            ("plugin-check", "\\fBbusbw plugin check\\fR ["),
        ] {
            let text = std::fs::read_to_string(folder.path().join(format!("busbw-{page}.1"))).unwrap();
            assert!(text.contains(shows), "{page}: {shows} is not in\n{}", &text[..text.len().min(4000)]);
        }
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Cli::command(), "busbw", &mut script);
        let script = String::from_utf8(script).unwrap();
        for values in
            ["gdr.disabled pcie.acs", "all_reduce all_gather", "sockets ib algo", "rail-optimised adaptive-routing"]
        {
            assert!(
                script.contains(&format!("compgen -W \"{values}")) || script.contains(&format!(" {values}")),
                "{values}"
            );
        }
    }
}

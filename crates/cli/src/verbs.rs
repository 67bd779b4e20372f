//! What `busbw` alone and `busbw --help` open with: the subcommands by what they are for, the five verbs first.

use crate::command::Cli;
use clap::{ArgMatches, CommandFactory};
use std::fmt::Write;

const GROUPS: [(&str, &[&str]); 5] = [
    ("From bare nodes to tuned training", &["check", "bench", "explain", "tune", "accelerate"]),
    ("Check, bench and explain at once", &["doctor"]),
    ("How fast should it be", &["predict", "simulate"]),
    ("A closer look", &["compare", "link", "monitor", "plugin"]),
    ("Around the command", &["rules", "completions", "man", "help"]),
];

/// Parses the command line; ends the process for `--help` and bad usage.
pub fn matches() -> Result<ArgMatches, clap::Error> {
    command().try_get_matches()
}

fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}{{after-help}}",
        list(&command)
    );
    command.help_template(template)
}

fn list(command: &clap::Command) -> String {
    let heading = command.get_styles().get_header();
    let name = command.get_styles().get_literal();
    let mut list = String::new();
    for (title, verbs) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(list, "\n{heading}{title}:{heading:#}");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(clap::Command::get_about).cloned().unwrap_or_default();
            let _ = writeln!(list, "  {name}{verb:<11}{name:#}  {about}");
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_is_in_one_group() {
        let command = command();
        let mut there: Vec<&str> =
            command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        there.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, there);
    }

    #[test]
    fn what_a_subcommand_is_for_fits_a_line() {
        for subcommand in command().get_subcommands() {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            assert!((1..=86).contains(&about.chars().count()), "{}: {about}", subcommand.get_name());
        }
    }
}

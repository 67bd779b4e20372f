//! What `busbw` alone and `busbw --help` open with: the subcommands by what they are for, the five verbs first.

use crate::command::Cli;
use busbw_model::Collective;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, CommandFactory};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

const GROUPS: [(&str, &[&str]); 5] = [
    ("From bare nodes to tuned training", &["check", "bench", "explain", "tune", "accelerate"]),
    ("Check, bench and explain at once", &["doctor"]),
    ("How fast should it be", &["predict", "simulate"]),
    ("A closer look", &["advise", "compare", "link", "monitor", "plugin", "profile", "watch"]),
    ("Around the command", &["rules", "completions", "man", "help"]),
];

/// Parses the command line; ends the process for `--help` and bad usage.
pub fn matches() -> Result<ArgMatches, clap::Error> {
    let mut typed: Vec<OsString> = std::env::args_os().collect();
    let words: Vec<String> = typed.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(at) = json_of_bench(&words) {
        typed[at] = "--json=-".into();
    }
    if let Some(file) = json_file(&words) {
        let why = format!("{file}: there is no such file to read; to write JSON to it: --json={file}\n");
        return Err(clap::Error::raw(ErrorKind::ValueValidation, why));
    }
    command().try_get_matches_from(typed).map_err(|error| with_tip(error, &words))
}

/// Where bench, which takes a file behind `--json`, has a collective there: it is no file.
fn json_of_bench(words: &[String]) -> Option<usize> {
    let is_collective = |pair: &[String]| pair[0] == "--json" && Collective::from_name(&pair[1]).is_some();
    words.windows(2).position(is_collective).filter(|_| is_of_bench(words))
}

fn is_of_bench(words: &[String]) -> bool {
    words.get(1).is_some_and(|verb| verb == "bench")
}

/// What stands behind `--json` as if it were its file, and is no input, either.
fn json_file(words: &[String]) -> Option<&String> {
    let own = words.split(|word| word == "--").next().filter(|_| !is_of_bench(words))?;
    let files = own.windows(2).filter(|pair| pair[0] == "--json" && pair[1].ends_with(".json")).map(|pair| &pair[1]);
    files.into_iter().find(|file| !file.starts_with('-') && !Path::new(file).exists())
}

/// With what to write instead, where clap does not know it.
fn with_tip(mut error: clap::Error, words: &[String]) -> clap::Error {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let file = words.get(1).filter(|first| Path::new(first).exists());
            file.map(|file| format!("to diagnose it: busbw explain {file}"))
        }
        ErrorKind::ValueValidation if is_negative(&named(ContextKind::InvalidValue)) => Some(NOT_BELOW_0.into()),
        // clap's own tip, `-- -1`, makes an argument of it.
        ErrorKind::UnknownArgument if is_negative(&named(ContextKind::InvalidArg)) => Some(NOT_BELOW_0.into()),
        _ => None,
    };
    if let Some(tip) = tip.filter(|_| !named(ContextKind::InvalidArg).starts_with("--root")) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

const NOT_BELOW_0: &str = "no number here may be below 0";

fn is_negative(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Lets flags have numbers below 0 as their values, so that they say what they take instead.
fn numbers_are_values(command: clap::Command) -> clap::Command {
    let takes_one = |arg: &Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_one(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(numbers_are_values)
}

/// Takes -q, -v, --color and --width where they change nothing, so that a script need not know where they do.
fn lenient(command: clap::Command) -> clap::Command {
    if command.has_subcommands() {
        return command.mut_subcommands(lenient);
    }
    let switch = |long, short| Arg::new(long).long(long).short(short).action(ArgAction::SetTrue);
    let value = |long| Arg::new(long).long(long).num_args(1);
    let all = [switch("quiet", 'q'), switch("verbose", 'v'), value("color"), value("width")];
    all.into_iter().fold(command, |command, arg| {
        let short = |other: &Arg| arg.get_short().is_some() && other.get_short() == arg.get_short();
        let taken = command.get_arguments().any(|other| other.get_long() == arg.get_long() || short(other));
        if taken { command } else { command.arg(arg.hide(true)) }
    })
}

fn command() -> clap::Command {
    let mut command = numbers_are_values(lenient(Cli::command()));
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
    fn every_subcommand_takes_what_says_how_to_print() {
        let help_of = |path: &[&str]| {
            let line = ["busbw"]
                .iter()
                .chain(path)
                .chain(&["-q", "-v", "--color", "never", "--width", "80", "--help"])
                .copied();
            command().try_get_matches_from(line.collect::<Vec<&str>>()).expect_err("help").kind()
        };
        for subcommand in Cli::command().get_subcommands() {
            let name = subcommand.get_name();
            let below: Vec<&str> = subcommand.get_subcommands().map(clap::Command::get_name).collect();
            for path in below.iter().map(|below| vec![name, below]).chain(below.is_empty().then(|| vec![name])) {
                assert_eq!(help_of(&path), ErrorKind::DisplayHelp, "{path:?}");
            }
        }
    }

    #[test]
    fn a_word_behind_json_is_its_file_only_if_it_is_no_input() {
        let there = env!("CARGO_MANIFEST_DIR").to_owned() + "/no.json";
        for (line, file) in [
            ("busbw explain --json NO run.log", true),
            ("busbw bench --json NO", false),
            ("explain --json Cargo.toml", false),
            ("explain --json=NO run.log", false),
            ("watch --record x -- train --json NO", false),
        ] {
            let words: Vec<String> = line.split(' ').map(|word| word.replace("NO", &there)).collect();
            assert_eq!(json_file(&words).is_some(), file, "{line}");
        }
    }

    #[test]
    fn what_a_subcommand_is_for_fits_a_line() {
        for subcommand in command().get_subcommands() {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            assert!((1..=86).contains(&about.chars().count()), "{}: {about}", subcommand.get_name());
        }
    }
}

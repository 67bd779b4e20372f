//! One grammar: a flag is spelt, means and is told alike in all subcommands.

use crate::command::Cli;
use clap::{Arg, Command, CommandFactory};
use std::collections::BTreeMap;

/// Flags that do the same to another thing in every subcommand, which their help names.
const OF_A_SUBJECT: [&str; 5] = ["timeout", "repeat", "threads", "devices", "np"];
/// Flags of nccl-tests, which mean there what they mean in no other subcommand.
const OF_NCCL_TESTS: [&str; 2] = ["root", "version"];

/// Which of the flags that many subcommands have each subcommand has: where they have an effect.
const COMMON: [(&str, &str); 19] = [
    ("check", "format json output color width verbose"),
    ("explain", "format json output color width verbose quiet"),
    ("compare", "format json output color width verbose"),
    ("tune", "format json output color width verbose quiet"),
    ("accelerate", "format json output color width"),
    ("advise", "format json output color width verbose"),
    ("predict", "format json output color width"),
    ("profile", "format json output color width"),
    ("simulate", "format json output color width quiet"),
    // Its text is nccl-tests', whose -o is --op and whose columns are its own.
    ("bench", "format json output"),
    ("link", "format json output color width verbose quiet"),
    ("monitor", "format json output quiet"),
    ("watch", "format json output quiet"),
    ("plugin check", "format json output color width quiet"),
    ("rules test", "format json output"),
    ("rules list", "format json output"),
    ("rules guide", ""),
    ("rules check", ""),
    ("doctor", "format json output color width verbose quiet"),
];

/// Every visible subcommand that has none itself, by what is typed; without what is around the command.
fn subcommands() -> Vec<(String, Command)> {
    fn below(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        let around = ["help", "completions", "man"];
        let own = command.get_subcommands().filter(|c| !c.is_hide_set() && !around.contains(&c.get_name()));
        let own: Vec<&Command> = own.collect();
        if own.is_empty() {
            found.push((path.trim().to_owned(), command.clone()));
        }
        own.into_iter().for_each(|child| below(child, &format!("{path} {}", child.get_name()), found));
    }
    let mut command = Cli::command();
    command.build();
    let mut found = Vec::new();
    below(&command, "", &mut found);
    found
}

fn flags(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let visible = command.get_arguments().filter(|flag| !flag.is_hide_set());
    visible.filter_map(|flag| Some((flag.get_long()?, flag))).filter(|(long, _)| *long != "help")
}

/// What it takes, and what its help says but for the default.
fn told(long: &str, flag: &Arg) -> String {
    let takes = flag.get_action().takes_values().then(|| flag.get_value_names()).flatten();
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.split(" [default").next().and_then(|help| help.split(". Default").next()).unwrap_or_default();
    format!("--{long} {takes:?}{}", if OF_A_SUBJECT.contains(&long) { "" } else { help })
}

#[test]
fn a_flag_takes_and_says_the_same_everywhere() {
    let mut first = BTreeMap::new();
    let mut differ = Vec::new();
    for (name, command) in subcommands() {
        for (long, flag) in flags(&command).filter(|(long, _)| name != "bench" || !OF_NCCL_TESTS.contains(long)) {
            let here = told(long, flag);
            let (there, elsewhere) = first.entry(long.to_owned()).or_insert_with(|| (name.clone(), here.clone()));
            if here != *elsewhere {
                differ.push(format!("{there}: {elsewhere}\n{name}: {here}\n"));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn a_letter_is_one_flag() {
    let all = subcommands();
    let bench = all.iter().find(|(name, _)| name == "bench").map(|(_, command)| flags(command).map(|(long, _)| long));
    let of_bench: Vec<&str> = bench.into_iter().flatten().collect();
    let mut letters = BTreeMap::new();
    for (name, command) in &all {
        let own = flags(command).filter(|(long, _)| !of_bench.contains(long));
        for (long, letter) in own.filter_map(|(long, flag)| Some((long, flag.get_short()?))) {
            let (there, meant) = letters.entry(letter).or_insert_with(|| (name.clone(), long.to_owned()));
            assert_eq!(long, meant, "-{letter} of {name}, and of {there}");
        }
    }
}

#[test]
fn answers_go_out_alike() {
    let has = |command: &Command| {
        let common = ["format", "json", "output", "color", "width", "verbose", "quiet"];
        let has = |name: &&str| flags(command).any(|(long, _)| long == *name);
        common.into_iter().filter(has).collect::<Vec<&str>>().join(" ")
    };
    let there: BTreeMap<String, String> = subcommands().into_iter().map(|(name, c)| (name, has(&c))).collect();
    assert_eq!(there, COMMON.iter().map(|(name, flags)| (name.to_string(), flags.to_string())).collect());
    for (name, command) in subcommands() {
        assert!(flags(&command).any(|(long, _)| long == "version"), "busbw {name} --version");
    }
}

#[test]
fn times_are_written_alike() {
    let mut found = 0;
    for (name, command) in subcommands() {
        for (long, flag) in flags(&command) {
            let takes = flag.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
            assert_ne!(takes, Some("SECONDS"), "busbw {name} --{long}");
            for time in ["5", "5s", "500ms", "2min", "0.1"].into_iter().filter(|_| takes == Some("TIME")) {
                let alone = Arg::new("flag").long("flag").value_parser(flag.get_value_parser().clone());
                let parsed = Command::new("busbw").arg(alone).try_get_matches_from(["busbw", "--flag", time]);
                assert!(parsed.is_ok(), "busbw {name} --{long} {time}: {parsed:?}");
                found += 1;
            }
        }
    }
    assert!(found > 0);
}

#[test]
fn hosts_and_collectives_are_flags_and_arguments() {
    for (flag, argument) in [("hosts", "HOST"), ("collective", "[COLLECTIVE]")] {
        let mut found = 0;
        for (name, command) in subcommands() {
            let usage = command.clone().render_usage().to_string().replace(['<', '>'], "");
            let is_flag = flags(&command).any(|(long, _)| long == flag);
            assert_eq!(is_flag, usage.contains(argument), "busbw {name}: --{flag}, and {usage}");
            found += usize::from(is_flag);
        }
        assert!(found > 2, "{flag}");
    }
}

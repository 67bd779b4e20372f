//! The subcommands. The man pages and shell completions are made from these.

use crate::cli::{Bench, Compare, Doctor, Explain, Predict, Simulate};
use crate::monitor::Monitor;
use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use std::path::PathBuf;

/// How fast should collective communication be, how fast is it, why is it slow, and what fixes it.
///
/// busbw reads the output of NCCL and related tools. It says what is wrong with a run and how to fix it.
#[derive(Parser)]
#[command(name = "busbw", version, propagate_version = true, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Start with this machine, or with any output of a run:\n  busbw doctor\n  busbw explain run.log\n\nbusbw COMMAND --help has examples."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Check(crate::check::Check),
    Explain(Explain),
    Advise(crate::advise::Advise),
    Compare(Compare),
    Tune(Box<crate::tune::Tune>),
    Accelerate(crate::accelerate::Accelerate),
    Predict(Predict),
    Simulate(Simulate),
    Bench(Box<Bench>),
    Link(Box<crate::link::Link>),
    Monitor(Monitor),
    Watch(crate::watch::Watch),
    Profile(crate::profile::Profile),
    Plugin(crate::plugin::Plugin),
    /// What `plugin check` was called before
    #[command(hide = true)]
    Net(Box<crate::plugin::Check>),
    Rules(crate::rules::Rules),
    Doctor(Doctor),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page of busbw, or write those of all subcommands into a directory
    #[command(after_help = "Examples:\n  busbw man | man -l -\n  busbw man --directory /usr/local/share/man/man1")]
    Man {
        /// Write a page per subcommand into this directory
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
}

const COMPLETIONS_EXAMPLES: &str = "Examples:
  busbw completions bash > ~/.local/share/bash-completion/completions/busbw
  busbw completions zsh > \"${fpath[1]}/_busbw\"
  busbw completions fish > ~/.config/fish/completions/busbw.fish";

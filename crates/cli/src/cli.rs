//! Flags and help of every subcommand. The man pages and shell completions are made from these.

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// How fast should collective communication be, how fast is it, why not, and what fixes it.
///
/// busbw reads what NCCL and the tools around it print, and says what is wrong with a run and what to do.
#[derive(Parser)]
#[command(name = "busbw", version, propagate_version = true, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Start with the output of a run, whatever it holds:\n  busbw explain run.log")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Explain(Explain),
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

/// Say what is wrong with a run, how it shows, and what fixes it
///
/// Reads any mix of nccl-tests output (text or -J JSON), NCCL and RCCL logs (one file, or one per rank; whole or excerpts;
/// with what mpirun, srun, torchrun or Kubernetes put in front), `nvidia-smi topo -m`, NCCL topology XML, perftest output,
/// and the tables of RDMA checks and monitors. What a file is, is told from its content.
#[derive(Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub struct Explain {
    /// Files to read; - is standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub format: Format,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,

    /// Write the answer to a file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// Colour the text: on a terminal unless NO_COLOR is set, always, or never
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,

    /// Width of the text in columns [default: that of the terminal, else 100]
    #[arg(long, value_name = "COLUMNS")]
    pub width: Option<usize>,

    /// Threads that read [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

const EXPLAIN_EXAMPLES: &str = "Examples:
  busbw explain run.log                      the output of one run: table, NCCL log, or both
  busbw explain rank*.log topo.txt           one log per rank, and `nvidia-smi topo -m`
  busbw explain with-rdma.log without.log    two runs on the same machines are compared
  mpirun … all_reduce_perf 2>&1 | tee run.log | busbw explain -
  busbw explain --json run.log | jq '.findings[0]'
  busbw explain --format html -o report.html run.log

Best input: the whole output of all ranks, run with NCCL_DEBUG=INFO and sizes up to 8G
(-b 8 -e 8G -f 2).

Exit status:
  0  healthy, or nothing that calls for action
  1  findings of severity error or warning
  2  nothing readable, or bad usage";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, at a terminal
    Text,
    /// For programs; schema busbw.explain/1
    Json,
    /// A page with pictures, for people elsewhere
    Html,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

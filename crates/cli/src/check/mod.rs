//! `busbw check`: what every node is, judged before anything runs on it.

pub mod hosts;
mod witness;

use crate::cli::{PrometheusFile, TableOutput};
use crate::explain;
use crate::output::{self, Refusal};
use busbw_model::node::{FACTS_SCHEMA, FactsFile, Hello};
use busbw_model::{Checked, NodeFacts};
use busbw_probe::Root;
use busbw_report::{json, junit, prometheus, text};
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Check this node, or all nodes of a job, before running anything
///
/// Checks GPUs and NVLink, CUDA and NCCL, RDMA devices and ports, PCIe links and access control (ACS), network
/// interfaces, limits, MPI and ssh, environment variables, and clocks. Each check prints one line, with a fix where it
/// fails. Under mpirun, srun and torchrun one rank per host reports its host, and a host that differs from the others is
/// named.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// Files written by --save, to check instead of this node
    #[arg(value_name = "FACTS", value_hint = ValueHint::FilePath, conflicts_with_all = ["root", "hosts"])]
    files: Vec<PathBuf>,

    /// Save the facts to a file, to check later or to give to `busbw explain`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<PathBuf>,

    /// Read a captured copy of a node's /sys and /proc instead of this machine's
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "hosts")]
    root: Option<PathBuf>,

    /// Check these hosts (a,b,c), by mpirun, or by srun inside an allocation
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,

    /// Seconds to wait for a host's answer
    #[arg(short = 'T', long, value_name = "SECONDS", default_value = "60")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    #[command(flatten)]
    output: TableOutput,

    /// Also write the answer as JUnit XML, for Jenkins, GitLab and what else reads test results
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,

    #[command(flatten)]
    prometheus: PrometheusFile,

    /// Print the facts without checking them; --hosts runs this on the other hosts
    #[arg(long, hide = true)]
    facts_only: bool,
}

impl Check {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

const EXAMPLES: &str = "Examples:
  busbw check                                this node
  mpirun -np 4 -N 1 busbw check              every node of a job, and how they differ
  srun -N 4 --ntasks-per-node 1 busbw check
  busbw check --hosts a,b,c                  the same, started by busbw; hosts that do not answer are named
  busbw check --save facts.json              save the facts
  busbw check a.json b.json                  check saved facts of several nodes, anywhere
  busbw explain run.log facts.json           diagnose a run with the facts of its node
  busbw check --root sosreport/              a captured copy of /sys and /proc
  busbw check --json | jq '.items[] | select(.result == \"fail\")'

Checks that need root (ACS of PCIe bridges, often the kernel's log) are skipped without it, and marked as skipped.

Exit status:
  0  nothing failed (there may be warnings)
  1  at least one check failed
  2  nothing could be read, or bad usage
  77 not applicable: no mpirun for --hosts";

/// What was found: the nodes, and how hosts answered.
pub struct Found {
    nodes: Vec<NodeFacts>,
    hello: Hello,
}

impl Found {
    /// Nodes that were not asked over a network.
    fn at_hand(nodes: Vec<NodeFacts>) -> Self {
        Found { nodes, hello: Hello::default() }
    }
}

/// Runs the subcommand. The exit status is 1 when anything failed.
pub fn run(flags: &Check) -> Result<ExitCode, Refusal> {
    let Some(found) = gather(flags)? else { return Ok(ExitCode::SUCCESS) };
    if flags.facts_only {
        output::write(None, |out| json::write_facts(&FactsFile::new(found.nodes), out))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &flags.save {
        output::write(Some(path), |out| json::write_facts(&FactsFile::new(found.nodes.clone()), out))?;
    }
    let checked = busbw_diagnose::check::check(&found.nodes, &found.hello);
    print(flags, &checked)?;
    output::metrics(&flags.prometheus, "check", |metrics| prometheus::check(&checked, metrics))?;
    if let Some(path) = &flags.junit {
        output::write(Some(path), |out| junit::write_check(&checked, out))?;
    }
    Ok(match (found.nodes.is_empty(), checked.failed()) {
        // No host has answered: that is all the table says.
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Checks this node, shows the table where a style is given, and gives the facts as a file would hold them, and whether
/// nothing failed.
pub fn this_node(shown: Option<&text::Style>) -> Result<(Vec<u8>, bool), String> {
    let nodes = vec![busbw_probe::node(&Root::live())];
    let checked = busbw_diagnose::check::check(&nodes, &Hello::default());
    if let Some(style) = shown {
        output::write(None, |out| out.write_all(text::check(&checked, style).as_bytes()))?;
    }
    let mut facts = Vec::new();
    json::write_facts(&FactsFile::new(nodes), &mut facts).map_err(|e| format!("the facts of this node: {e}"))?;
    Ok((facts, !checked.failed()))
}

/// The facts that the flags ask for; none on a rank that leaves the answer to rank 0.
fn gather(flags: &Check) -> Result<Option<Found>, Refusal> {
    if !flags.files.is_empty() {
        return Ok(Some(Found::at_hand(read_all(&flags.files)?)));
    }
    if let Some(directory) = &flags.root {
        let root = Root::captured(directory).map_err(|e| {
            format!("--root {}: {e}; give a directory that holds sys and proc of a node", directory.display())
        })?;
        return Ok(Some(Found::at_hand(vec![busbw_probe::node(&root)])));
    }
    if let Some(list) = &flags.hosts {
        return hosts::ask(list, flags.patience()).map(Some);
    }
    Ok(witness::gather(flags.patience())?)
}

fn read_all(files: &[PathBuf]) -> Result<Vec<NodeFacts>, String> {
    let nodes: Result<Vec<_>, _> = files.iter().map(|file| read(file)).collect();
    Ok(nodes?.into_iter().flatten().collect())
}

/// The nodes of a file that `--save` wrote.
fn read(path: &Path) -> Result<Vec<NodeFacts>, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}; check the path", path.display()))?;
    parse(&text).map_err(|problem| format!("{}{problem}; give what `busbw check --save` wrote", path.display()))
}

/// What is wrong is to be read behind a path: `:3: …`.
fn parse(text: &[u8]) -> Result<Vec<NodeFacts>, String> {
    let facts: FactsFile = serde_json::from_slice(text).map_err(|e| {
        let words = e.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        format!(":{}: no facts of nodes: {words}", e.line())
    })?;
    match facts.schema.as_str() {
        FACTS_SCHEMA if facts.nodes.is_empty() => Err(": no nodes in it".into()),
        FACTS_SCHEMA => Ok(facts.nodes),
        other => Err(format!(": the schema is {other:?} where {FACTS_SCHEMA:?} was expected")),
    }
}

fn print(flags: &Check, checked: &Checked) -> Result<(), String> {
    let style = explain::looked(&flags.output.look, flags.output.file());
    output::write(flags.output.file(), |out| {
        if flags.output.is_json() {
            json::write_check(checked, out)
        } else {
            out.write_all(text::check(checked, &style).as_bytes())
        }
    })
}

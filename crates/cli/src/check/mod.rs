//! `busbw check`: judges every node before a job runs on it.

pub mod hosts;
mod witness;

use crate::flags::{CapturedRoot, HostList, JunitFile, Output, PrometheusFile, RulesFile, Screen, TableFormat};
use crate::output::{self, Refusal};
use crate::{rules, values};
use busbw_diagnose::Book;
use busbw_diagnose::check::check_by;
use busbw_model::node::{FACTS_SCHEMA, FactsFile, Hello};
use busbw_model::{Checked, NodeFacts};
use busbw_probe::Root;
use busbw_report::{json, junit, prometheus, text};
use clap::{Args, ValueHint};
use std::io::Write;
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
    /// Hosts, or files written by --save, to check instead of this node
    #[arg(value_name = "HOST|FACTS", value_hint = ValueHint::FilePath, conflicts_with_all = ["root", "hosts"])]
    others: Vec<String>,

    /// Save the facts to a file, to check later or to give to `busbw explain`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<PathBuf>,

    #[command(flatten)]
    root: CapturedRoot,

    #[command(flatten)]
    hosts: HostList,

    /// Time after which a host that does not respond is reported as lost
    #[arg(short = 'T', long, value_name = "TIME", default_value = "60", value_parser = values::duration)]
    timeout: Duration,

    #[command(flatten)]
    rules: RulesFile,

    #[command(flatten)]
    output: Output<TableFormat>,

    #[command(flatten)]
    screen: Screen,

    #[command(flatten)]
    junit: JunitFile,

    #[command(flatten)]
    prometheus: PrometheusFile,

    /// Print the facts without checking them; --hosts runs this on the other hosts
    #[arg(long, hide = true)]
    facts_only: bool,
}

impl Check {
    /// The files of facts, and else the hosts: what has a folder or `.json` in its name, or is there, is a file.
    fn files_or_hosts(&self) -> Result<(Vec<PathBuf>, Option<String>), String> {
        let is_file = |word: &&String| word.contains('/') || word.ends_with(".json") || Path::new(word).exists();
        let (files, hosts): (Vec<&String>, Vec<&String>) = self.others.iter().partition(is_file);
        match (&files[..], &hosts[..]) {
            ([file, ..], [host, ..]) => {
                Err(format!("{file} is a file and {host} is none; check hosts or saved facts, one of them at a time"))
            }
            ([_, ..], []) => Ok((self.others.iter().map(PathBuf::from).collect(), None)),
            ([], _) => Ok((Vec::new(), self.hosts.or(&self.others))),
        }
    }
}

const EXAMPLES: &str = "Examples:
  busbw check                                this node
  mpirun -np 4 -N 1 busbw check              every node of a job, and how they differ
  srun -N 4 --ntasks-per-node 1 busbw check
  busbw check a b c                          the same, started by busbw; hosts that do not answer are named
  busbw check --save facts.json              save the facts
  busbw check a.json b.json                  check saved facts of several nodes, anywhere
  busbw explain run.log facts.json           diagnose a run with the facts of its node
  busbw check --rules my.toml                with known faults of your own
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
    let book = rules::book(flags.rules.files())?;
    let Some(found) = gather(flags)? else { return Ok(ExitCode::SUCCESS) };
    if flags.facts_only {
        output::write(None, |out| json::write_facts(&FactsFile::new(found.nodes, found.hello), out))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &flags.save {
        output::write(Some(path), |out| {
            json::write_facts(&FactsFile::new(found.nodes.clone(), found.hello.clone()), out)
        })?;
    }
    let checked = check_by(&found.nodes, &found.hello, &book);
    print(flags, &checked)?;
    output::metrics(&flags.prometheus, "check", |metrics| prometheus::check(&checked, metrics))?;
    if let Some(path) = flags.junit.file() {
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
pub fn this_node(shown: Option<&text::Style>, book: &Book) -> Result<(Vec<u8>, bool), String> {
    let nodes = vec![busbw_probe::node(&Root::live())];
    let checked = check_by(&nodes, &Hello::default(), book);
    if let Some(style) = shown {
        output::write(None, |out| out.write_all(text::check(&checked, style).as_bytes()))?;
    }
    let mut facts = Vec::new();
    json::write_facts(&FactsFile::new(nodes, Hello::default()), &mut facts)
        .map_err(|e| format!("the facts of this node: {e}"))?;
    Ok((facts, !checked.failed()))
}

/// The facts that the flags ask for; none on a rank that leaves the answer to rank 0.
fn gather(flags: &Check) -> Result<Option<Found>, Refusal> {
    let (files, hosts) = flags.files_or_hosts()?;
    if !files.is_empty() {
        return Ok(Some(read_all(&files)?));
    }
    if let Some(root) = flags.root.open()? {
        return Ok(Some(Found::at_hand(vec![busbw_probe::node(&root)])));
    }
    if let Some(list) = &hosts {
        return hosts::ask(list, flags.timeout).map(Some);
    }
    Ok(witness::gather(flags.timeout)?)
}

fn read_all(files: &[PathBuf]) -> Result<Found, String> {
    let mut found = Found::at_hand(Vec::new());
    for path in files {
        let FactsFile { nodes, hello, .. } = read(path)?;
        found.nodes.extend(nodes);
        found.hello.asked += hello.asked;
        found.hello.silent.extend(hello.silent);
        found.hello.apart = found.hello.apart.or(hello.apart);
    }
    Ok(found)
}

/// A file that `--save` wrote.
fn read(path: &Path) -> Result<FactsFile, String> {
    let text = std::fs::read(path).map_err(|e| output::unread(path, &e))?;
    file(&text).map_err(|problem| format!("{}{problem}; give what `busbw check --save` wrote", path.display()))
}

/// Facts as they are kept. What is wrong is to be read behind a path: `:3: …`.
pub fn file(text: &[u8]) -> Result<FactsFile, String> {
    let facts: FactsFile = serde_json::from_slice(text).map_err(|e| {
        let words = e.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        format!(":{}: no facts of nodes: {words}", e.line())
    })?;
    match facts.schema.as_str() {
        FACTS_SCHEMA if facts.nodes.is_empty() && facts.hello.silent.is_empty() => Err(": no nodes in it".into()),
        FACTS_SCHEMA => Ok(facts),
        other => Err(format!(": the schema is {other:?} where {FACTS_SCHEMA:?} was expected")),
    }
}

fn print(flags: &Check, checked: &Checked) -> Result<(), String> {
    let style = flags.screen.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_check(checked, out);
    output::answer(&flags.output, json, |_, out| out.write_all(text::check(checked, &style).as_bytes()))
}

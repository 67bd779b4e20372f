//! `busbw doctor` on several hosts: the check of all, the links between them, an all-reduce over them, and one answer. A host that is
//! silent or lost is left out of what follows; the answer names it.

use super::parts::{Parts, Shown, Told};
use crate::check;
use crate::cli::Doctor;
use crate::output::{self, Refusal};
use busbw_diagnose::check::check_by;
use busbw_diagnose::{Book, UserFacts, diagnose_with};
use busbw_ingest::read_bytes;
use busbw_launch::relay::Part;
use busbw_model::node::{FactsFile, NodeFacts};
use busbw_model::{Run, counted};
use busbw_report::text;
use std::process::ExitCode;

/// What runs, in order.
const STEPS: [&str; 4] = ["check", "links", "all-reduce", "answer"];
/// Every host is measured with so many others: all pairs up to eight hosts. Three would do to tell a slow host from its partners
/// (docs/link.md); more leave an answer where several are slow.
const MOST_PARTNERS: usize = 7;
/// What ranks of each host there are where nobody says it: one, whose share of the network is the host's; two of a host that is alone.
const RANKS: [usize; 2] = [1, 2];

/// Runs it, step by step.
pub fn run(flags: &Doctor, book: &Book, mut parts: Parts) -> Result<ExitCode, Refusal> {
    let checked = Checked::of(flags, book, &mut parts)?;
    let hosts = checked.facts.nodes.len();
    let mut told: Vec<Told> = Vec::new();
    if hosts > 1 {
        told.push(links(&mut parts, hosts)?);
        let lost = lost(&told[0]);
        checked.leave_out(&mut parts, |host| lost.contains(&host.to_owned()))?;
    }
    if hosts > 0 {
        told.push(all_reduce(flags, &mut parts, &checked.facts.nodes)?);
    }
    parts.end()?;
    announce(3, "all that was told and measured");
    told.iter().filter(|told| told.output.is_empty()).for_each(|told| output::say(failed(told)));
    let run = read(&told, &checked)?;
    let diagnosis = diagnose_with(&run, &UserFacts { book: Some(book), ..UserFacts::default() });
    let status = match (hosts, checked.failed || told.iter().any(|told| told.output.is_empty())) {
        (0, _) => 2,
        (_, true) => 1,
        (_, false) if told.last().is_some_and(|bench| bench.status != 0) => 1,
        (_, false) => diagnosis.verdict.exit_status(),
    };
    super::answer(flags, run, &diagnosis)?;
    Ok(ExitCode::from(status))
}

/// Says which step begins, and what is left.
fn announce(step: usize, what: &str) {
    let left = STEPS[step + 1..].join(", ");
    let left = if left.is_empty() { left } else { format!("; left: {left}") };
    output::say(format_args!("step {} of {}, {}: {what}{left}", step + 1, STEPS.len(), STEPS[step]));
}

fn failed(told: &Told) -> String {
    format!("no answer of `{}` (exit status {}): {}", told.line, told.status, told.reason())
}

fn part(words: &[&str]) -> Part {
    Part { words: words.iter().map(ToString::to_string).collect(), per_host: 1, environment: Vec::new() }
}

/// What the hosts are.
struct Checked {
    line: String,
    json: String,
    facts: FactsFile,
    /// Names of those that answer, as they were asked for, beside what they call themselves.
    names: Vec<(String, String)>,
    failed: bool,
}

impl Checked {
    /// Asks all hosts, shows the table, and leaves out who is silent.
    fn of(flags: &Doctor, book: &Book, parts: &mut Parts) -> Result<Self, Refusal> {
        let asked = parts.hosts().map_or("the hosts of this job".into(), |hosts| counted(hosts.slots().len(), "host"));
        announce(0, &format!("{asked}, each has {:?} to answer", flags.timeout));
        let timeout = flags.timeout.as_secs_f64().to_string();
        let told = parts.run(part(&["check", "--facts-only", "--timeout", &timeout]), Shown::Nothing)?;
        if told.output.is_empty() {
            return Err(Refusal {
                message: told.reason().into(),
                status: u8::try_from(told.status).unwrap_or(2).max(2),
            });
        }
        let facts = check::file(told.output.as_bytes()).map_err(|problem| format!("what the hosts told{problem}"))?;
        let checked = check_by(&facts.nodes, &facts.hello, book);
        if flags.shows() {
            let style = flags.screen.style(None);
            output::write(None, |out| out.write_all(text::check(&checked, &style).as_bytes()))?;
        }
        let is_silent = |host: &str| facts.hello.silent.iter().any(|silent| silent.host == host);
        if !facts.nodes.is_empty() {
            parts.keep(|host| !is_silent(host))?;
        }
        let left = parts.hosts().map(|hosts| hosts.slots().iter().map(|slots| slots.host.clone()));
        let own = facts.nodes.iter().map(|node| node.host.clone());
        let names = left.into_iter().flatten().zip(own).collect();
        Ok(Checked { line: told.line, json: told.output, failed: checked.failed(), facts, names })
    }

    /// Leaves out hosts by what they call themselves, as long as others stay.
    fn leave_out(&self, parts: &mut Parts, lost: impl Fn(&str) -> bool) -> Result<(), Refusal> {
        let is_lost = |asked: &str| self.names.iter().any(|(name, own)| name == asked && lost(own));
        if self.names.iter().all(|(name, _)| is_lost(name)) {
            return Ok(());
        }
        parts.keep(|asked| !is_lost(asked))
    }
}

fn links(parts: &mut Parts, hosts: usize) -> Result<Told, Refusal> {
    let partners = MOST_PARTNERS.min(hosts - 1);
    let all = hosts * (hosts - 1) / 2;
    let pairs = if hosts == 2 {
        "between the 2 hosts".into()
    } else if partners == hosts - 1 {
        format!("all {all} pairs of {hosts} hosts")
    } else {
        format!(
            "each of {hosts} hosts with {partners} others, which tells a slow host from its partners (all {all} pairs: `busbw link`)"
        )
    };
    announce(1, &pairs);
    // With an odd number of hosts, one of them pauses in each round.
    let rounds = (partners + hosts % 2).to_string();
    parts.run(part(&["link", "--format", "json", "--partners", &rounds]), Shown::Progress)
}

/// The hosts that did not stay to the end, by what they call themselves.
fn lost(links: &Told) -> Vec<String> {
    let read = read_bytes(&[("busbw link", links.output.as_bytes())]).unwrap_or_default();
    let ends = read.link_runs.into_iter().flat_map(|(_, run)| run.ends);
    ends.filter(|end| end.trouble.is_some()).map(|end| end.host).collect()
}

fn all_reduce(flags: &Doctor, parts: &mut Parts, nodes: &[NodeFacts]) -> Result<Told, Refusal> {
    let engine = Engine::of(flags, parts, nodes);
    announce(2, &engine.what);
    let words = ["bench", "all_reduce", "--backend", engine.backend, "-b", "8", "-e", &flags.max_bytes, "-f", "2"];
    let debug = std::env::var("NCCL_DEBUG").unwrap_or_else(|_| "INFO".into());
    let environment = vec![("NCCL_DEBUG".into(), debug)];
    let shown = if flags.shows() { Shown::Table } else { Shown::Progress };
    parts.run(Part { per_host: engine.per_host, environment, ..part(&words) }, shown)
}

/// What carries the all-reduce.
struct Engine {
    backend: &'static str,
    per_host: usize,
    what: String,
}

impl Engine {
    /// NCCL, where every host has it and GPUs, else busbw's own.
    fn of(flags: &Doctor, parts: &Parts, nodes: &[NodeFacts]) -> Self {
        let without = |lacks: &dyn Fn(&NodeFacts) -> bool| {
            let hosts: Vec<&str> = nodes.iter().filter(|node| lacks(node)).map(|node| node.host.as_str()).collect();
            (!hosts.is_empty()).then(|| hosts.join(", "))
        };
        let why = match (without(&|node| node.gpu.devices.is_empty()), without(&|node| node.nccl.is_empty())) {
            (Some(hosts), _) => format!("no GPU on {hosts}"),
            (None, Some(hosts)) => format!("no NCCL on {hosts}"),
            (None, None) => {
                let gpus = nodes.iter().map(|node| node.gpu.devices.len()).min().unwrap_or(1);
                // A job may have fewer ranks on a host than that.
                let what = format!(
                    "with NCCL, a rank for each of up to {} of {}",
                    counted(gpus, "GPU"),
                    counted(nodes.len(), "host")
                );
                return Engine { backend: "nccl", per_host: gpus, what };
            }
        };
        let named = parts.hosts().and_then(|hosts| hosts.slots().iter().map(|slots| slots.ranks).max());
        let usual = RANKS[usize::from(nodes.len() == 1)];
        let per_host = flags.np.map_or(named.unwrap_or(1).max(usual), |np| np.get());
        let ranks = counted(per_host, "rank");
        Engine {
            backend: "cpu",
            per_host,
            what: format!("with busbw's own engine on CPU cores, {ranks} of each host ({why})"),
        }
    }
}

/// All that was told, as `busbw explain` reads it. Of a part that ended badly, what it said on standard error as well.
fn read(told: &[Told], checked: &Checked) -> Result<Run, String> {
    let texts: Vec<(&str, String)> = told
        .iter()
        .map(|told| (told.line.as_str(), if told.status == 0 { told.output.clone() } else { with_errors(told) }))
        .chain([(checked.line.as_str(), checked.json.clone())])
        .filter(|(_, text)| !text.is_empty())
        .collect();
    let texts: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    read_bytes(&texts).map_err(|e| e.to_string())
}

/// A table and what was said beside it; an answer in JSON stands alone.
fn with_errors(told: &Told) -> String {
    if told.output.starts_with('{') { told.output.clone() } else { format!("{}{}", told.output, told.errors) }
}

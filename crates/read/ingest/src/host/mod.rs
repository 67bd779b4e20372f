//! Reads facts about a machine from what people paste beside a log: `ibstat`, `lspci -vv`, `nvidia-smi`, `rocm-smi`, `ulimit -a`, `dmesg`.
//!
//! A file per kind of thing. A reader gets the line and the context (which device the lines above speak of), and fills
//! the facts of the machine, or leaves the line when it is not its own.

mod amd;
mod dcgm;
mod gpus;
mod kernel;
mod limits;
mod page;
mod pcie;
mod ports;
mod query;
mod subnet;
mod wire;

use crate::{TextLine, label};
use busbw_model::{HostList, NodeFacts, SourceLine};
use page::{Key, Machines, Page};
use rustc_hash::{FxHashMap, FxHashSet};

/// A block of output that is longer than this without a line that is known has ended.
const LONGEST_GAP: u64 = 80;
/// No host has more GPUs or NICs: a longer count is of several.
const MOST_OF_A_KIND: u32 = 64;

/// Collects facts from lines.
///
/// ```
/// use busbw_ingest::{TextLine, host::HostReader};
/// use busbw_model::Place;
/// let mut reader = HostReader::default();
/// for (line, text) in (1..).zip(["CA 'mlx5_0'", "\tPort 1:", "\t\tState: Down"]) {
///     assert!(reader.feed(&TextLine { place: Place { input: 0, line }, stream: "", text }));
/// }
/// let machines = reader.finish();
/// assert_eq!(machines[0].rdma[0].ports[0].state, "DOWN");
/// assert_eq!(machines[0].lines[0].device, "mlx5_0/1");
/// ```
#[derive(Debug, Default)]
pub struct HostReader {
    machines: Machines,
    contexts: FxHashMap<Box<str>, Context>,
}

/// What the lines above speak of.
#[derive(Debug, Default, Clone)]
struct Context {
    /// The machine: its name, where a prompt or a message tells it.
    key: Key,
    /// The command whose output goes on; empty for none.
    command: &'static str,
    device: String,
    port: Option<u32>,
    /// Section of the output, where sections matter.
    section: String,
    /// Line of the last line that belonged.
    last: u64,
    /// A process that the kernel kills next, and that stands beside a job.
    beside: Option<String>,
    /// What commands began with on a machine without a name.
    begun: FxHashSet<(&'static str, String)>,
}

impl Context {
    /// Begins the block of a device. A command that begins with the same device again speaks of another machine.
    fn begin(&mut self, command: &'static str, device: &str) {
        if self.key.host.is_none() && !self.begun.insert((command, device.to_string())) {
            self.key.part += 1;
            self.begun = [(command, device.to_string())].into_iter().collect();
        }
        (self.command, self.device, self.port) = (command, device.to_string(), None);
        self.section.clear();
    }

    /// Whether a line may go on with a block: it is indented, or follows it; or the command does not indent, or who copied it did not.
    fn goes_on(&self, text: &str, line: u64) -> bool {
        let gap = line.saturating_sub(self.last);
        let is_flat = [amd::ROCM_SMI, dcgm::DCGMI, wire::MLNX_QOS, wire::MLXLINK].contains(&self.command)
            || self.command == gpus::QUERY_PARTS && text.contains("  : ");
        gap <= 1 || gap <= LONGEST_GAP && (is_flat || text.starts_with([' ', '\t']))
    }
}

/// Reads a line; `Some` where it belongs to the output that is read.
type Reader = fn(&mut Context, &str, &mut Page) -> Option<()>;

impl HostReader {
    /// A reader that goes on with what earlier inputs told: machines are known again by their names.
    pub(crate) fn knowing(machines: Vec<NodeFacts>) -> Self {
        let name = |(at, machine): (usize, &NodeFacts)| {
            let host = Some(&machine.host).filter(|host| !host.is_empty())?;
            Some((Key::named(host), at))
        };
        // If a name occurs several times, the first one counts.
        let known = machines.iter().enumerate().rev().filter_map(name).collect();
        HostReader { machines: Machines { all: machines, known }, contexts: FxHashMap::default() }
    }

    /// Whether a line is a fact though it looks like a row of a topology matrix: `nvidia-smi topo -p2p` prints such.
    pub fn goes_first(text: &str) -> bool {
        gpus::peer_access(text).is_some()
    }

    /// Takes a line, of each host where its label lists several; true when it belongs to the output of a command that is known.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        match listed_hosts(line.stream) {
            Some(hosts) => hosts.iter().filter(|host| self.line(&TextLine { stream: host, ..*line })).count() > 0,
            None => self.line(line),
        }
    }

    fn line(&mut self, line: &TextLine) -> bool {
        const READERS: [Reader; 10] = [
            ports::read,
            wire::read,
            subnet::read,
            pcie::read,
            query::read,
            gpus::read,
            dcgm::read,
            amd::read,
            limits::read,
            kernel::read,
        ];
        let fresh = || Context {
            key: Key { host: host_of_label(line.stream), stream: line.stream.into(), part: 0 },
            ..Context::default()
        };
        let context = self.contexts.entry(line.stream.into()).or_insert_with(fresh);
        let number = line.place.line;
        let prompt = prompt(line.text);
        let is_prompt = prompt.is_some();
        if let Some(host) = prompt {
            context.key.host = host.or(context.key.host.take());
            context.command = "";
        }
        if wire::asked(context, line.text, is_prompt).is_some() {
            context.last = number;
        }
        if is_prompt {
            return false; // the command itself is no output
        }
        let text = line.text.trim_end();
        if !context.goes_on(text, number) {
            context.command = "";
        }
        let source = SourceLine::new(line.place, text.trim_start());
        let mut page = Page { machines: &mut self.machines, source };
        let belongs = READERS.iter().any(|read| read(context, text, &mut page).is_some());
        if belongs {
            context.last = number;
        }
        belongs
    }

    /// What is known of each machine, in order.
    pub fn finish(self) -> Vec<NodeFacts> {
        self.machines.all
    }
}

/// The hosts of a label that lists several, `node[01-03,07],login1`; not one of a launcher, `[node1]` or `[0]`.
fn listed_hosts(stream: &str) -> Option<Vec<String>> {
    const MOST: usize = 1 << 16;
    let lists = stream.contains('[') && !stream.starts_with('[') && !stream.contains(' ');
    let list = if lists { HostList::parse(stream).ok() } else { None };
    Some(list.filter(|list| list.count() <= MOST)?.hosts())
}

/// Launchers label lines by rank or by host; only a name is one, or what stands in front of syslog's tag: `gpu-7 python3[4242]`.
fn host_of_label(stream: &str) -> Option<String> {
    let stream = stream.split_once(' ').filter(|(_, tag)| tag.ends_with(']')).map_or(stream, |(host, _)| host);
    let is_name = stream.starts_with(|c: char| c.is_ascii_alphabetic())
        && label::of_stream(stream).is_none()
        && stream.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    is_name.then(|| stream.to_string())
}

/// The host in a shell's prompt with a command behind it: `root@node1:~# ibstat`, `[user@node1 ~]$ ibstat`; `Some(None)`
/// for a prompt without a name.
fn prompt(text: &str) -> Option<Option<String>> {
    let text = text.trim_start().trim_start_matches('[');
    if text.starts_with("$ ") || text.starts_with("# ") && text.split(' ').count() < 8 && is_command(&text[2..]) {
        return Some(None);
    }
    let (before, rest) = text.split_once('@')?;
    let is_user = !before.is_empty()
        && before.len() < 40
        && before.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-._".contains(c)))?;
    let (host, behind) = rest.split_at(end);
    let is_prompt = behind.starts_with([':', ' ']) && (behind.contains("# ") || behind.contains("$ "));
    (is_user && is_prompt && !host.is_empty()).then(|| Some(host.to_string()))
}

fn is_command(text: &str) -> bool {
    let command = text.trim_start_matches("sudo ").split(' ').next();
    crate::evidence::KNOWN.commands.iter().any(|known| command == Some(known))
}

/// `key: value`, the key without surrounding space.
fn key_value(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(':')?;
    Some((key.trim(), value.trim()))
}

/// The number that a text begins with: `200 Gb/sec` is 200.
fn leading_float(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests;

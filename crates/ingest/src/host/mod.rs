//! Reads facts about a host from what people paste beside a log: `ibstat`, `lspci -vv`, `nvidia-smi`, `ulimit -a`, `dmesg`.
//!
//! A file per kind of thing. A reader gets the line and the context (which device the lines above speak of) and gives
//! facts, or nothing when the line is not its own.

mod gpus;
mod kernel;
mod limits;
mod pcie;
mod ports;

pub(crate) use ports::capitalised;

use crate::TextLine;
use busbw_model::{Fact, HostFact, HostTool, SourceLine};
use rustc_hash::FxHashMap;

/// More facts tell nothing new.
const MOST_KEPT: usize = 50_000;
/// A block of output that is longer than this without a line that is known has ended.
const LONGEST_GAP: u64 = 80;

/// Collects facts from lines.
///
/// ```
/// use busbw_ingest::{TextLine, host::HostReader};
/// use busbw_model::{Fact, Place};
/// let mut reader = HostReader::default();
/// for text in ["CA 'mlx5_0'", "\tPort 1:", "\t\tState: Down"] {
///     assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// }
/// let facts = reader.finish();
/// assert_eq!((facts[0].device.as_str(), &facts[0].fact), ("mlx5_0/1", &Fact::PortState("Down".into())));
/// ```
#[derive(Debug, Default)]
pub struct HostReader {
    found: Vec<HostFact>,
    contexts: FxHashMap<Box<str>, Context>,
}

/// What the lines above speak of.
#[derive(Debug, Default, Clone)]
struct Context {
    /// The host, where a prompt or a message names it.
    host: Option<String>,
    tool: Option<HostTool>,
    device: String,
    port: Option<u32>,
    /// Section of the output, where sections matter.
    section: String,
    /// Line of the last line that belonged.
    last: u64,
}

impl Context {
    /// Begins the block of a device.
    fn begin(&mut self, tool: HostTool, device: &str) {
        *self = Context { host: self.host.take(), tool: Some(tool), device: device.to_string(), ..Context::default() };
    }

    fn is(&self, tools: &[HostTool]) -> bool {
        self.tool.is_some_and(|tool| tools.contains(&tool))
    }
}

/// Facts of a line, each with its device, and the tool. An empty list: the line belongs and tells nothing by itself.
type Told = Option<(HostTool, Vec<(String, Fact)>)>;

impl HostReader {
    /// Whether a line is a fact though it looks like a row of a topology matrix: `nvidia-smi topo -p2p` prints such.
    pub fn goes_first(text: &str) -> bool {
        gpus::peer_access(text).is_some()
    }

    /// Takes a line; true when it belongs to the output of a command that is known.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        const READERS: [fn(&mut Context, &str) -> Told; 5] =
            [ports::read, pcie::read, gpus::read, limits::read, kernel::read];
        let fresh = Context { host: host_of_label(line.stream), ..Context::default() };
        let context = self.contexts.entry(line.stream.into()).or_insert(fresh);
        if line.place.line.saturating_sub(context.last) > LONGEST_GAP {
            context.begin(HostTool::Ibstat, "");
            context.tool = None;
        }
        if let Some(host) = prompt(line.text) {
            *context = Context { host: host.or(context.host.take()), last: line.place.line, ..Context::default() };
            return false; // the command itself is no output
        }
        let text = line.text.trim_end();
        let Some((tool, facts)) = READERS.iter().find_map(|read| read(context, text)) else { return false };
        context.last = line.place.line;
        for (device, fact) in facts {
            if self.found.len() < MOST_KEPT {
                let source = SourceLine::new(line.place, text.trim_start());
                self.found.push(HostFact { host: context.host.clone(), device, fact, tool, source });
            }
        }
        true
    }

    /// The facts in order.
    pub fn finish(self) -> Vec<HostFact> {
        self.found
    }
}

/// Launchers label lines by rank or by host; only a name is one.
fn host_of_label(stream: &str) -> Option<String> {
    let is_name = stream.starts_with(|c: char| c.is_ascii_alphabetic())
        && !stream.starts_with("rank")
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
    const COMMANDS: [&str; 13] = [
        "ibstat",
        "ibv_devinfo",
        "ibdev2netdev",
        "show_gids",
        "lspci",
        "nvidia-smi",
        "ulimit",
        "dmesg",
        "ethtool",
        "df",
        "lsmod",
        "systemctl",
        "ip",
    ];
    COMMANDS.contains(&text.trim_start_matches("sudo ").split(' ').next().unwrap_or_default())
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

//! Reads NCCL's own dump of a machine, which `NCCL_DEBUG_SUBSYS=GRAPH` prints: `ncclTopoPrint` in `src/graph/topo.cc` and
//! `printNodePaths` in `src/graph/paths.cc`, from NCCL 2.5 on.

use crate::TextLine;
use busbw_model::{SystemDump, SystemNode};
use rustc_hash::FxHashMap;

/// More lines than a machine gives; NCCL itself stops at 640 nodes per type (`NCCL_TOPO_MAX_NODES` in 2.30).
const MAX_NODES: usize = 16_384;

/// Names of node types (`topoNodeTypeStr`).
const NODE_TYPES: [&str; 10] = ["CPU", "CXB", "DEV", "GIN", "GPU", "NET", "NIC", "NVS", "PCI", "RMA"];

/// Collects dumps from messages, that is from lines whose NCCL prefix (`host:pid:tid [0] NCCL INFO `) was taken off and
/// whose indentation was kept.
///
/// ```
/// use busbw_ingest::{TextLine, nccl_system_dump::DumpReader};
/// use busbw_model::Place;
/// let mut reader = DumpReader::default();
/// for text in ["=== System : maxBw 24.0 totalBw 24.0 ===", "CPU/0 (1/2/-1)", "+ PCI[24.0] - GPU/1000 (0)"] {
///     assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// }
/// let dumps = reader.finish();
/// assert_eq!((dumps[0].nodes[1].depth, dumps[0].nodes[1].device.as_str()), (1, "GPU/1000"));
/// ```
#[derive(Debug, Default)]
pub struct DumpReader {
    found: Vec<SystemDump>,
    open: FxHashMap<Box<str>, OpenDump>,
}

#[derive(Debug, Default)]
struct OpenDump {
    dump: SystemDump,
    /// Indentation of the links that lead to the current line, outermost first.
    indents: Vec<usize>,
}

impl DumpReader {
    /// False only when the text cannot belong to a dump; looks at the first bytes only.
    pub fn may_belong(text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        match text.first() {
            Some(b'=') => text.starts_with(b"==="),
            Some(b'+') => text.starts_with(b"+ "),
            Some(b'-') => text.starts_with(b"--"),
            Some(b'P') if text.starts_with(b"Paths from") => true,
            Some(b'C' | b'D' | b'G' | b'N' | b'P' | b'R') => text.get(3) == Some(&b'/'),
            _ => false,
        }
    }

    /// Takes a message; true when it belongs to a dump. The lines of paths that follow a dump are recognised, not kept.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim_end();
        if let Some(mut dump) = read_start(text) {
            dump.place = line.place;
            if let Some(before) = self.open.insert(line.stream.into(), OpenDump { dump, indents: Vec::new() }) {
                self.found.push(before.dump);
            }
            return true;
        }
        if is_path(text) {
            return true;
        }
        let Some(open) = self.open.get_mut(line.stream) else { return false };
        if text.len() > 20 && text.bytes().all(|b| b == b'=') {
            self.found.extend(self.open.remove(line.stream).map(|open| open.dump));
            return true;
        }
        open.node(text)
    }

    /// The dumps in the order of their first lines; one that was cut has the nodes read so far.
    pub fn finish(mut self) -> Vec<SystemDump> {
        self.found.extend(self.open.into_values().map(|open| open.dump));
        self.found.sort_by_key(|dump| dump.place);
        self.found
    }
}

impl OpenDump {
    fn node(&mut self, text: &str) -> bool {
        let body = text.trim_start();
        let Some((link, bw_gbs, device, detail)) = read_node(body) else { return false };
        // A link is printed where the name of the device above it begins, so that depth is a matter of indentation.
        let depth = if link.is_none() {
            self.indents.clear();
            0
        } else {
            let indent = text.len() - body.len();
            while self.indents.last().is_some_and(|&last| last >= indent) {
                self.indents.pop();
            }
            self.indents.push(indent);
            self.indents.len() as u32
        };
        if self.dump.nodes.len() < MAX_NODES {
            let link = link.unwrap_or_default().to_string();
            let (device, detail) = (device.to_string(), detail.map(str::to_string));
            self.dump.nodes.push(SystemNode { depth, link, bw_gbs, device, detail });
        }
        true
    }
}

/// `=== System : maxBw 24.0 totalBw 24.0 ===`. Up to 2.13 it is `maxWidth … totalWidth …`, up to 2.7 `maxWidth …` alone, and
/// in 2.5 `maxWidth … maxSpeed …`, which is no total.
fn read_start(text: &str) -> Option<SystemDump> {
    let body = text.trim_start().strip_prefix("=== System :")?.strip_suffix("===")?;
    let mut dump = SystemDump::default();
    let mut words = body.split_whitespace();
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        match name {
            "maxBw" | "maxWidth" => dump.max_bw = value.parse().ok(),
            "totalBw" | "totalWidth" => dump.total_bw = value.parse().ok(),
            _ => {}
        }
    }
    Some(dump)
}

/// Link, bandwidth, device, and what is in parentheses.
type NodeWords<'a> = (Option<&'a str>, Option<f64>, &'a str, Option<&'a str>);

/// `CPU/0 (1/1/2)` or `+ PCI[24.0] - GPU/B000 (0)`.
fn read_node(body: &str) -> Option<NodeWords<'_>> {
    let Some(link) = body.strip_prefix("+ ") else {
        let (device, detail) = read_device(body)?;
        return device.starts_with("CPU/").then_some((None, None, device, detail));
    };
    let (link, rest) = link.split_once('[')?;
    let (bandwidth, rest) = rest.split_once("] - ")?;
    let (device, detail) = read_device(rest)?;
    Some((Some(link), bandwidth.trim().parse().ok(), device, detail))
}

fn read_device(text: &str) -> Option<(&str, Option<&str>)> {
    let mut words = text.split_whitespace();
    let device = words.next().filter(|device| is_node(device))?;
    let detail = words.next().and_then(|word| word.strip_prefix('(')?.strip_suffix(')'));
    Some((device, detail))
}

/// `GPU/B000 :GPU/B000 (0/5000.0/LOC) …`, or with tracing `Paths from GPU/B000 :` and `--PCI->PCI/A000--… (24.0)`.
fn is_path(text: &str) -> bool {
    let body = text.trim_start();
    if body.starts_with("--") {
        return body.split_once("->").is_some_and(|(_, target)| has_node_type(target));
    }
    let from = body.strip_prefix("Paths from ");
    let Some((node, rest)) = from.unwrap_or(body).split_once(" :") else { return false };
    is_node(node) && (from.is_some() || rest.is_empty() || has_node_type(rest))
}

/// `GPU/B000`, `GPU/0-b000` from 2.21 on (host, then bus id), `NET/0-c`, `CPU/FFFFFFFFFFFFFFFF` (no NUMA node known).
fn is_node(text: &str) -> bool {
    has_node_type(text)
        && text.len() > 4
        && text[4..].split('-').all(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn has_node_type(text: &str) -> bool {
    NODE_TYPES.iter().any(|name| text.strip_prefix(name).is_some_and(|id| id.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Place;

    fn dumps(text: &str) -> Vec<SystemDump> {
        let mut reader = DumpReader::default();
        for text in text.lines() {
            assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }), "{text}");
        }
        reader.finish()
    }

    fn tree(dump: &SystemDump) -> Vec<(u32, &str, Option<f64>, &str)> {
        dump.nodes.iter().map(|node| (node.depth, node.link.as_str(), node.bw_gbs, node.device.as_str())).collect()
    }

    #[test]
    fn system_dumps_of_all_versions() {
        let new = "\
=== System : maxBw 48.0 totalBw 370.8 ===
CPU/0-0 (1/2/-1)
+ PCI[0.2] - PCI/0-65000 (104c823200000000)
             + PCI[48.0] - NIC/0-67000
                           + NET[50.0] - NET/0-c (0/d4f9fc0003ae6d94/1/50.000000)
             + PCI[48.0] - GPU/0-68000 (8)
                           + NVL[370.8] - NVS/0-0
+ PCI[12.0] - NIC/0-1
==========================================
GPU/0-68000 :GPU/0-68000 (0/5000.0/LOC) CPU/0-0 (2/0.2/PHB) ";
        let found = dumps(new);
        assert_eq!(tree(&found[0]).iter().map(|node| node.0).collect::<Vec<_>>(), [0, 1, 2, 3, 2, 3, 1]);
        assert_eq!(tree(&found[0])[3], (3, "NET", Some(50.0), "NET/0-c"));
        let details: Vec<_> = found[0].nodes.iter().map(|node| node.detail.as_deref()).collect();
        assert_eq!(details[..3], [Some("1/2/-1"), Some("104c823200000000"), None]);

        for (start, max, total) in [
            ("=== System : maxWidth 12 maxSpeed  6 ===", 12.0, None),
            ("=== System : maxWidth 12.0 ===", 12.0, None),
            ("=== System : maxWidth 12.0 totalWidth 24.0 ===", 12.0, Some(24.0)),
        ] {
            let found = dumps(&format!("{start}\nCPU/FFFFFFFFFFFFFFFF (1/1/1)\n+ PCI[ 6] - GPU/80 (0)"));
            assert_eq!((found[0].max_bw, found[0].total_bw), (Some(max), total), "{start}");
            assert_eq!(tree(&found[0])[1], (1, "PCI", Some(6.0), "GPU/80"), "{start}");
        }
    }
}

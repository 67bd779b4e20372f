//! Reads dumps of PyTorch's flight recorder: the pickles that ranks write when a collective times out
//! (`TORCH_NCCL_DEBUG_INFO_TEMP_FILE`), and the JSON of `_dump_nccl_trace_json` and the debug server's handlers.
//!
//! Keys are those of `torch/csrc/distributed/c10d/FlightRecorder.hpp`, dump versions 2.0 to 2.10.

use super::pickle::{self, PickleError};
use super::tree::{Id, Node, Tree};
use busbw_model::{
    FlightCall, FlightCalls, FlightDump, FlightEntry, FlightKind, GroupName, Place, SourceLine, Standing, TorchWork,
    WorkState,
};
use memchr::memmem;
use rustc_hash::FxHashMap;

/// A dump, and every operation in it for comparison with other ranks'.
#[derive(Debug)]
pub(crate) struct Recording {
    pub dump: FlightDump,
    pub entries: Vec<FlightEntry>,
    /// Gloo's groups wrote it.
    gloo: bool,
}

impl Recording {
    /// Whether Gloo's groups wrote it.
    pub fn of_gloo(&self) -> bool {
        self.gloo
    }
}

/// What is read of a dump, at most. A pickle may share values, so that a few bytes stand for many: a hundred thousand operations with
/// one name of a megabyte fit into a file of one megabyte.
const MOST_ENTRIES: usize = 1 << 18;
/// Groups of a dump, and ranks of all groups together.
const MOST_GROUPS: usize = 1 << 12;
const MOST_RANKS: usize = 1 << 22;
/// Tensors of an operation, and frames of the stack that called it.
const MOST_TENSORS: usize = 1 << 12;
const MOST_FRAMES: usize = 256;
/// Dimensions of a tensor: PyTorch allows 64.
const MOST_DIMENSIONS: usize = 64;
/// Bytes of a name.
const LONGEST_NAME: usize = 256;
const LONGEST_PATH: usize = 1024;

/// The dump in a text of JSON; `None` when it holds something else, or its end is missing. Only what may be a dump is read at all.
pub(crate) fn read_json(text: &str, source: SourceLine) -> Option<Recording> {
    memmem::find(text.as_bytes(), b"\"pg_config\"")?;
    let tree = Tree::from_json(text).ok()?;
    let has = |key: &str| tree.get(tree.root, key).is_some();
    let lists_entries = tree.get(tree.root, "entries").is_some_and(|id| matches!(tree.node(id), Node::List(_)));
    (has("pg_config") && (lists_entries || has("pg_status"))).then(|| recording(&tree, source))
}

/// The dump in a pickle; `None` when the pickle holds something else.
pub(crate) fn read_pickle(bytes: &[u8], input: u32) -> Result<Option<Recording>, PickleError> {
    let tree = pickle::read(bytes)?;
    let is_dump = tree.get(tree.root, "entries").or(tree.get(tree.root, "pg_config")).is_some();
    let entries = tree.list_of(tree.root, "entries").len();
    let text = format!("flight recorder dump with {entries} entries");
    Ok(is_dump.then(|| recording(&tree, SourceLine::new(Place { input, line: 0 }, &text))))
}

/// What is left of a dump that cannot be read to its end.
pub(crate) fn cut_off(input: u32) -> Recording {
    let source = SourceLine::new(Place { input, line: 0 }, "flight recorder dump that ends early");
    Recording { dump: FlightDump { cut: true, source, ..FlightDump::default() }, entries: Vec::new(), gloo: false }
}

/// The rank that a dump's file name ends in, before its extension: PyTorch writes `nccl_trace_rank_3`, people name copies
/// `rank3.json`.
pub(crate) fn rank_of_path(path: &str) -> Option<u32> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let name = name.trim_end_matches(|c: char| !c.is_ascii_digit());
    let before = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name[before.len()..].parse().ok()
}

fn recording(tree: &Tree, source: SourceLine) -> Recording {
    let root = tree.root;
    let of_groups = |key: &str| tree.get(root, key).map_or(&[][..], |id| tree.members(id)).iter().take(MOST_GROUPS);
    let mut room = MOST_RANKS;
    let members = of_groups("pg_config")
        .map(|(key, group)| {
            let (name, ranks) = config(tree, (*key, *group), room);
            room -= ranks.len();
            (name, ranks)
        })
        .collect::<Vec<(GroupName, Vec<u32>)>>();
    let entries: Vec<FlightEntry> = tree
        .list_of(root, "entries")
        .iter()
        .take(MOST_ENTRIES)
        .enumerate()
        .map(|(index, id)| entry(tree, *id, (index, &source)))
        .collect();
    let by_id: FxHashMap<u32, &GroupName> = entries.iter().filter_map(|e| Some((e.group.id?, &e.group))).collect();
    let standing = of_groups("pg_status").filter_map(|(key, status)| {
        let id = u32::try_from(tree.int(*key)?).ok()?;
        let unnamed = || GroupName { id: Some(id), ..GroupName::default() };
        Some((by_id.get(&id).map_or_else(unnamed, |name| (*name).clone()), status_of(tree, *status)))
    });
    let is_open = |entry: &&FlightEntry| entry.state != WorkState::Completed;
    let of_gloo = |id: &Id| tree.text_of(*id, "profiling_name").is_some_and(|name| name.starts_with("gloo:"));
    let gloo = tree.list_of(root, "entries").iter().any(of_gloo);
    let created = || entries.iter().filter_map(|entry| entry.created_ns);
    let dump = FlightDump {
        version: tree.text_of(root, "version").map(name),
        nccl_version: tree.text_of(root, "comm_lib_version").or(tree.text_of(root, "nccl_version")).map(name),
        entries: entries.len() as u64,
        standing: standing.collect(),
        open: entries.iter().filter(is_open).take(FlightDump::MOST_OPEN).cloned().collect(),
        members,
        rank: None,
        at: at(&entries).map(|at| entries[at].clone()),
        unusual: false,
        span_ns: created().min().zip(created().max()),
        cut: false,
        // A program enqueues NCCL's collectives ahead of what its GPU does: when, tells little. busbw writes when the GPU was there.
        calls: if gloo || tree.text_of(root, "writer").is_some_and(|writer| writer.starts_with("busbw ")) {
            calls(&entries)
        } else {
            FlightCalls::default()
        },
        source,
    };
    Recording { dump, entries, gloo }
}

/// Where the rank is: its first operation that is not complete, else its last.
fn at(entries: &[FlightEntry]) -> Option<usize> {
    entries.iter().position(|entry| entry.state != WorkState::Completed).or(entries.len().checked_sub(1))
}

/// What was called when, of the last entries.
fn calls(entries: &[FlightEntry]) -> FlightCalls {
    let mut found = FlightCalls::default();
    let mut known: FxHashMap<FlightKind, u32> = FxHashMap::default();
    let first = entries.len().saturating_sub(FlightDump::MOST_CALLS);
    for entry in entries[first..].iter().filter(|entry| !entry.p2p) {
        let FlightEntry { group, work, called_at, created_ns: Some(created_ns), .. } = entry else { continue };
        let elements = (work.numel_in, work.numel_out);
        let kind = FlightKind { group: group.clone(), op: work.op.clone(), elements, called_at: called_at.clone() };
        let next = u32::try_from(found.kinds.len()).unwrap_or(u32::MAX);
        let kind = *known.entry(kind).or_insert_with_key(|kind| {
            found.kinds.push(kind.clone());
            next
        });
        found.calls.push(FlightCall { kind, sequence: work.sequence, created_ns: *created_ns });
    }
    found
}

/// The text of a name, cut where it is too long for one.
fn name(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_NAME)].to_string()
}

/// `"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}`, with as many ranks as there is room for.
fn config(tree: &Tree, (key, group): (Id, Id), room: usize) -> (GroupName, Vec<u32>) {
    let own_name = tree.text_of(group, "name").or(tree.text(key)).filter(|text| !text.is_empty()).map(name);
    let description = tree.text_of(group, "desc").filter(|text| !text.is_empty()).map(name);
    let ranks = tree.text_of(group, "ranks").unwrap_or_default();
    let listed = tree.list_of(group, "ranks").iter().filter_map(|id| tree.int(*id)?.try_into().ok());
    let printed = ranks.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    (GroupName { id: None, name: own_name, description }, listed.chain(printed).take(room).collect())
}

fn status_of(tree: &Tree, status: Id) -> Standing {
    // -1 stands for none, and numbers begin at 1.
    let number = |key: &str| Some(u64::try_from(tree.int(tree.get(status, key)?)?).unwrap_or(0));
    Standing {
        enqueued: number("last_enqueued_collective"),
        started: number("last_started_collective"),
        completed: number("last_completed_collective"),
    }
}

fn entry(tree: &Tree, id: Id, (index, dump): (usize, &SourceLine)) -> FlightEntry {
    let own_name = tree.text_of(id, "profiling_name").map(name).unwrap_or_default();
    let p2p = tree.get(id, "is_p2p").map(|_| tree.flag_of(id, "is_p2p"));
    let op = super::operation(&own_name);
    let mut work = TorchWork {
        op,
        numel_in: elements(tree, tree.list_of(id, "input_sizes")),
        numel_out: elements(tree, tree.list_of(id, "output_sizes")),
        datatype: tree.list_of(id, "input_dtypes").first().and_then(|id| tree.text(*id)).map(name),
        timeout_ms: tree.number_of(id, "timeout_ms"),
        ..TorchWork::default()
    };
    let p2p = p2p.unwrap_or_else(|| work.is_between_two());
    let number = if p2p { "p2p_seq_id" } else { "collective_seq_id" };
    work.sequence = tree.number_of(id, number).or(tree.number_of(id, "seq_id")).unwrap_or_default();
    // Gloo's operations are never seen to start; those that ended, well or not, are retired (`ProcessGroupGloo.cpp`).
    let retired = || own_name.starts_with("gloo:") && tree.flag_of(id, "retired");
    let state = match tree.text_of(id, "state") {
        Some("completed") => WorkState::Completed,
        _ if retired() => WorkState::Completed,
        Some("started") => WorkState::Started,
        _ => WorkState::Scheduled,
    };
    let state_name = tree.text_of(id, "state").map_or("state unknown".to_string(), name);
    let text = format!("entries[{index}]: {own_name} {number} {} {state_name}", work.sequence);
    FlightEntry {
        group: group_of(tree, id),
        source: SourceLine::new(dump.place, &text),
        called_at: called_at(tree, tree.list_of(id, "frames")),
        created_ns: tree.number_of(id, "time_created_ns"),
        work,
        state,
        p2p,
    }
}

/// `"process_group": ["0", "default_pg"]`; up to version 2.1 the name alone.
fn group_of(tree: &Tree, entry: Id) -> GroupName {
    let texts = tree.get(entry, "process_group").map(|group| match tree.text(group) {
        Some(only) => vec![name(only)],
        None => tree.list(group).iter().take(2).filter_map(|id| tree.text(*id)).map(name).collect(),
    });
    let mut texts = texts.unwrap_or_default().into_iter();
    let id = tree.number_of(entry, "pg_id").and_then(|id| u32::try_from(id).ok());
    GroupName { id, name: texts.next(), description: texts.next().filter(|text| !text.is_empty()) }
}

/// Elements of all tensors; none without tensors, and where there are too many to count.
fn elements(tree: &Tree, sizes: &[Id]) -> Option<u64> {
    let of_tensor = |id: &Id| -> Option<u64> {
        let mut product: u64 = 1;
        for dim in tree.list(*id).iter().take(MOST_DIMENSIONS) {
            product = product.checked_mul(u64::try_from(tree.int(*dim)?).ok()?)?;
        }
        Some(product)
    };
    (1..=MOST_TENSORS).contains(&sizes.len()).then(|| sizes.iter().filter_map(of_tensor).fold(0, u64::saturating_add))
}

/// The innermost frame outside PyTorch.
fn called_at(tree: &Tree, frames: &[Id]) -> Option<String> {
    let of_program = |id: &&Id| {
        tree.text_of(**id, "filename").is_some_and(|file| file.len() <= LONGEST_PATH && !is_of_pytorch(file))
    };
    let frame = frames.iter().take(MOST_FRAMES).find(of_program)?;
    let (file, line) = (tree.text_of(*frame, "filename")?, tree.number_of(*frame, "line").unwrap_or_default());
    Some(format!("{file}:{line} ({})", tree.text_of(*frame, "name").map_or("?".to_string(), name)))
}

fn is_of_pytorch(file: &str) -> bool {
    file.contains("/torch/")
        || file.starts_with("torch/")
        || file.contains("??")
        || file.ends_with(".cpp")
        || file.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stand_at_the_end_of_names() {
        let cases = [
            ("/tmp/nccl_trace_rank_3", Some(3)),
            ("dumps/rank12.json", Some(12)),
            ("job7/trace_0.pkl", Some(0)),
            ("trace.json", None),
            ("-", None),
            ("журнал7.json", Some(7)),
            ("保存", None),
        ];
        for (path, rank) in cases {
            assert_eq!(rank_of_path(path), rank, "{path}");
        }
    }
}

//! Where ranks wait, as their stacks show: by the files and libraries of their frames.

use super::{found, hang};
use crate::case::Case;
use crate::words::{KNOWN, listed};
use busbw_model::{Evidence, Finding, SourceLine, Stack};
use std::collections::BTreeMap;

/// The main thread of a process that waits.
struct Waiting<'a> {
    stack: &'a Stack,
    /// An id in rules/findings.toml.
    place: &'static str,
    /// The frame that shows it: the call, where it is known.
    frame: &'a SourceLine,
    /// What it called: `MPI_Barrier`, `all_reduce`.
    call: Option<String>,
}

/// One finding for all processes that wait in one place; those outside collectives first, since the others wait for them.
pub fn rule(case: &Case) -> Vec<Finding> {
    // Who watched the ranks knows which process is which rank, and `watched` says more.
    if !case.run.watched.is_empty() || hang::ended_well(case) {
        return Vec::new();
    }
    let is_main = |stack: &&Stack| matches!(stack.thread.as_str(), "MainThread" | "1");
    let waiting: Vec<Waiting> = case.run.stacks.iter().filter(is_main).filter_map(waiting).collect();
    let first = KNOWN.waits.iter().find(|(place, _)| waiting.iter().any(|one| one.place == place));
    let Some((place, _)) = first else { return Vec::new() };
    let here: Vec<&Waiting> = waiting.iter().filter(|one| one.place == place).collect();
    let others = waiting.len() - here.len();
    let others = if others > 0 { format!(", {others} elsewhere") } else { String::new() };
    let mut by_call: BTreeMap<&str, Vec<&Waiting>> = BTreeMap::new();
    for one in &here {
        by_call.entry(one.call.as_deref().unwrap_or_default()).or_default().push(one);
    }
    if by_call.keys().filter(is_of_all).count() > 1 {
        return vec![apart(by_call, &others)];
    }
    let calls: Vec<&str> = by_call.into_keys().filter(|call| !call.is_empty()).collect();
    let call = if calls.is_empty() { String::new() } else { format!(": {}", listed(calls.iter(), 4)) };
    let evidence = here.iter().take(4).map(|one| Evidence::new(one.frame.clone())).collect();
    vec![found(place, &[("who", &who(&here)), ("call", &call), ("others", &others)], evidence)]
}

/// Processes in several collectives: what all of a group call, they must call in the same order.
fn apart(by_call: BTreeMap<&str, Vec<&Waiting>>, others: &str) -> Finding {
    let mut calls: Vec<(&str, Vec<&Waiting>)> = by_call.into_iter().filter(|(call, _)| !call.is_empty()).collect();
    calls.sort_by_key(|(_, those)| those.len());
    let calls_of = calls.iter().map(|(call, those)| {
        let pids: Vec<u64> = those.iter().filter_map(|one| one.stack.pid).collect();
        if pids.is_empty() {
            format!("{} in {call}", those.len())
        } else {
            format!("{} in {call}", listed(pids.iter(), 4))
        }
    });
    let calls_of: Vec<String> = calls_of.collect();
    let evidence = calls.iter().filter_map(|(_, those)| those.first());
    let evidence = evidence.take(4).map(|one| Evidence::new(one.frame.clone())).collect();
    found("waits.apart", &[("calls", &listed(calls_of.iter(), 4)), ("others", &others)], evidence)
}

/// Whether all processes of a group make a call together, and not one for itself or with one other.
fn is_of_all(call: &&&str) -> bool {
    const ALONE: [&str; 12] =
        ["end", "ecv", "Wait", "Test", "robe", "Start", "Get", "Put", "Win_", "File_read", "File_write", "nccl"];
    !call.is_empty() && (!ALONE.iter().any(|part| call.contains(part)) || call.ends_with("_all"))
}

fn who(those: &[&Waiting]) -> String {
    let pids: Vec<u64> = those.iter().filter_map(|one| one.stack.pid).collect();
    match (pids.as_slice(), those.len()) {
        ([], 1) => "A process waits".to_string(),
        ([], count) => format!("{count} processes wait"),
        ([pid], _) => format!("Process {pid} waits"),
        _ => format!("Processes {} wait", listed(pids.iter(), 8)),
    }
}

/// A stack that waits. That of a process which a signal ended does not: it is of its core.
fn waiting(stack: &Stack) -> Option<Waiting<'_>> {
    if stack.frames.iter().any(|frame| frame.text.contains("<signal handler called>")) {
        return None;
    }
    let (place, frame) = hang::waits(stack)?;
    let call = hang::call_of(stack).operation;
    let called = call.as_deref().and_then(|call| stack.frames.iter().rfind(|frame| frame.text.contains(call)));
    Some(Waiting { stack, place, frame: called.unwrap_or(frame), call })
}

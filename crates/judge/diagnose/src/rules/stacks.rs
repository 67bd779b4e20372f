//! Where ranks wait, as their stacks show: by the files and libraries of their frames.

use super::{found, hang};
use crate::case::Case;
use crate::words::{KNOWN, listed};
use busbw_model::{Evidence, Finding, SourceLine, Stack};

/// Its id in rules/findings.toml, and parts of frames.
type Wait = (String, Vec<String>);

/// One finding for all processes that wait in one place; those outside collectives first, since the others wait for them.
pub fn rule(case: &Case) -> Vec<Finding> {
    // Who watched the ranks knows which process is which rank, and `watched` says more.
    if !case.run.watched.is_empty() || hang::ended_well(case) {
        return Vec::new();
    }
    let is_main = |stack: &&Stack| matches!(stack.thread.as_str(), "MainThread" | "1");
    let waiting: Vec<(&Stack, &Wait, &SourceLine)> = case.run.stacks.iter().filter(is_main).filter_map(waits).collect();
    let first = KNOWN.waits.iter().find(|place| waiting.iter().any(|(_, here, _)| here.0 == place.0));
    let Some(place) = first else { return Vec::new() };
    let here: Vec<_> = waiting.iter().filter(|(_, known, _)| known.0 == place.0).collect();
    let pids: Vec<u64> = here.iter().filter_map(|(stack, ..)| stack.pid).collect();
    let who = match pids.as_slice() {
        [] => "A process waits".to_string(),
        [pid] => format!("Process {pid} waits"),
        _ => format!("Processes {} wait", listed(pids.iter(), 8)),
    };
    let others = waiting.len() - here.len();
    let others = if others > 0 { format!(", {others} elsewhere") } else { String::new() };
    let evidence = here.iter().take(4).map(|(_, _, frame)| Evidence::new((*frame).clone())).collect();
    vec![found(&place.0, &[("who", &who), ("others", &others)], evidence)]
}

/// Where a stack waits, and the frame that shows it.
fn waits(stack: &Stack) -> Option<(&Stack, &'static Wait, &SourceLine)> {
    // A process that a signal ended does not wait: the stack is of its core.
    if stack.frames.iter().any(|frame| frame.text.contains("<signal handler called>")) {
        return None;
    }
    stack.frames.iter().find_map(|frame| {
        let place = KNOWN.waits.iter().find(|place| place.1.iter().any(|file| frame.text.contains(file)))?;
        Some((stack, place, frame))
    })
}

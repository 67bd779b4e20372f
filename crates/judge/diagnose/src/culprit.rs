//! The answer's culprit: what the first finding accuses, with its host, what it does instead, and who waits for it.

use crate::case::Case;
use crate::ranks::Ranks;
use crate::rules::hang::{has_lost, is_in_collective, waiting};
use busbw_model::{
    Culprit, CulpritClass, Ended, Finding, FlightEntry, RankEnd, Severity, Stack, Suspects, TorchWork, Waiting,
    WorkState,
};

/// The culprit of the finding to act on.
pub(crate) fn of(case: &Case, findings: &[Finding]) -> Option<Culprit> {
    let first = findings.first().filter(|finding| finding.severity >= Severity::Warning)?;
    Some(fill(case, first.suspects.as_ref()?))
}

/// What the inputs show about suspects.
pub(crate) fn fill(case: &Case, suspects: &Suspects) -> Culprit {
    let Suspects { ranks, class, slower } = suspects.clone();
    let host = case.ranks.host_of(&ranks).map(str::to_string);
    let doing = doing(&case.ranks, &ranks, class);
    let waiting = waits(case, &ranks);
    Culprit { ranks, host, class, doing, waiting, slower }
}

/// What suspects do instead.
fn doing(ranks: &Ranks, suspects: &[u32], class: Option<CulpritClass>) -> Option<String> {
    let views = || suspects.iter().filter_map(|rank| ranks.get(*rank));
    let end = || views().find_map(|view| view.end.and_then(ended));
    let stack = || views().find_map(|view| view.stack.and_then(in_program));
    let call = || {
        views()
            .find_map(|view| view.dump?.at.as_ref().map(called))
            .or_else(|| views().find_map(|view| tried(view.end?)))
    };
    let said = || views().find_map(|view| Some(format!("its last line: {}", shortened(view.output?.last.text.trim()))));
    match class {
        Some(CulpritClass::Exception | CulpritClass::Gpu) => end(),
        Some(CulpritClass::Divergence) => call().or_else(stack),
        Some(CulpritClass::Network) => None,
        Some(CulpritClass::Data | CulpritClass::Busy) => stack().or_else(said),
        _ => stack().or_else(said),
    }
}

/// `ValueError: bad batch 17 (train.py:25)`.
fn ended(end: &RankEnd) -> Option<String> {
    match &end.how {
        Ended::Exception { kind, message, at, .. } => {
            let name = kind.rsplit('.').next().unwrap_or(kind);
            let message = if message.is_empty() { String::new() } else { format!(": {}", shortened(message)) };
            let at = end.call.as_ref().and_then(|call| call.at.as_ref()).or(at.as_ref());
            Some(format!("{name}{message}{}", at.map_or(String::new(), |at| format!(" ({at})"))))
        }
        Ended::Crash { what, .. } => Some(what.clone()),
        _ => None,
    }
}

/// The innermost frame of a stack that is the program's: `load_batch (data.py:41)`.
fn in_program(stack: &Stack) -> Option<String> {
    if is_in_collective(stack) {
        return None;
    }
    const OF_OTHERS: [&str; 5] = ["site-packages", "dist-packages", "torch/", "lib/python3", "<frozen"];
    let of_program = |text: &&str| {
        text.ends_with(')') && !text.starts_with('#') && !OF_OTHERS.iter().any(|part| text.contains(part))
    };
    stack.frames.iter().map(|frame| frame.text.trim()).find(of_program).map(str::to_string)
}

/// `all-reduce 17 of default_pg, train.py:120 (step)`.
fn called(entry: &FlightEntry) -> String {
    let at = entry.called_at.as_ref().map_or(String::new(), |at| format!(", {}", short_path(at)));
    format!("in {} of {}{at}", collective(&entry.work), entry.group)
}

/// `/home/x/train.py:120 (step)` without its folders.
fn short_path(at: &str) -> &str {
    let path = at.split(" (").next().unwrap_or(at);
    &at[path.rfind('/').map_or(0, |slash| slash + 1)..]
}

/// The collective in which an exception reached a rank.
fn tried(end: &RankEnd) -> Option<String> {
    let call = end.call.as_ref().filter(|_| has_lost(end))?;
    let at = call.at.as_ref().map_or(String::new(), |at| format!(", {at}"));
    Some(format!("in {}{at}", spoken(call.operation.as_deref()?)))
}

/// `all-reduce 17`.
fn collective(work: &TorchWork) -> String {
    let name = spoken(&work.op);
    if work.sequence == 0 { name } else { format!("{name} {}", work.sequence) }
}

/// `all-reduce`, of `ALLREDUCE`, `all_reduce` and `_ALLGATHER_BASE`.
fn spoken(operation: &str) -> String {
    let words = operation.trim_start_matches('_').to_ascii_lowercase().replace('_', "-");
    words.replace("allreduce", "all-reduce").replace("allgather", "all-gather").replace("alltoall", "all-to-all")
}

fn shortened(text: &str) -> String {
    const MOST: usize = 90;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} …", text[..end].trim_end()),
        None => text.to_string(),
    }
}

/// Who waits for suspects, and in what most of them wait.
pub(crate) fn waits(case: &Case, suspects: &[u32]) -> Option<Waiting> {
    let ranks: Vec<u32> = waiting(case).into_iter().filter(|rank| !suspects.contains(rank)).collect();
    let dumped = ranks.iter().filter_map(|rank| case.ranks.get(*rank)?.dump?.at.as_ref());
    let open =
        dumped.filter(|at| at.state != WorkState::Completed).max_by_key(|at| at.group.to_string() == "default_pg");
    if let Some(at) = open {
        return Some(Waiting { group: at.group.to_string(), collective: collective(&at.work), ranks });
    }
    let stuck = case.run.process_groups.iter().find_map(|group| {
        let stuck = ranks.iter().find_map(|rank| group.ranks.get(rank)?.stuck_in.as_ref())?;
        Some((group.name.to_string(), collective(stuck)))
    });
    let (group, collective) = stuck.unwrap_or_else(|| {
        let call = ranks.iter().find_map(|rank| case.ranks.get(*rank)?.end?.call.as_ref()?.operation.as_deref());
        (String::new(), call.map_or(String::new(), spoken))
    });
    (!ranks.is_empty()).then_some(Waiting { group, collective, ranks })
}

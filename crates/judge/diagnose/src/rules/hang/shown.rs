//! What an end, a stack or a line shows by itself of a rank that waits, or for which others wait.

use crate::words::KNOWN;
use busbw_model::{CollectiveCall, CulpritClass, Ended, RankEnd, SourceLine, Stack};

/// Gloo's words for a wait that was too long (`gloo/transport/tcp/unbound_buffer.cc`).
pub(super) const TIMED_OUT: &str = "Timed out waiting ";

/// Whether an end says that the rank waited for others in vain, or lost them.
pub(crate) fn has_lost(end: &RankEnd) -> bool {
    match &end.how {
        Ended::Exception { message, .. } | Ended::Crash { message, .. } => {
            KNOWN.lost.iter().any(|text| message.contains(text))
        }
        _ => false,
    }
}

/// Gloo's words for a wait to send.
pub(super) const SEND: &str = "ms for send operation";

/// Whether an end is only what the launcher saw.
pub(super) fn is_report(end: &RankEnd) -> bool {
    matches!(end.how, Ended::Exit(_) | Ended::Killed(_))
}

/// Whether a rank got more than it asked for (`gloo/transport/tcp/pair.cc`).
pub(super) fn is_of_sizes(end: &RankEnd) -> bool {
    matches!(&end.how, Ended::Crash { message, .. } if message.contains("Received data size doesn't match expected size"))
}

/// `8 vs 4`: as much again as was asked for.
pub(super) fn got_twice(end: &RankEnd) -> bool {
    let Ended::Crash { message, .. } = &end.how else { return false };
    let Some((before, after)) = message.split_once(" vs ") else { return false };
    let got: Option<u64> = before.rsplit(' ').next().and_then(|number| number.parse().ok());
    let asked: Option<u64> = after.split(['.', ' ']).next().and_then(|number| number.parse().ok());
    got.is_some() && got == asked.and_then(|asked| asked.checked_mul(2))
}

/// Whether a launcher saw that the signal ended it by which launchers end ranks.
pub(super) fn is_terminated(end: &RankEnd) -> bool {
    matches!(&end.how, Ended::Killed(by) if by == "signal 15" || by == "SIGTERM" || by.starts_with("Terminated"))
}

pub(super) fn is_killed(end: &RankEnd) -> bool {
    matches!(&end.how, Ended::Killed(by) if by.starts_with("Killed") || by == "signal 9" || by == "SIGKILL" || by == "oom_kill")
}

/// Whether a stack is in a collective, or waits for the GPU to end one.
pub(crate) fn is_in_collective(stack: &Stack) -> bool {
    place(stack).is_some_and(|place| place == "waits.collective")
}

/// The collective that a stack is in, and the innermost frame outside PyTorch.
pub(super) fn call_of(stack: &Stack) -> CollectiveCall {
    let name = |frame: &SourceLine| frame.text.trim().split(" (").next().map(str::to_string);
    let of_torch = |frame: &&SourceLine| frame.text.contains("torch/");
    let collective = |frame: &&SourceLine| frame.text.contains("torch/distributed/distributed_c10d.py");
    let operation = stack.frames.iter().rfind(collective).and_then(name);
    let at = stack.frames.iter().find(|frame| !of_torch(frame)).map(|frame| frame.text.trim().to_string());
    CollectiveCall { operation, at }
}

/// Whether a stack is in a collective, or where one may be: DistributedDataParallel's are inside the backward pass.
pub(super) fn may_wait(stack: &Stack) -> bool {
    is_in_collective(stack) || stack.frames.iter().any(|frame| frame.text.contains("_engine_run_backward ("))
}

/// Whether a stack is in a data loader: below what Python calls for the next item of a loop.
fn is_in_loader(stack: &Stack) -> bool {
    const NEXT: [&str; 4] = ["__next__ (", "__iter__ (", "__getitem__ (", "__getitems__ ("];
    let next = |text: &str| NEXT.iter().any(|name| text.contains(name));
    place(stack) == Some("waits.data-loader") || stack.frames.iter().any(|frame| next(&frame.text))
}

/// What keeps a rank for which others wait, by its stack.
pub(crate) fn class_of_stack(stack: &Stack) -> CulpritClass {
    match () {
        () if is_in_loader(stack) => CulpritClass::Data,
        () if may_wait(stack) => CulpritClass::Divergence,
        () => CulpritClass::Busy,
    }
}

/// The place of `rules/words.toml` where a stack waits.
fn place(stack: &Stack) -> Option<&'static str> {
    stack.frames.iter().find_map(|frame| {
        let known = KNOWN.waits.iter().find(|(_, parts)| parts.iter().any(|part| frame.text.contains(part.as_str())));
        known.map(|(place, _)| place.as_str())
    })
}

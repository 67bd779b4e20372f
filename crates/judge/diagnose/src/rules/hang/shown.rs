//! What an end, a stack or a line shows by itself of a rank that waits, or for which others wait.

use super::gloo::Wait;
use crate::ranks::RankView;
use crate::words::{KNOWN, TIMED_OUT};
use busbw_model::{CollectiveCall, CulpritClass, Ended, Frame, ProgramFrame, RankEnd, SourceLine, Stack, WorkState};

/// Whether an end says that the rank waited for others in vain, or lost them.
pub(crate) fn has_lost(end: &RankEnd) -> bool {
    match &end.how {
        Ended::Exception { message, .. } | Ended::Crash { message, .. } => {
            KNOWN.lost.iter().any(|text| message.contains(text))
        }
        _ => false,
    }
}

/// Whether a rank waited until its time was over.
pub(super) fn has_timed_out(view: &RankView) -> bool {
    view.end.is_some_and(|end| end.source.text.contains(TIMED_OUT))
}

/// What a rank waited for until its time was over.
pub(super) fn waited_for(end: &RankEnd) -> Option<Wait> {
    let (_, what) = end.source.text.split_once(TIMED_OUT)?.1.split_once("ms for ")?;
    match what.split(' ').next()? {
        "send" => Some(Wait::Send),
        "recv" => Some(Wait::Receive),
        _ => None,
    }
}

/// Whether the other end of a connection closed it: what it sent then got through (`gloo/transport/tcp/pair.cc`).
pub(super) fn was_left(end: &RankEnd) -> bool {
    ["Connection closed by peer", "Connection reset by peer"].iter().any(|words| end.source.text.contains(words))
}

/// The collective in which a rank lost the others.
pub(super) fn lost_in<'a>(view: &RankView<'a>) -> Option<&'a CollectiveCall> {
    let call = view.end.filter(|end| has_lost(end))?.call.as_ref()?;
    (!is_between_two(call)).then_some(call)
}

/// Functions of `torch.distributed` that a rank calls with one other: what each does says nothing of the others.
const BETWEEN_TWO: [&str; 7] =
    ["send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"];

pub(super) fn is_between_two(call: &CollectiveCall) -> bool {
    call.operation.as_deref().is_some_and(|operation| BETWEEN_TWO.contains(&operation))
}

/// Whether a rank's dump shows that it waits for nobody.
pub(super) fn is_idle(view: &RankView) -> Option<bool> {
    let at = view.dump.filter(|dump| !dump.cut)?.at.as_ref()?;
    Some(at.state == WorkState::Completed)
}

/// Whether a rank wrote its dump, waits for nobody, and has lost nobody.
pub(super) fn lives_elsewhere(view: &RankView) -> bool {
    is_idle(view) == Some(true) && !view.end.is_some_and(has_lost)
}

/// Whether a rank waits for one other, which Gloo's dumps do not show.
pub(super) fn waits_unseen(view: &RankView) -> bool {
    let lost = view.end.filter(|end| has_lost(end)).and_then(|end| end.call.clone());
    lost.or_else(|| view.stack.map(call_of)).is_some_and(|call| is_between_two(&call))
}

/// Where a rank stands in its program, the outermost frame first: where it lost the others, else by its stack.
pub(super) fn standing(view: &RankView) -> Option<Vec<ProgramFrame>> {
    let end = view.end.filter(|end| has_lost(end) && !end.frames.is_empty());
    end.map(|end| end.frames.clone()).or_else(|| view.stack.filter(|stack| may_wait(stack)).map(in_program))
}

/// The frames of a stack outside PyTorch, as tracebacks name them: `Engine.step (parts/engine.py:41)` is `step` of `engine.py`.
fn in_program(stack: &Stack) -> Vec<ProgramFrame> {
    let frame = |line: &SourceLine| {
        let Frame { function, path, line } = Frame::read(&line.text)?;
        let (file, function) = (path.rsplit('/').next()?.to_string(), function.rsplit('.').next()?.to_string());
        (!path.contains("torch/")).then_some(ProgramFrame { file, function, line: line? })
    };
    stack.frames.iter().rev().filter_map(frame).collect()
}

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
    place(stack).is_some_and(|place| matches!(place, "waits.collective" | "waits.gpu"))
}

/// The collective that a stack is in, and the innermost frame outside PyTorch; of a program in C, the call to MPI or NCCL and who made it.
pub(crate) fn call_of(stack: &Stack) -> CollectiveCall {
    let functions = || functions(stack).rev();
    if let Some(called) = functions().position(|frame| public_call(&frame).is_some()) {
        let caller = functions().take(called).last().map(|frame| frame.function.to_string());
        return CollectiveCall { operation: functions().find_map(|frame| public_call(&frame)), at: caller };
    }
    let operation = functions().find(|frame| frame.path.ends_with("torch/distributed/distributed_c10d.py"));
    let at = stack.frames.iter().find(|frame| !frame.text.contains("torch/"));
    CollectiveCall {
        operation: operation.map(|frame| frame.function.to_string()),
        at: at.map(|frame| frame.text.trim().to_string()),
    }
}

/// The frames of a stack, the innermost first.
fn functions(stack: &Stack) -> impl DoubleEndedIterator<Item = Frame<'_>> {
    stack.frames.iter().filter_map(|frame| Frame::read(&frame.text))
}

/// What a program calls of MPI or NCCL: `PMPI_Barrier`, its name in the profiling interface, is `MPI_Barrier`.
fn public_call(frame: &Frame) -> Option<String> {
    let of_mpi = frame.function.strip_prefix('P').unwrap_or(frame.function);
    let of_mpi = of_mpi.strip_prefix("MPI_").map(|name| (of_mpi, name));
    let (call, name) = of_mpi.or_else(|| Some((frame.function, frame.function.strip_prefix("nccl")?)))?;
    name.starts_with(|first: char| first.is_ascii_uppercase()).then(|| call.to_string())
}

/// Whether a stack is in a collective, or where one may be: DistributedDataParallel's are inside the backward pass.
pub(super) fn may_wait(stack: &Stack) -> bool {
    is_in_collective(stack) || functions(stack).any(|frame| frame.function == "_engine_run_backward")
}

/// Whether a stack is in a data loader: below what Python calls for the next item of a loop.
fn is_in_loader(stack: &Stack) -> bool {
    const NEXT: [&str; 4] = ["__next__", "__iter__", "__getitem__", "__getitems__"];
    let next = |frame: Frame| NEXT.iter().any(|name| frame.function.ends_with(name));
    place(stack) == Some("waits.data-loader") || functions(stack).any(next)
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
    waits(stack).map(|(place, _)| place)
}

/// Where a stack waits by `rules/words.toml`, and the frame that shows it.
pub(crate) fn waits(stack: &Stack) -> Option<(&'static str, &SourceLine)> {
    stack.frames.iter().find_map(|frame| {
        let known = KNOWN.waits.iter().find(|(_, parts)| parts.iter().any(|part| frame.text.contains(part.as_str())));
        known.map(|(place, _)| (place.as_str(), frame))
    })
}

"""Runs a function on several ranks of this machine, as a job with Gloo would."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LIMIT_S = 150.0
"""Seconds until a job counts as hung, on a slow and loaded machine."""

# A server that has imported torch forks the ranks: importing it anew for each would take most of the time.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed", "torch.optim", "torch._dynamo", "numpy"])


@dataclass(frozen=True)
class Outcome:
    """What became of a rank: its answer, or the text of its exception (None when it just died)."""

    answer: Any = None
    error: str | None = None
    exitcode: int | None = None


class JobError(AssertionError):
    """Some rank raised, died or did not end."""


def run(world: int, function: Callable[..., Any], *args: Any, **settings: Any) -> list[Any]:
    """Call `function(rank, *args)` on every rank within a process group; return their answers.

    Settings are those of `outcomes`.
    """
    ended = outcomes(world, function, *args, **settings)
    failed = [
        f"rank {rank}: {o.error or f'exit {o.exitcode}'}" for rank, o in enumerate(ended) if o.error or o.exitcode
    ]
    if failed:
        raise JobError("\n".join(failed))
    return [outcome.answer for outcome in ended]


def outcomes(
    world: int,
    function: Callable[..., Any],
    *args: Any,
    directory: Path,
    hosts: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    group: bool = True,
    lost: int | None = None,
) -> list[Outcome]:
    """As `run`, but tell what became of each rank.

    Args:
        world: how many ranks.
        function: importable, called with the rank and `args`.
        directory: where the ranks meet; one job may use it at a time.
        hosts: the host that each rank believes to be on.
        environment: variables for every rank.
        timeout_s: the process group's limit.
        group: whether to make a process group.
        lost: a rank that will not answer, and without which the others do not meet at the end.
    """
    meeting = directory / "meeting"
    meeting.unlink(missing_ok=True)
    ranks = []
    for rank in range(world):
        variables = dict(environment or {})
        if hosts is not None:
            variables["NCCL_HOSTID"] = hosts[rank]
        ours, theirs = _context.Pipe()
        job = (theirs, rank, world, f"file://{meeting}", timeout_s, group, lost is None, variables, function, args)
        process = _context.Process(target=_rank, args=job, daemon=True)
        process.start()
        theirs.close()
        ranks.append((process, ours))
    deadline = time.monotonic() + LIMIT_S
    try:
        heard = (pair for rank, pair in enumerate(ranks) if rank != lost)
        return [_outcome(process, ours, deadline) for process, ours in heard]
    finally:
        for process, ours in ranks:
            ours.close()
            process.kill()
            process.join()


def _outcome(process: Any, ours: Connection, deadline: float) -> Outcome:
    """Wait for a rank's answer, or for its end without one."""
    if not ours.poll(max(0.0, deadline - time.monotonic())):
        return Outcome(error=f"no answer within {LIMIT_S} s")
    try:
        answer, error = pickle.loads(ours.recv_bytes())
    except (EOFError, ConnectionResetError):
        process.join(max(1.0, deadline - time.monotonic()))
        return Outcome(exitcode=process.exitcode)
    return Outcome(answer, error)


def _rank(
    answer_to: Connection,
    rank: int,
    world: int,
    meeting: str,
    timeout_s: float,
    group: bool,
    meets: bool,
    variables: Mapping[str, str],
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(variables)
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    answer, error = None, None
    try:
        if group:
            dist.init_process_group(
                "gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s)
            )
        answer = function(rank, *args)
        if group and meets:
            dist.barrier()
    except BaseException:  # the test is to see whatever ended the rank
        error = traceback.format_exc()
    # Plain pickle: multiprocessing's would lend tensors from this process, which is about to end.
    answer_to.send_bytes(pickle.dumps((answer, error)))
    # Stay until all have answered, so that no rank sees another's connection close: the test kills this
    # process, or is gone itself, which ends the wait.
    with contextlib.suppress(EOFError, OSError):
        answer_to.recv_bytes()
    os._exit(0)

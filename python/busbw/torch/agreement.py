"""Whether all ranks of a group are about to do the same, asked before anything is sent.

Ranks that differ would add up nonsense, wait for each other for ever, or be ended by Gloo, which aborts a process that
gets more bytes than it expected. So what differs, and what one rank cannot do, is an error on all ranks, and the next
operation finds them side by side again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
import torch.distributed as dist

from busbw.torch.watch import CommunicationError, Watch

Wait = Callable[[dist.Work], None]
"""Waits for a collective, and raises its error."""


def wait_simply(work: dist.Work) -> None:
    """Wait as PyTorch does."""
    work.wait()


def agree(
    group: dist.ProcessGroup, about: str, problem: Exception | None, watch: Watch, wait: Wait
) -> CommunicationError | None:
    """Compare what the ranks of a group are about to do. Collective.

    Args:
        group: who takes part.
        about: what this rank is about to do, in words.
        problem: why it cannot.
        watch: knows the ranks by name.
        wait: how to wait.

    Returns:
        why it must not be done, None where all agree.
    """
    digest = int.from_bytes(hashlib.blake2b(about.encode(), digest_size=7).digest(), "big")
    own = torch.tensor([digest if problem is None else -1])
    every = own.new_empty(group.size())
    wait(dist.all_gather_into_tensor(every, own, group=group, async_op=True))
    if bool((every == digest).all()):
        return None
    told: list[tuple[str, str | None]] = [("", None)] * group.size()
    reason = None if problem is None else f"{type(problem).__name__}: {problem}"
    dist.all_gather_object(told, (about, reason), group=group)
    names = [watch.name(rank) for rank in dist.get_process_group_ranks(group)]
    return CommunicationError(f"busbw: {_difference(names, told)}. Nothing was sent, and the next operation may work")


def _difference(names: list[str], told: list[tuple[str, str | None]]) -> str:
    for name, (about, reason) in zip(names, told):
        if reason is not None:
            return f"{name} cannot do {about}: {reason}"
    first = told[0][0]
    other = next(place for place, (about, _) in enumerate(told) if about != first)
    return f"ranks ask for different operations: {names[0]} for {first}, {names[other]} for {told[other][0]}"

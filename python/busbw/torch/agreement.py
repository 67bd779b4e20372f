"""Whether all ranks of a group are about to do the same, asked before anything is sent.

Ranks that differ would add up nonsense, wait for each other for ever, or be ended by Gloo, which aborts a process that
gets more bytes than it expected. So what differs, and what one rank cannot do, is an error on all ranks, and the next
operation finds them side by side again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from busbw.torch.recorded import recorded
from busbw.torch.watch import CommunicationError, Watch

Wait = Callable[[dist.Work], None]
"""Waits for a collective, and raises its error."""


def wait_simply(work: dist.Work) -> None:
    """Wait as PyTorch does."""
    work.wait()


class DisagreementError(CommunicationError):
    """Ranks are about to do different things, or one cannot do its part. Nothing was sent."""


class Absence(Protocol):
    """How a rank that has joined, having no more data, takes part in what the others do. It travels pickled."""

    def stand_in(self, group: dist.ProcessGroup, wait: Wait) -> None:
        """Take part with what changes nothing."""


@dataclass(frozen=True)
class Part:
    """What a rank is about to do.

    Attributes:
        about: in words.
        reason: why it cannot; None if it can.
        absence: how ranks that have joined take part; None if they cannot.
        joins: whether it does whatever the others do, until all join.
    """

    about: str
    reason: str | None = None
    absence: Absence | None = None
    joins: bool = False


def agree(group: dist.ProcessGroup, part: Part, watch: Watch, wait: Wait) -> Absence | None:
    """Compare what the ranks of a group are about to do. Collective.

    Args:
        group: who takes part.
        part: what this rank is about to do.
        watch: knows the ranks by name.
        wait: how to wait.

    Returns:
        None where this rank does its part; where it has joined and others have not, how to take part in theirs.

    Raises:
        DisagreementError: none of it must be done.
    """
    digest = int.from_bytes(hashlib.blake2b(part.about.encode(), digest_size=7).digest(), "big")
    own = torch.tensor([digest if part.reason is None else -1])
    every = own.new_empty(group.size())
    with recorded(group, "all_gather", own):
        wait(dist.all_gather_into_tensor(every, own, group=group, async_op=True))
    if bool((every == digest).all()):
        return None
    told = [part] * group.size()
    dist.all_gather_object(told, part, group=group)
    names = [watch.name(rank) for rank in dist.get_process_group_ranks(group)]
    difference = _difference(names, told)
    if difference is not None:
        raise DisagreementError(f"busbw: {difference}. Nothing was sent, and the next operation may work")
    return next(other.absence for other in told if not other.joins) if part.joins else None


def _difference(names: list[str], told: list[Part]) -> str | None:
    for name, part in zip(names, told):
        if part.reason is not None:
            return f"{name} cannot do {part.about}: {part.reason}"
    (first, part), *others = ((name, part) for name, part in zip(names, told) if not part.joins)
    for name, other in others:
        if other.about != part.about:
            return f"ranks ask for different operations: {first} for {part.about}, {name} for {other.about}"
    joined = [name for name, part in zip(names, told) if part.joins]
    if joined and part.absence is None:
        return f"{first} asks for {part.about}, in which {joined[0]} cannot take part: it has no more data (join)"
    return None

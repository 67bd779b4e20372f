"""The few collectives that two-level and compressed averaging are made of, on flat tensors.

Each waits as its caller says: a stage's thread waits with Gloo; with NCCL only the current stream does.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from busbw.torch.agreement import Wait, wait_simply
from busbw.torch.recorded import recorded


def all_reduce(flat: torch.Tensor, group: dist.ProcessGroup, wait: Wait = wait_simply) -> torch.Tensor:
    """Sum `flat`, shape `[n]`, over the ranks of `group`, in place; return it."""
    with recorded(group, "all_reduce", flat):
        wait(dist.all_reduce(flat, group=group, async_op=True))
    return flat


def reduce_scatter(flat: torch.Tensor, group: dist.ProcessGroup, wait: Wait = wait_simply) -> torch.Tensor:
    """Sum `flat` over the ranks of `group` and return this rank's part of it.

    Args:
        flat: shape `[n]`, not changed.
        group: its ranks take the parts in order.
        wait: waits for a collective.

    Returns:
        shape `[ceil(n / ranks)]`; the last parts are filled up with zeros.
    """
    ranks = group.size()
    padded = _padded(flat, ranks)
    part = padded.new_empty(padded.numel() // ranks)
    if group._get_backend(flat.device).name() != dist.Backend.GLOO:
        wait(dist.reduce_scatter_tensor(part, padded, group=group, async_op=True))
        return part
    # Gloo's reduce-scatter is an all-reduce of everything, of which a part is kept. Exchanging the parts
    # and adding them here moves half as many bytes.
    received = torch.empty_like(padded)
    with recorded(group, "reduce_scatter", part):
        wait(dist.all_to_all_single(received, padded, group=group, async_op=True))
    return torch.sum(received.view(ranks, -1), dim=0, out=part)


def all_gather(
    part: torch.Tensor, group: dist.ProcessGroup, wait: Wait = wait_simply, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Put the parts of all ranks of `group` together, in order.

    Args:
        part: shape `[m]`, the same on every rank.
        group: who takes part.
        wait: waits for a collective.
        out: shape `[ranks * m]`, contiguous, written in place; None allocates.
    """
    if out is None:
        out = part.new_empty(part.numel() * group.size())
    with recorded(group, "all_gather", part):
        wait(dist.all_gather_into_tensor(out, part, group=group, async_op=True))
    return out


def _padded(flat: torch.Tensor, parts: int) -> torch.Tensor:
    missing = -flat.numel() % parts
    return torch.nn.functional.pad(flat, (0, missing)) if missing else flat

"""What each collective does with the tensors that a rank hands in together, in the thread of its lane.

Gloo and NCCL know the types of `_SENT`. Others travel as bytes, and are added up in the next wider type.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from busbw.torch.agreement import Wait


class ReduceOp(enum.Enum):
    """What to make of the values of all ranks."""

    AVERAGE = "Average"
    SUM = "Sum"
    ADASUM = "Adasum"
    MIN = "Min"
    MAX = "Max"
    PRODUCT = "Product"


Average, Sum, Adasum = ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.ADASUM
Min, Max, Product = ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT

Tensors = Sequence[torch.Tensor]
Operation = Callable[[Tensors, Wait], Any]

_TORCH_OPS = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}

# What both ProcessGroupGloo.cpp (GENERATE_ALL_TYPES) and NCCLUtils.cpp (ncclDataType) of PyTorch 2.15 know.
_SENT = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
}
_WIDER = {torch.int16: torch.int32}


@dataclass(frozen=True)
class Reduction:
    """How tensors are reduced; what a rank that has joined needs to take part with zeros is `Absence`.

    Attributes:
        op: what to make of the values.
        prescale: multiplies them before.
        postscale: multiplies the result.
    """

    op: ReduceOp
    prescale: float = 1.0
    postscale: float = 1.0

    def __str__(self) -> str:
        factors = ((self.prescale, "prescaled by"), (self.postscale, "postscaled by"))
        return " ".join([self.op.value, *(f"{what} {factor}" for factor, what in factors if factor != 1)])

    def before(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what travels of a tensor, contiguous; the tensor itself where it can."""
        scaled = _scaled(tensor.contiguous(), self.prescale)
        return scaled.to(_WIDER.get(tensor.dtype, tensor.dtype))

    def after(self, total: torch.Tensor, ranks: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the result, of what was added up."""
        if self.op is Average:
            total = total.div_(ranks, rounding_mode="trunc" if _is_whole(total) else None)
        return _scaled(total.to(dtype), self.postscale)


@dataclass(frozen=True)
class Absence:
    """What a rank that has no more data needs to take part in a reduction."""

    reduction: Reduction
    shapes: tuple[tuple[torch.Size, torch.dtype], ...]

    def stand_in(self, group: dist.ProcessGroup, wait: Wait) -> None:
        """Reduce zeros with the others."""
        reduce_in_place(self.reduction, group)([torch.zeros(shape, dtype=dtype) for shape, dtype in self.shapes], wait)


def check_reducible(tensors: Tensors, op: ReduceOp) -> None:
    """Refuse what cannot be reduced, before anything is sent: in the middle of it, it would look like a broken network.

    Raises:
        ValueError: the type cannot be reduced so.
    """
    for dtype in (tensor.dtype for tensor in tensors):
        # PyTorch adds up complex numbers as pairs of real ones.
        is_sum_of_pairs = dtype.is_complex and op in (Average, Sum)
        if dtype not in _SENT and dtype not in _WIDER and not is_sum_of_pairs:
            raise ValueError(f"busbw.horovod: tensors of {dtype} cannot be reduced by {op.value}; convert them")


def reduce_in_place(reduction: Reduction, group: dist.ProcessGroup) -> Operation:
    """Reduce each tensor over all ranks, in its place."""

    def reduce(tensors: Tensors, wait: Wait) -> Tensors:
        for tensor in tensors:
            whole = reduction.before(tensor.detach())
            wait(dist.all_reduce(whole, _TORCH_OPS[reduction.op], group=group, async_op=True))
            tensor.detach().copy_(reduction.after(whole, group.size(), tensor.dtype))
        return tensors

    return reduce


def gather(group: dist.ProcessGroup) -> Operation:
    """Put the rows of all ranks together, of which each may have another number."""

    def gather_each(tensors: Tensors, wait: Wait) -> list[torch.Tensor]:
        own = torch.tensor([tensor.shape[0] for tensor in tensors], device=tensors[0].device)
        counts = own.new_empty(group.size() * len(tensors))
        wait(dist.all_gather_into_tensor(counts, own, group=group, async_op=True))
        each = counts.view(group.size(), len(tensors)).t().tolist()
        return [_gather_rows(tensor, rows, group, wait) for tensor, rows in zip(tensors, each)]

    return gather_each


def broadcast_in_place(root_rank: int, group: dist.ProcessGroup) -> Operation:
    """Overwrite each tensor with that of a rank."""

    def send(tensors: Tensors, wait: Wait) -> Tensors:
        for tensor in tensors:
            whole = tensor.detach().contiguous()
            wait(dist.broadcast(_as_sent(whole), root_rank, group=group, async_op=True))
            tensor.detach().copy_(whole)
        return tensors

    return send


def exchange(counts: list[int], group: dist.ProcessGroup) -> Operation:
    """Send each rank so many rows; the result is what was received, and how many rows of each."""

    def exchange_rows(tensors: Tensors, wait: Wait) -> tuple[torch.Tensor, torch.Tensor]:
        [rows] = tensors
        sent = torch.tensor(counts, device=rows.device)
        received = torch.empty_like(sent)
        wait(dist.all_to_all_single(received, sent, group=group, async_op=True))
        out = rows.new_empty((int(received.sum()), *rows.shape[1:]))
        _all_to_all(out, rows, received.tolist(), counts, group, wait)
        return out, received.to("cpu", torch.int32)

    return exchange_rows


def reduce_and_scatter(reduction: Reduction, group: dist.ProcessGroup) -> Operation:
    """Reduce each tensor and keep this rank's rows; the first ranks have one more if need be."""
    ranks, place = group.size(), group.rank()

    def reduce(tensor: torch.Tensor, wait: Wait) -> torch.Tensor:
        every, more = divmod(tensor.shape[0], ranks)
        counts = [every + (other < more) for other in range(ranks)]
        rows = reduction.before(tensor)
        parts = rows.new_empty((ranks * counts[place], *rows.shape[1:]))
        _all_to_all(parts, rows, [counts[place]] * ranks, counts, group, wait)
        total = parts.view(ranks, counts[place], *rows.shape[1:]).sum(0, dtype=rows.dtype)
        return reduction.after(total, ranks, tensor.dtype)

    return lambda tensors, wait: [reduce(tensor, wait) for tensor in tensors]


def _gather_rows(own: torch.Tensor, rows: list[int], group: dist.ProcessGroup, wait: Wait) -> torch.Tensor:
    padded = own.new_zeros((max(rows), *own.shape[1:]))
    padded[: own.shape[0]] = own
    parts = [torch.empty_like(padded) for _ in rows]
    wait(dist.all_gather([_as_sent(part) for part in parts], _as_sent(padded), group=group, async_op=True))
    return torch.cat([part[:count] for part, count in zip(parts, rows)])


def _all_to_all(
    out: torch.Tensor, rows: torch.Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup, wait: Wait
) -> None:
    wait(dist.all_to_all_single(_as_sent(out), _as_sent(rows), received, sent, group=group, async_op=True))


def _as_sent(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor as its backend sends it: rows of bytes where it does not know the type."""
    if tensor.dtype in _SENT:
        return tensor
    rows = tensor.shape[0] if tensor.dim() else 1
    return tensor.view(rows, math.prod(tensor.shape[1:])).view(torch.uint8)


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiply, in float64 for whole numbers and at least float32 for others, as Horovod does; keep the type."""
    if factor == 1:
        return tensor
    wide = torch.float64 if _is_whole(tensor) else torch.promote_types(tensor.dtype, torch.float32)
    return tensor.to(wide).mul(factor).to(tensor.dtype)


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())

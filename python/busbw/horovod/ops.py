"""Collectives by Horovod's names: each at once, asynchronous (`synchronize` its handle), and in place (`_`).

Every operation runs in the order in which it was submitted, on every rank the same; names are not needed. Nothing here
loses anything: two-level and top-k all-reduce are for the gradients of `DistributedOptimizer`. Results carry no
gradients: autograd does not go through them.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from busbw.horovod.compression import Compression, NoneCompressor
from busbw.horovod.job import ProcessSet, global_process_set, job
from busbw.torch.agreement import Wait
from busbw.torch.pipeline import Pending


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

_TORCH_OPS = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}

Handle = int
"""What an asynchronous operation returns, for `poll` and `synchronize`."""

_pending: dict[Handle, Pending] = {}
_handles = itertools.count(1)


def poll(handle: Handle) -> bool:
    """Return whether an operation has ended, so that `synchronize` would not wait."""
    return _known(handle).done()


def synchronize(handle: Handle) -> Any:  # noqa: ANN401 (each operation has its own)
    """Wait for an operation and return its result.

    Raises:
        ValueError: the handle is unknown, or was synchronized before.
        HorovodInternalError: a rank has died, is stuck or asks for something else; it is named. Where ranks only
            disagreed, the next operation works again.
    """
    pending = _known(handle)
    del _pending[handle]
    return pending.wait()


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to reduce a tensor over all ranks in place. See `allreduce`."""
    return _grouped_allreduce([tensor], _op(average, op), prescale_factor, postscale_factor, process_set, single=True)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to reduce a copy of a tensor over all ranks. See `allreduce`."""
    return allreduce_async_(_copy(tensor), average, name, op, prescale_factor, postscale_factor, process_set)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[NoneCompressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over all ranks.

    Args:
        tensor: any shape, the same on every rank; not changed.
        average: old way to ask for `Average` (True) or `Sum` (False).
        name: not needed.
        compression: in which type it travels.
        op: `Average` (the default), `Sum`, `Min`, `Max` or `Product`. `Average` of whole numbers rounds towards zero.
        prescale_factor: multiplies the tensor before.
        postscale_factor: multiplies the result.
        process_set: who takes part.

    Returns:
        the same shape and type.

    Raises:
        ValueError: `average` and `op` are both given.
        NotImplementedError: `op` is Adasum.
        HorovodInternalError: a rank has died, is stuck, or asks for something else.
    """
    small, context = compression.compress(_copy(tensor))
    handle = allreduce_async_(small, average, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(synchronize(handle), context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over all ranks in place. See `allreduce`."""
    handle = allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)
    reduced: torch.Tensor = synchronize(handle)
    return reduced


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to reduce several tensors in place, as one operation. See `allreduce`."""
    return _grouped_allreduce(list(tensors), _op(average, op), prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to reduce copies of several tensors, as one operation. See `allreduce`."""
    copies = [_copy(tensor) for tensor in tensors]
    return grouped_allreduce_async_(copies, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[NoneCompressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce several tensors, as one operation. See `allreduce`."""
    small, contexts = zip(*(compression.compress(_copy(tensor)) for tensor in tensors))
    handle = grouped_allreduce_async_(small, average, name, op, prescale_factor, postscale_factor, process_set)
    reduced = zip(synchronize(handle), contexts)
    return [compression.decompress(tensor, context) for tensor, context in reduced]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce several tensors in place, as one operation. See `allreduce`."""
    handle = grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
    reduced: list[torch.Tensor] = synchronize(handle)
    return reduced


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begin to put the tensors of all ranks together. See `allgather`."""
    group = process_set.member_group()

    def gather(own: torch.Tensor, wait: Wait) -> torch.Tensor:
        rows = _gather_rows(own, group, wait)
        padded = own.new_zeros((max(rows), *own.shape[1:]))
        padded[: own.shape[0]] = own
        parts = [torch.empty_like(padded) for _ in rows]
        wait(dist.all_gather(parts, padded, group=group, async_op=True))
        return torch.cat([part[:count] for part, count in zip(parts, rows)])

    own = _rows(_copy(tensor))
    return _submit(own, gather, f"allgather of {_kind(own, rows=False)}", group)


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Put the tensors of all ranks together along the first dimension, in the order of ranks.

    Args:
        tensor: shape `[rows, ...]`; ranks may differ in rows.
        name: not needed.
        process_set: who takes part.

    Returns:
        shape `[all rows, ...]`.
    """
    gathered: torch.Tensor = synchronize(allgather_async(tensor, name, process_set))
    return gathered


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begin to overwrite a tensor with that of a rank. See `broadcast`."""
    group = process_set.member_group()
    if root_rank not in process_set.ranks:
        raise ValueError(f"broadcast from rank {root_rank}, which is not in {process_set}")

    def send(own: torch.Tensor, wait: Wait) -> torch.Tensor:
        whole = own.contiguous()
        wait(dist.broadcast(whole, root_rank, group=group, async_op=True))
        return own if whole is own else own.copy_(whole)

    return _submit(tensor.detach(), send, f"broadcast of {_kind(tensor)} from rank {root_rank}", group)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begin to get the tensor of a rank. See `broadcast`."""
    return broadcast_async_(_copy(tensor), root_rank, name, process_set)


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensor of a rank, counted in the whole job; all hand in one of its shape and type."""
    sent: torch.Tensor = synchronize(broadcast_async(tensor, root_rank, name, process_set))
    return sent


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Overwrite a tensor with that of a rank. See `broadcast`."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to send each rank its rows. See `alltoall`."""
    group = process_set.member_group()
    own = _rows(_copy(tensor))
    if splits is None and own.shape[0] % group.size():
        raise ValueError(f"{own.shape[0]} rows do not divide among {group.size()} ranks: say how with splits")
    counts = [own.shape[0] // group.size()] * group.size() if splits is None else [int(count) for count in splits]
    if len(counts) != group.size() or sum(counts) != own.shape[0]:
        raise ValueError(f"splits {counts} do not make the {own.shape[0]} rows of {group.size()} ranks")

    def exchange(rows: torch.Tensor, wait: Wait) -> Any:  # noqa: ANN401 (with or without splits)
        received = _exchange_counts(counts, rows.device, group, wait)
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        wait(dist.all_to_all_single(out, rows, received, counts, group=group, async_op=True))
        return out if splits is None else (out, torch.tensor(received, dtype=torch.int32))

    return _submit(own, exchange, f"alltoall of {_kind(own, rows=False)}", group)


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:  # noqa: ANN401 (as Horovod's)
    """Send each rank its rows, and get those that others have for this one.

    Args:
        tensor: shape `[rows, ...]`, those for rank 0 first.
        splits: how many rows each rank gets; None for the same number.
        name: not needed.
        process_set: who takes part.

    Returns:
        the received rows, in the order of ranks; with `splits` a pair of these and of how many came from each.

    Raises:
        ValueError: the rows do not divide so.
    """
    return synchronize(alltoall_async(tensor, splits, name, process_set))


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Begin to reduce rows, each rank its part. See `reducescatter`."""
    group = process_set.member_group()
    if op not in (Average, Sum):
        raise NotImplementedError(f"reducescatter makes Average or Sum, not {op.value}")
    ranks, own = group.size(), _copy(tensor)
    every, more = divmod(own.shape[0], ranks)
    counts = [every + (place < more) for place in range(ranks)]
    mine = counts[group.rank()]

    def reduce(rows: torch.Tensor, wait: Wait) -> torch.Tensor:
        rows = rows * prescale_factor if prescale_factor != 1 else rows
        parts = rows.new_empty((ranks, mine, *rows.shape[1:]))
        received = parts.view(ranks * mine, *rows.shape[1:])
        wait(dist.all_to_all_single(received, rows, [mine] * ranks, counts, group=group, async_op=True))
        return _finished(parts.sum(0), op, ranks, postscale_factor)

    return _submit(own, reduce, f"reducescatter {op.value} of {_kind(own)}", group)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[NoneCompressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce a tensor of shape `[rows, ...]` and return this rank's rows; the first ranks have one more if need be."""
    small, context = compression.compress(tensor)
    handle = reducescatter_async(small, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(synchronize(handle), context)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks have come here."""
    allreduce(torch.zeros(1), op=Sum, process_set=process_set)


def join(device: int = -1) -> int:
    """Wait until every rank has no more data; return the rank that came last.

    All ranks must have made the same steps by then: unlike Horovod's, this does not stand in with zeros for ranks that
    have ended early. With data that does not divide evenly use `drop_last=True` in the sampler or loader.
    """
    group = global_process_set.member_group()
    store = dist.distributed_c10d._get_default_store()
    round_number = store.add(f"busbw/join/{job().rank}", 1)
    place = store.add(f"busbw/join/round/{round_number}", 1)
    last = job().rank if place == group.size() else -1
    return int(allreduce(torch.tensor([last]), op=Max).item())


def _known(handle: Handle) -> Pending:
    if handle not in _pending:
        raise ValueError(f"handle {handle} is unknown, or was synchronized before")
    return _pending[handle]


def _submit(
    tensor: torch.Tensor, operation: Callable[[torch.Tensor, Wait], Any], about: str, group: dist.ProcessGroup
) -> Handle:
    handle = next(_handles)
    _pending[handle] = job().submit(tensor, operation, about, group)
    return handle


def _kind(tensor: torch.Tensor, rows: bool = True) -> str:
    """Say what must be the same on all ranks: type and shape, of which the `rows` may differ in some operations."""
    shape = ", ".join(map(str, tensor.shape if rows else ("any", *tensor.shape[1:])))
    return f"{str(tensor.dtype).removeprefix('torch.')} [{shape}]"


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def _op(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    if average is not None and op is not None:
        raise ValueError("average and op say the same: give op only")
    chosen = op if op is not None else (Sum if average is False else Average)
    if chosen is Adasum:
        raise NotImplementedError("busbw.horovod has no Adasum: use op=Average")
    return chosen


def _grouped_allreduce(
    tensors: list[torch.Tensor],
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    single: bool = False,
) -> Handle:
    """Reduce tensors in place. `single`: the result is the only tensor, not a list."""
    group = process_set.member_group()

    def reduce(_: torch.Tensor, wait: Wait) -> Any:  # noqa: ANN401
        for tensor in tensors:
            whole = tensor.detach().contiguous()
            if prescale != 1:
                whole.mul_(prescale)
            wait(dist.all_reduce(whole, _TORCH_OPS[op], group=group, async_op=True))
            tensor.detach().copy_(_finished(whole, op, group.size(), postscale))
        return tensors[0] if single else tensors

    if not tensors:
        raise ValueError("there is no tensor to reduce")
    about = f"allreduce {op.value} of {' and '.join(map(_kind, tensors))}"
    return _submit(tensors[0].detach(), reduce, about, group)


def _finished(total: torch.Tensor, op: ReduceOp, ranks: int, postscale: float) -> torch.Tensor:
    if op is Average:
        total = total.div_(ranks) if total.is_floating_point() else total.div_(ranks, rounding_mode="trunc")
    return total.mul_(postscale) if postscale != 1 else total


def _gather_rows(own: torch.Tensor, group: dist.ProcessGroup, wait: Wait) -> list[int]:
    count = torch.tensor([own.shape[0]], device=own.device)
    counts = count.new_empty(group.size())
    wait(dist.all_gather_into_tensor(counts, count, group=group, async_op=True))
    return [int(count) for count in counts.tolist()]


def _exchange_counts(counts: list[int], device: torch.device, group: dist.ProcessGroup, wait: Wait) -> list[int]:
    sent = torch.tensor(counts, device=device)
    received = torch.empty_like(sent)
    wait(dist.all_to_all_single(received, sent, group=group, async_op=True))
    return [int(count) for count in received.tolist()]

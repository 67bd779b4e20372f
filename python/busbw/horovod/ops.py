"""Collectives by Horovod's names: each at once, asynchronous (`synchronize` its handle), and in place (`_`).

Every operation runs in the order in which it was submitted, on every rank the same. Names are for messages, and no two
operations of one name are under way at once. Nothing here loses anything: two-level and top-k all-reduce are for the
gradients of `DistributedOptimizer`. Gradients flow through the results of operations that are neither asynchronous nor
in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch
import torch.distributed as dist

from busbw.horovod.compression import Compression, NoneCompressor
from busbw.horovod.gradients import carried
from busbw.horovod.handles import (
    Handle,
    begin_gather,
    begin_reduce,
    begin_scatter,
    copy_of,
    kind_of,
    submit,
    synchronize,
    with_rows,
)
from busbw.horovod.job import ProcessSet, global_process_set, job
from busbw.horovod.operations import (
    Absence,
    Adasum,
    Average,
    Max,
    ReduceOp,
    Reduction,
    Sum,
    Tensors,
    broadcast_in_place,
    exchange,
    reduce_in_place,
)


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
    reduction = Reduction(_op(average, op), prescale_factor, postscale_factor)
    return begin_reduce([tensor], reduction, name, process_set, itemgetter(0))


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
    return allreduce_async_(copy_of(tensor), average, name, op, prescale_factor, postscale_factor, process_set)


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
        name: for messages.
        compression: in which type it travels.
        op: `Average` (the default), `Sum`, `Min`, `Max` or `Product`. `Average` of whole numbers rounds towards zero.
        prescale_factor: multiplies the tensor before.
        postscale_factor: multiplies the result.
        process_set: who takes part.

    Returns:
        the same shape and type.

    Raises:
        ValueError: `average` and `op` are both given, or the type cannot be reduced.
        NotImplementedError: `op` is Adasum.
        HorovodInternalError: a rank has died, is stuck, or asks for something else, such as another shape or type.
    """
    settings = (average, name, compression, op, prescale_factor, postscale_factor, process_set)
    return grouped_allreduce([tensor], *settings)[0]


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
    reduction = Reduction(_op(average, op), prescale_factor, postscale_factor)
    return begin_reduce(list(tensors), reduction, name, process_set, list)


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
    copies = [copy_of(tensor) for tensor in tensors]
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
    small, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    factors, chosen = (prescale_factor, postscale_factor), _op(average, op)

    def run(tensors: Tensors) -> list[torch.Tensor]:
        reduced: list[torch.Tensor] = synchronize(
            grouped_allreduce_async(tensors, None, name, chosen, *factors, process_set)
        )
        return reduced

    def back(gradients: Tensors) -> list[torch.Tensor]:
        return grouped_allreduce(gradients, None, None, Compression.none, chosen, *factors, process_set)

    reduced = zip(carried(small, run, back), contexts)
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
    return begin_gather([tensor], name, process_set, itemgetter(0))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Put the tensors of all ranks together along the first dimension, in the order of ranks.

    Args:
        tensor: shape `[rows, ...]`; ranks may differ in rows.
        name: for messages.
        process_set: who takes part.

    Returns:
        shape `[all rows, ...]`.
    """
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begin to put several tensors of all ranks together, as one operation. See `allgather`."""
    return begin_gather(tensors, name, process_set, list)


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Put several tensors of all ranks together, as one operation. See `allgather`."""
    shapes = [tensor.shape for tensor in tensors]
    rows = torch.tensor([with_rows(tensor).shape[0] for tensor in tensors])

    def run(tensors: Tensors) -> list[torch.Tensor]:
        gathered: list[torch.Tensor] = synchronize(grouped_allgather_async(tensors, name, process_set))
        return gathered

    def back(gradients: Tensors) -> list[torch.Tensor]:
        means = grouped_allreduce(gradients, op=Average, process_set=process_set)
        begins = allgather(rows[None], process_set=process_set)[: process_set.rank()].sum(0)
        own = zip(means, begins.tolist(), rows.tolist(), shapes)
        return [mean.narrow(0, begin, count).view(shape) for mean, begin, count, shape in own]

    return carried(tensors, run, back)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begin to overwrite a tensor with that of a rank. See `broadcast`."""
    if root_rank not in process_set.ranks:
        raise ValueError(f"broadcast from rank {root_rank}, which is not in {process_set}")
    operation = broadcast_in_place(root_rank, process_set.member_group())
    what = f"{kind_of(tensor)} from rank {root_rank}"
    return submit(("broadcast", name, what), [tensor], operation, process_set, itemgetter(0))


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begin to get the tensor of a rank. See `broadcast`."""
    return broadcast_async_(copy_of(tensor), root_rank, name, process_set)


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the tensor of a rank, counted in the whole job; all hand in one of its shape and type."""

    def run(tensors: Tensors) -> list[torch.Tensor]:
        return [synchronize(broadcast_async(tensors[0], root_rank, name, process_set))]

    def back(gradients: Tensors) -> list[torch.Tensor]:
        mean = allreduce(gradients[0], op=Average, process_set=process_set)
        return [mean if job().rank == root_rank else torch.zeros_like(mean)]

    return carried([tensor], run, back)[0]


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
    own, group = with_rows(copy_of(tensor)), process_set.member_group()
    operation = exchange(_splits(splits, own.shape[0], group.size()), group)
    result = itemgetter(0) if splits is None else tuple
    return submit(("alltoall", name, kind_of(own, rows=False)), [own], operation, process_set, result)


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
        name: for messages.
        process_set: who takes part.

    Returns:
        the received rows, in the order of ranks; with `splits` a pair of these and of how many came from each.

    Raises:
        ValueError: the rows do not divide so, or `splits` are no whole numbers.
    """
    counts = _splits(splits, with_rows(tensor).shape[0], process_set.member_group().size())
    received: list[torch.Tensor] = []

    def run(tensors: Tensors) -> list[torch.Tensor]:
        rows, each = synchronize(alltoall_async(tensors[0], counts, name, process_set))
        received.append(each)
        return [rows]

    def back(gradients: Tensors) -> list[torch.Tensor]:
        return [alltoall(gradients[0], received[0], process_set=process_set)[0].view(tensor.shape)]

    [rows] = carried([tensor], run, back)
    return rows if splits is None else (rows, received[0])


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Begin to reduce rows, each rank its part. See `reducescatter`."""
    reduction = Reduction(op, prescale_factor, postscale_factor)
    return begin_scatter([tensor], reduction, name, process_set, itemgetter(0))


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
    settings = (name, compression, op, process_set, prescale_factor, postscale_factor)
    return grouped_reducescatter([tensor], *settings)[0]


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Begin to reduce the rows of several tensors, each rank its part. See `reducescatter`."""
    return begin_scatter(tensors, Reduction(op, prescale_factor, postscale_factor), name, process_set, list)


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: type[NoneCompressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduce the rows of several tensors, as one operation. See `reducescatter`."""
    small, contexts = zip(*(compression.compress(tensor) for tensor in tensors))

    def run(tensors: Tensors) -> list[torch.Tensor]:
        settings = (name, op, process_set, prescale_factor, postscale_factor)
        scattered: list[torch.Tensor] = synchronize(grouped_reducescatter_async(tensors, *settings))
        return scattered

    def back(gradients: Tensors) -> list[torch.Tensor]:
        factor = prescale_factor * postscale_factor * (process_set.size() if op is Sum else 1)
        return grouped_allgather([gradient * factor for gradient in gradients], process_set=process_set)

    scattered = zip(carried(small, run, back), contexts)
    return [compression.decompress(tensor, context) for tensor, context in scattered]


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: ReduceOp, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Begin to add up sparse tensors of all ranks; return what waits for the result, which is sparse."""
    own = tensor.detach().coalesce()
    parts = [own.indices().t().contiguous(), own.values()]
    handle = grouped_allgather_async(parts, name and f"{name}.sparse", process_set)

    def wait() -> torch.Tensor:
        places, values = synchronize(handle)
        values = values / process_set.size() if op is Average else values
        return torch.sparse_coo_tensor(places.t(), values, tensor.shape).coalesce()

    return wait


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks have come here."""
    group, nothing, reduction = process_set.member_group(), torch.zeros(1), Reduction(Sum)
    absence = Absence(reduction, ((nothing.shape, nothing.dtype),))
    job().submit([nothing], reduce_in_place(reduction, group), "barrier", group, absence).wait()


def join(device: int = -1) -> int:
    """Wait until every rank has no more data; return the rank that came last.

    Until then this rank takes part with zeros in what the others reduce: `allreduce`, and the steps of
    `DistributedOptimizer` on CPUs. Whatever else they ask for is an error on them.
    """
    store = dist.distributed_c10d._get_default_store()
    round_number = store.add(f"busbw/join/{job().rank}", 1)
    place = store.add(f"busbw/join/round/{round_number}", 1)
    last = torch.tensor([job().rank if place == global_process_set.size() else -1])
    group = global_process_set.member_group()
    operation = reduce_in_place(Reduction(Max), group)
    return int(job().submit([last], operation, "join", group, joins=True).wait()[0])


def _splits(splits: torch.Tensor | Sequence[int] | None, rows: int, ranks: int) -> list[int]:
    """Return how many rows each rank gets."""
    if splits is None:
        if rows % ranks:
            raise ValueError(f"{rows} rows do not divide among {ranks} ranks: say how with splits")
        return [rows // ranks] * ranks
    if isinstance(splits, torch.Tensor) and splits.is_floating_point():
        raise ValueError(f"splits are whole numbers of rows, not {splits.dtype}")
    counts = [int(count) for count in splits]
    if len(counts) != ranks or sum(counts) != rows:
        raise ValueError(f"splits {counts} do not make the {rows} rows of {ranks} ranks")
    return counts


def _op(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    if average is not None and op is not None:
        raise ValueError("average and op say the same: give op only")
    chosen = op if op is not None else (Sum if average is False else Average)
    if chosen is Adasum:
        raise NotImplementedError("busbw.horovod has no Adasum: use op=Average")
    return chosen

"""Operations under way: how they are begun, each known by a handle, and waited for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from busbw.horovod.job import ProcessSet, job
from busbw.horovod.operations import (
    Absence,
    Average,
    Operation,
    Reduction,
    Sum,
    Tensors,
    check_reducible,
    gather,
    reduce_and_scatter,
    reduce_in_place,
)
from busbw.torch.pipeline import Pending

Handle = int
"""What an asynchronous operation returns, for `poll` and `synchronize`."""

Result = Callable[[Any], Any]
"""Makes of what an operation gives what `synchronize` returns: the only tensor, or a list."""


@dataclass(frozen=True)
class _Begun:
    """An operation that nobody has waited for yet. `name`: with its kind and process set; None where it has none."""

    pending: Pending
    result: Result
    name: tuple[int | None, str, str] | None


_begun: dict[Handle, _Begun] = {}
_named: dict[tuple[int | None, str, str], _Begun] = {}
_handles = itertools.count(1)


def poll(handle: Handle) -> bool:
    """Return whether an operation has ended, so that `synchronize` would not wait."""
    return _known(handle).pending.done()


def synchronize(handle: Handle) -> Any:  # noqa: ANN401 (each operation has its own)
    """Wait for an operation and return its result.

    Raises:
        ValueError: the handle is unknown, or was synchronized before.
        HorovodInternalError: a rank has died, is stuck or asks for something else; it is named. Where ranks only
            disagreed, the next operation works again.
    """
    begun = _known(handle)
    del _begun[handle]
    if begun.name is not None and _named.get(begun.name) is begun:
        del _named[begun.name]
    return begun.result(begun.pending.wait())


def _known(handle: Handle) -> _Begun:
    if handle not in _begun:
        raise ValueError(f"handle {handle} is unknown, or was synchronized before")
    return _begun[handle]


def submit(
    told: tuple[str, str | None, str],
    tensors: Tensors,
    operation: Operation,
    process_set: ProcessSet,
    result: Result,
    absence: Absence | None = None,
) -> Handle:
    """Begin an operation, told by its kind, its name and what must be alike on all ranks."""
    kind, name, what = told
    key = None if name is None else (process_set.process_set_id, kind, name)
    if key in _named and not _named[key].pending.done():
        raise ValueError(f"busbw.horovod: {kind} of {name} is still under way: synchronize it before the next")
    about = f"{kind} of {what}" if name is None else f"{kind} of {name}: {what}"
    pending = job().submit(tensors, operation, about, process_set.member_group(), absence)
    begun, handle = _Begun(pending, result, key), next(_handles)
    _begun[handle] = begun
    if key is not None:
        _named[key] = begun
    return handle


def begin_reduce(
    tensors: Tensors,
    reduction: Reduction,
    name: str | None,
    process_set: ProcessSet,
    result: Result,
) -> Handle:
    """Begin to reduce tensors in place.

    Raises:
        ValueError: a type cannot be reduced so.
    """
    check_reducible(tensors, reduction.op)
    operation = reduce_in_place(reduction, process_set.member_group())
    absence = Absence(reduction, tuple((tensor.shape, tensor.dtype) for tensor in tensors))
    told = (f"allreduce {reduction}", name, kinds_of(tensors))
    return submit(told, tensors, operation, process_set, result, absence)


def begin_gather(tensors: Tensors, name: str | None, process_set: ProcessSet, result: Result) -> Handle:
    """Begin to put tensors of all ranks together."""
    own = [with_rows(copy_of(tensor)) for tensor in tensors]
    told = ("allgather", name, kinds_of(own, rows=False))
    return submit(told, own, gather(process_set.member_group()), process_set, result)


def begin_scatter(
    tensors: Tensors,
    reduction: Reduction,
    name: str | None,
    process_set: ProcessSet,
    result: Result,
) -> Handle:
    """Begin to reduce tensors, of which each rank keeps its rows.

    Raises:
        NotImplementedError: the op is not Average or Sum.
        ValueError: a tensor has no rows, or its type cannot be reduced.
    """
    if reduction.op not in (Average, Sum):
        raise NotImplementedError(f"reducescatter makes Average or Sum, not {reduction.op.value}")
    if any(tensor.dim() == 0 for tensor in tensors):
        raise ValueError("reducescatter of a tensor without dimensions: there are no rows to scatter")
    check_reducible(tensors, reduction.op)
    own = [copy_of(tensor) for tensor in tensors]
    operation = reduce_and_scatter(reduction, process_set.member_group())
    return submit((f"reducescatter {reduction}", name, kinds_of(own)), own, operation, process_set, result)


def kinds_of(tensors: Tensors, rows: bool = True) -> str:
    """Say what must be the same on all ranks of several tensors. See `kind_of`."""
    if not tensors:
        raise ValueError("there is no tensor")
    return " and ".join(kind_of(tensor, rows) for tensor in tensors)


def kind_of(tensor: torch.Tensor, rows: bool = True) -> str:
    """Say what must be the same on all ranks: type and shape, of which the `rows` may differ in some operations."""
    shape = ", ".join(map(str, tensor.shape if rows else ("any", *tensor.shape[1:])))
    return f"{str(tensor.dtype).removeprefix('torch.')} [{shape}]"


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy without gradients."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def with_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Make one row of a number."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor

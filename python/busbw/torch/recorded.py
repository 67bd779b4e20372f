"""Events of collectives on CPUs, for `busbw profile`. On GPUs NCCL tells them itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from busbw import _native

_VARIABLE = "BUSBW_PROFILE"

_DATATYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int32: "int32",
    torch.int64: "int64",
}

_groups: WeakKeyDictionary[dist.ProcessGroup, int | None] = WeakKeyDictionary()
"""The numbers of groups, as events have them."""


@contextlib.contextmanager
def recorded(group: dist.ProcessGroup, collective: str, tensor: torch.Tensor) -> Iterator[None]:
    """Write down that a collective of `group` begins and ends, if somebody reads.

    Args:
        group: who takes part.
        collective: as nccl-tests names it.
        tensor: as many elements as NCCL's function would be told.
    """
    if not os.environ.get(_VARIABLE) or tensor.device.type != "cpu":
        yield
        return
    number = _number(group)
    begun = 0
    if number is not None:
        begun = _native.begin_operation(number, collective, _DATATYPES.get(tensor.dtype, ""), tensor.numel())
    try:
        yield
    finally:
        _native.end_operation(begun)


def _number(group: dist.ProcessGroup) -> int | None:
    if group not in _groups:
        # The job, and the group within it: the same on all its ranks.
        job = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")]
        ranks = ",".join(str(rank) for rank in dist.get_process_group_ranks(group))
        name = " ".join([*job, group.group_name, ranks])
        _groups[group] = _native.begin_group(name, group.size(), 0, group.rank())
    return _groups[group]

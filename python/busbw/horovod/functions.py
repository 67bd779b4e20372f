"""Sending whole objects: parameters, optimizer states, anything that can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from busbw.horovod.handles import synchronize
from busbw.horovod.job import ProcessSet, global_process_set, job, rank
from busbw.horovod.ops import broadcast_async_


def broadcast_object(
    obj: Any = None,  # noqa: ANN401
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:  # noqa: ANN401
    """Return the object of a rank. It is pickled: take it only from ranks of your own job."""
    box, group = [obj], process_set.member_group()
    about = f"broadcast_object from rank {root_rank}"
    _in_turn(about, group, lambda: dist.broadcast_object_list(box, root_rank, group=group))
    return box[0]


def allgather_object(
    obj: Any,  # noqa: ANN401
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all ranks, in the order of ranks. They are pickled."""
    objects: list[Any] = [None] * process_set.size()
    group = process_set.member_group()
    _in_turn("allgather_object", group, lambda: dist.all_gather_object(objects, obj, group=group))
    return objects


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]],
    root_rank: int = 0,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite parameters with those of a rank.

    Args:
        params: `model.state_dict()` or `model.named_parameters()`; what is no tensor is left alone.
        root_rank: whose parameters all are to have.
        process_set: who takes part.
    """
    pairs = params.items() if isinstance(params, Mapping) else params
    handles = [
        broadcast_async_(tensor, root_rank, name, process_set)
        for name, tensor in pairs
        if isinstance(tensor, torch.Tensor)
    ]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int = 0,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give every rank's optimizer the state and the settings of a rank's.

    Parameters without a gradient get one of zeros, as Horovod's do, so that what is done with gradients next works.

    Args:
        optimizer: over the same parameters on every rank; it may be new on all but the root.
        root_rank: whose state all are to have.
        model: not needed.
        process_set: who takes part.
    """
    is_root = rank() == root_rank
    own = optimizer.state_dict() if is_root else None
    tensors: list[torch.Tensor] = []
    plan = broadcast_object(_without_tensors(own, tensors), root_rank, process_set=process_set)
    if not is_root:
        state = _with_tensors(plan, tensors)
    broadcast_parameters(((str(place), tensor) for place, tensor in enumerate(tensors)), root_rank, process_set)
    if not is_root:
        optimizer.load_state_dict(state)
    for parameter in (p for settings in optimizer.param_groups for p in settings["params"]):
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _in_turn(about: str, group: dist.ProcessGroup, operation: Callable[[], None]) -> None:
    """Run an operation after those submitted before: they share a group."""
    job().submit([], lambda _, __: operation(), about, group).wait()


@dataclass(frozen=True)
class _Placeholder:
    """Stands for a tensor that travels by itself."""

    shape: torch.Size
    dtype: torch.dtype
    device: str


def _without_tensors(tree: Any, tensors: list[torch.Tensor]) -> Any:  # noqa: ANN401
    """Replace tensors by placeholders, and collect them."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return _Placeholder(tree.shape, tree.dtype, tree.device.type)
    if isinstance(tree, dict):
        return {key: _without_tensors(value, tensors) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_without_tensors(value, tensors) for value in tree)
    return tree


def _with_tensors(tree: Any, tensors: list[torch.Tensor]) -> Any:  # noqa: ANN401
    """Replace placeholders by new tensors, and collect these in the same order."""
    if isinstance(tree, _Placeholder):
        tensors.append(torch.empty(tree.shape, dtype=tree.dtype, device=tree.device))
        return tensors[-1]
    if isinstance(tree, dict):
        return {key: _with_tensors(value, tensors) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_with_tensors(value, tensors) for value in tree)
    return tree

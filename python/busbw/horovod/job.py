"""The job that `init` joins: its ranks, hosts, process sets, and the lanes in which operations run."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from busbw.horovod.launch import Place, meet
from busbw.horovod.light import Light
from busbw.torch.agreement import Absence, Wait
from busbw.torch.layout import HostLayout
from busbw.torch.pipeline import Collective, Pending, Pipeline, pipeline_for
from busbw.torch.reducer import GradientReducer
from busbw.torch.watch import CommunicationError, Watch

_TIMEOUT_VARIABLE = "HOROVOD_GLOO_TIMEOUT_SECONDS"
_TIMEOUT_S = 1800.0
"""How long ranks wait for each other where the variable does not say: as long as PyTorch's groups do."""

HorovodInternalError = CommunicationError
"""A collective failed, by Horovod's name."""


class ProcessSet:
    """Some ranks that communicate among themselves.

    Args:
        ranks: of the job, in any order.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = sorted(ranks)
        self.process_set_id: int | None = None
        self.group: dist.ProcessGroup | None = None
        self.gradient_group: dist.ProcessGroup | None = None

    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.ranks)

    def rank(self) -> int:
        """Return this process's place in the set, -1 where it is not in it."""
        return self.ranks.index(rank()) if self.included() else -1

    def included(self) -> bool:
        """Return whether this process is in the set."""
        return rank() in self.ranks

    def member_group(self) -> dist.ProcessGroup:
        """Return the group to communicate over.

        Raises:
            ValueError: the set was not added, or this rank is not in it.
        """
        if self.process_set_id is None:
            raise ValueError(f"{self} was not added: hand it to init(process_sets=[...]) or to add_process_set")
        if self.group is None:
            raise ValueError(f"rank {rank()} is not in {self}")
        return self.group

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet([])
"""All ranks."""


@dataclass
class Job:
    """What `init` makes."""

    rank: int
    layout: HostLayout
    light: Light
    timeout: timedelta
    owns_group: bool
    watch: Watch
    process_sets: list[ProcessSet] = field(default_factory=list)
    averagings: list[Any] = field(default_factory=list)
    """Those of all optimizers, in the order in which they were made, which is the same on all ranks."""
    _lanes: dict[torch.device, Pipeline] = field(default_factory=dict)
    _reducers: list[GradientReducer] = field(default_factory=list)

    def submit(
        self,
        tensors: Sequence[torch.Tensor],
        operation: Callable[[Any, Wait], Any],
        about: str,
        group: dist.ProcessGroup,
        absence: Absence | None = None,
        joins: bool = False,
    ) -> Pending:
        """Run an operation after those submitted before, beside what the caller goes on with.

        All ranks of the group submit the same operations, by `about`, in the same order: there is no coordinator that
        sorts them. See `Collective` for what a rank does that has no more data.
        """
        device = tensors[0].device if tensors else torch.device("cpu")
        if device not in self._lanes:
            self._lanes[device] = pipeline_for(device, ("operation",), self.watch)
        step = Collective(group, operation, absence, joins)
        return self._lanes[device].submit(tensors, {"operation": step}, about)

    def make_reducer(self, process_set: ProcessSet, device: torch.device) -> GradientReducer:
        """Make what averages gradients of a set on a device. Collective over the set.

        Sets of some ranks only have one level: the groups of a second could not be made without the other ranks.
        """
        light = self.light if process_set is global_process_set else replace(self.light, two_level=False)
        options = light.options(timeout=self.timeout)
        apart = None if process_set is global_process_set else process_set.gradient_group
        self._reducers.append(GradientReducer(process_set.member_group(), device, options, apart, self.watch))
        return self._reducers[-1]

    def add(self, process_set: ProcessSet) -> None:
        """Make the group of a set. Collective over the whole job."""
        if any(known.ranks == process_set.ranks for known in self.process_sets):
            raise ValueError(f"there is a process set of these ranks already: {process_set.ranks}")
        if not process_set.ranks or process_set.ranks[0] < 0 or process_set.ranks[-1] >= self.layout.world_size:
            raise ValueError(f"ranks are from 0 to {self.layout.world_size - 1}, not {process_set.ranks}")
        groups = [
            dist.new_group(process_set.ranks, timeout=self.timeout, backend=dist.get_backend_config()) for _ in range(2)
        ]
        process_set.group, process_set.gradient_group = (
            group if isinstance(group, dist.ProcessGroup) and self.rank in process_set.ranks else None
            for group in groups
        )
        process_set.process_set_id = 1 + max((known.process_set_id or 0 for known in self.process_sets), default=-1)
        self.process_sets.append(process_set)

    @property
    def is_idle(self) -> bool:
        """Whether every operation has ended."""
        lanes_idle = all(lane.is_idle for lane in self._lanes.values())
        return lanes_idle and all(reducer.is_idle for reducer in self._reducers)

    def close(self) -> None:
        """End threads and the group."""
        for lane in self._lanes.values():
            lane.close()
        for reducer in self._reducers:
            reducer.close()
        self.watch.close()
        for process_set in self.process_sets:
            process_set.process_set_id = process_set.group = process_set.gradient_group = None
        if self.owns_group and dist.is_initialized():
            dist.destroy_process_group()


_job: Job | None = None


def init(comm: Sequence[int] | None = None, process_sets: Sequence[ProcessSet] | None = None) -> None:
    """Join the job that mpirun, srun or torchrun has started; alone, be the only rank of one.

    A process group that exists already is used; otherwise one is made, with NCCL for tensors on GPUs and Gloo for
    others. Calling it again changes nothing.

    Args:
        comm: not supported (a list of ranks, or an MPI communicator): use process sets.
        process_sets: sets to make at once, the same on every rank.

    Raises:
        ValueError: `comm` is given, or a LIGHT_* variable or HOROVOD_GLOO_TIMEOUT_SECONDS is wrong.
        LaunchError: the launcher does not say enough.
    """
    global _job
    if comm:
        raise ValueError("busbw.horovod takes no communicator: hand the ranks to ProcessSet")
    if _job is not None:
        return
    light = Light.from_environment()
    timeout = _timeout()
    owns_group = not dist.is_initialized()
    if owns_group:
        place = Place.from_environment()
        store = _meet_again(place, timeout)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=timeout)
    everyone = dist.group.WORLD
    assert everyone is not None, "the group was just made"
    watch = Watch(everyone)
    _job = Job(dist.get_rank(), watch.layout(everyone), light, timeout, owns_group, watch)
    effect = light.effect(_job.layout) if _job.rank == 0 else None
    if effect:
        print(effect, file=sys.stderr, flush=True)
    global_process_set.ranks = list(range(dist.get_world_size()))
    # A group of its own: what the script does with PyTorch's own collectives must not come between ours.
    for process_set in (global_process_set, *(process_sets or ())):
        _job.add(process_set)


_met: tuple[Place, Store, int] | None = None


def _meet_again(place: Place, timeout: timedelta) -> Store:
    """Return the store to meet over: after `shutdown` that of before, under a new name.

    A rank that is ahead would find the first store of one that has yet to shut down, and lose it.
    """
    global _met
    store, times = (_met[1], _met[2]) if _met is not None and _met[0] == place else (meet(place, timeout), 0)
    _met = (place, store, times + 1)
    return PrefixStore(f"busbw/init/{times}", store)


def _timeout() -> timedelta:
    text = os.environ.get(_TIMEOUT_VARIABLE, str(_TIMEOUT_S))
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise ValueError(f"busbw: {_TIMEOUT_VARIABLE}={text!r}: a number of seconds is expected") from None


def shutdown() -> None:
    """Leave the job. Collectives that are under way are finished first."""
    global _job
    if _job is not None:
        _job.close()
        _job = None


def _leave() -> None:
    """Shut down at the end of the script; but where it ended in the middle of an operation, by an error, do not wait.

    The other ranks may never take their part in it: they are to see this one go.
    """
    if _job is not None and _job.is_idle:
        shutdown()


atexit.register(_leave)


def job() -> Job:
    """Return the job.

    Raises:
        ValueError: `init` was not called.
    """
    if _job is None:
        raise ValueError("busbw.horovod has not been initialized; call init() first")
    return _job


def is_initialized() -> bool:
    """Return whether `init` was called."""
    return _job is not None


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Make a process set. Collective: every rank of the job calls it, also those outside of the set.

    Raises:
        ValueError: there is one of the same ranks, or ranks are not the job's.
    """
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    job().add(made)
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a process set; return whether there was one. That of all ranks stays."""
    if process_set is global_process_set or process_set not in job().process_sets:
        return False
    job().process_sets.remove(process_set)
    process_set.process_set_id = process_set.group = process_set.gradient_group = None
    return True


def rank() -> int:
    """Return this process's rank in the job."""
    return job().rank


def size() -> int:
    """Return the number of ranks."""
    return job().layout.world_size


def local_rank() -> int:
    """Return this process's place among the ranks of its host."""
    return _own_host().index(rank())


def local_size() -> int:
    """Return the number of ranks on this host."""
    return len(_own_host())


def cross_rank() -> int:
    """Return the place of this host among those that have a rank at this process's place."""
    return [ranks[local_rank()] for ranks in _rail()].index(rank())


def cross_size() -> int:
    """Return the number of hosts that have a rank at this process's place."""
    return len(_rail())


def is_homogeneous() -> bool:
    """Return whether all hosts have the same number of ranks."""
    return job().layout.local_size is not None


def _own_host() -> tuple[int, ...]:
    return next(ranks for ranks in job().layout.hosts if rank() in ranks)


def _rail() -> list[tuple[int, ...]]:
    return [ranks for ranks in job().layout.hosts if len(ranks) > local_rank()]

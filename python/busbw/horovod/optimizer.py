"""`DistributedOptimizer`: an optimizer that averages gradients over all ranks before it steps."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from busbw.horovod.compression import Compression, NoneCompressor
from busbw.horovod.functions import allgather_object
from busbw.horovod.job import ProcessSet, global_process_set, job
from busbw.horovod.operations import Adasum, Average, ReduceOp, Sum
from busbw.horovod.ops import sparse_allreduce_async
from busbw.torch.agreement import Wait
from busbw.torch.pipeline import Pending

BUCKET_BYTES = 25 << 20
"""Gradients travel together up to this size, as in DistributedDataParallel."""


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: type[NoneCompressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:  # noqa: ANN401 (an optimizer of the class of `optimizer`, with `synchronize` and `skip_synchronize`)
    """Wrap an optimizer so that its `step` waits for the gradients of all ranks.

    Gradients leave during the backward pass, in buckets, in the same order on every rank. The LIGHT_* variables
    say whether in two levels or compressed.

    Args:
        optimizer: of any class; the result is of a class derived from it, over the same parameters and state.
        named_parameters: `model.named_parameters()`, for messages and for error feedback's checkpoints.
        compression: `Compression.fp16` halves what travels.
        backward_passes_per_step: gradients of so many backward passes are added up before they leave.
        op: `Average` or `Sum`.
        gradient_predivide_factor: not needed: gradients are always divided before they are added, never after.
        num_groups: not needed: buckets are made by size.
        groups: not needed.
        sparse_as_dense: sparse gradients travel as dense ones; without it all ranks' entries are gathered.
        process_set: who takes part; others step by themselves.

    Returns:
        the wrapped optimizer.

    Raises:
        ValueError: an argument does not fit another, or parameters lack names or share them.
        NotImplementedError: `op` is Adasum.
    """
    if op is Adasum:
        raise NotImplementedError("busbw.horovod has no Adasum: use op=Average")
    if op not in (Average, Sum):
        raise ValueError(f"gradients are reduced by Average or Sum, not {op.value}")
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor is for op=Average")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step is at least 1")
    names = _names(optimizer, named_parameters)
    wrapped = _wrapper(type(optimizer)).__new__(_wrapper(type(optimizer)))
    wrapped.__dict__.update(optimizer.__dict__)
    wrapped._averaging = _Averaging(names, compression, backward_passes_per_step, op, sparse_as_dense, process_set)
    wrapped._averaging.watch()
    # Private, but programs read it.
    wrapped._parameter_names = names
    return wrapped


class _Synchronizing:
    """What a wrapped optimizer can do beyond its own class."""

    _averaging: _Averaging

    def synchronize(self) -> None:
        """Wait until gradients are those of all ranks, as before clipping; `step` then goes in `skip_synchronize`."""
        self._averaging.finish()
        self._averaging.by_hand = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let `step` take the gradients as they are."""
        self._averaging.skips = True
        try:
            yield
        finally:
            self._averaging.skips = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes are added up."""
        self._averaging.passes = passes

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # noqa: ANN401 (as the wrapped class)
        """Average the gradients, unless that was done, and step."""
        if self._averaging.by_hand and not self._averaging.skips:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): gradients "
                "that have not changed are not averaged again",
                stacklevel=2,
            )
        if not self._averaging.skips:
            self._averaging.finish()
        self._averaging.by_hand = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients; refused while they are on their way."""
        if self._averaging.is_busy:
            raise AssertionError(
                "zero_grad() between backward() and step() or synchronize(): gradients are on their way"
            )
        super().zero_grad(set_to_none)  # type: ignore[misc]


_wrappers: dict[type, type] = {}


def _wrapper(kind: type) -> Any:  # noqa: ANN401 (a class made here)
    """Return the wrapping class of an optimizer's class, which schedulers and scalers take for that class."""
    if kind not in _wrappers:
        _wrappers[kind] = type(kind.__name__, (_Synchronizing, kind), {})
    return _wrappers[kind]


@dataclass
class _Bucket:
    """Parameters whose gradients travel together: of one type and device."""

    name: str
    parameters: list[torch.nn.Parameter]
    ready: set[int] = field(default_factory=set)
    dense: list[torch.nn.Parameter] = field(default_factory=list)
    future: torch.futures.Future[torch.Tensor] | None = None

    @property
    def device(self) -> torch.device:
        return self.parameters[0].device


@dataclass(frozen=True)
class _StepOf:
    """How a rank that has joined takes part in a step: its optimizer of this number averages zeros."""

    number: int

    def stand_in(self, group: dist.ProcessGroup, wait: Wait) -> None:
        """See `Absence`."""
        job().averagings[self.number].stand_in()


class _Averaging:
    """Sends buckets as they become ready, always in their order."""

    def __init__(
        self,
        names: dict[torch.nn.Parameter, str],
        compression: type[NoneCompressor],
        passes: int,
        op: ReduceOp,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.passes = passes
        self.skips = self.by_hand = False
        self._names = names
        self._compression = compression
        self._op = op
        self._sparse_as_dense = sparse_as_dense
        self._process_set = process_set
        self._buckets = _buckets(names) if process_set.included() and process_set.size() > 1 else []
        if self._buckets:
            _check_same(self._buckets, names, process_set)
        devices = dict.fromkeys(bucket.device for bucket in self._buckets)
        self._reducers = {device: job().make_reducer(process_set, device) for device in devices}
        self._place = {id(p): bucket for bucket in self._buckets for p in bucket.parameters}
        self._passed: dict[int, int] = {}
        self._next = 0
        self._finished = False
        # On a GPU ranks would have to wait for each other at every step.
        self._tells_steps = process_set is global_process_set and all(device.type == "cpu" for device in devices)
        self._number = len(job().averagings) if self._buckets else -1
        if self._buckets:
            job().averagings.append(self)

    @property
    def is_busy(self) -> bool:
        """Whether gradients are on their way."""
        return self._next > 0

    def watch(self) -> None:
        """Be told of every gradient when it is complete."""
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self._arrived)

    def finish(self) -> None:
        """Send what is left, and put the averages in the place of gradients."""
        if self._finished or not self._buckets:
            return
        try:
            told = self._tell_step() if self._tells_steps else None
            self._send(len(self._buckets))
            for bucket in self._buckets:
                assert bucket.future is not None, "all buckets were sent"
                self._unpack(bucket, bucket.future.wait())
            if told is not None:
                told.wait()
            self._reduce_sparse()
        finally:  # after an error, the next step begins anew
            self._forget()
        self._end_step()

    def stand_in(self) -> None:
        """Take part in a step of the others with zeros."""
        for bucket in self._buckets:
            numbers = sum(parameter.numel() for parameter in bucket.parameters)
            zeros = torch.zeros(numbers, dtype=bucket.parameters[0].dtype, device=bucket.device)
            self._reduce(bucket, self._compression.compress(zeros)[0])
        self._end_step()

    def _tell_step(self) -> Pending:
        """Tell ranks that have joined that a step comes: they wait among the other operations."""
        group = self._process_set.member_group()
        about = f"step of optimizer {self._number}"
        return job().submit([], lambda nothing, _: nothing, about, group, _StepOf(self._number))

    def _end_step(self) -> None:
        self._finished = True
        for reducer in self._reducers.values():
            reducer.end_step()

    def _forget(self) -> None:
        for bucket in self._buckets:
            bucket.future = None
            bucket.ready.clear()
        self._passed.clear()
        self._next = 0

    def _arrived(self, parameter: torch.Tensor) -> None:
        self._finished = False
        bucket = self._place[id(parameter)]
        passed = self._passed[id(parameter)] = self._passed.get(id(parameter), 0) + 1
        if passed > self.passes:
            raise AssertionError(
                f"the gradient of {self._names[parameter]} was computed {passed} times before step(): raise "  # type: ignore[index]
                f"backward_passes_per_step, which is {self.passes}"
            )
        if passed == self.passes:
            bucket.ready.add(id(parameter))
            # In their order alone, whatever arrives first: all ranks must send the same.
            ready = self._next
            while ready < len(self._buckets) and len(self._buckets[ready].ready) == len(
                self._buckets[ready].parameters
            ):
                ready += 1
            try:
                self._send(ready)
            except Exception:
                self._forget()
                raise

    def _send(self, until: int) -> None:
        for bucket in self._buckets[self._next : until]:
            bucket.future = self._reduce(bucket, self._pack(bucket))
        self._next = max(self._next, until)

    def _reduce(self, bucket: _Bucket, flat: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        divisor = None if self._op is Average else 1.0
        return self._reducers[bucket.device].reduce(bucket.name, flat, divisor=divisor)

    def _pack(self, bucket: _Bucket) -> torch.Tensor:
        """Return the bucket's gradients as they travel; a parameter that had none counts as zero."""
        for parameter in bucket.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        bucket.dense = [p for p in bucket.parameters if self._sparse_as_dense or not _is_sparse(p)]
        parts = [_dense(parameter).reshape(-1) for parameter in bucket.dense]
        flat = torch.cat(parts) if parts else bucket.parameters[0].new_empty(0)
        return self._compression.compress(flat)[0]

    def _unpack(self, bucket: _Bucket, flat: torch.Tensor) -> None:
        parts = flat.split([parameter.numel() for parameter in bucket.dense])
        for parameter, part in zip(bucket.dense, parts):
            mean = part.view_as(parameter)
            if _is_sparse(parameter):
                parameter.grad = mean.to(parameter.dtype).to_sparse(1)
            else:
                assert parameter.grad is not None, "every packed parameter has a gradient"
                parameter.grad.copy_(mean)

    def _reduce_sparse(self) -> None:
        """Add up the gradients that stay sparse."""
        left = [p for bucket in self._buckets for p in bucket.parameters if _is_sparse(p)]
        left = [] if self._sparse_as_dense else left
        waits = [
            sparse_allreduce_async(p.grad, self._names[p], self._op, self._process_set)  # type: ignore[arg-type]
            for p in left
        ]
        for parameter, wait in zip(left, waits):
            parameter.grad = wait()


def _is_sparse(parameter: torch.nn.Parameter) -> bool:
    return parameter.grad is not None and parameter.grad.layout is not torch.strided


def _dense(parameter: torch.nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None, "every packed parameter has a gradient"
    return parameter.grad.to_dense() if _is_sparse(parameter) else parameter.grad


def _check_same(buckets: list[_Bucket], names: dict[torch.nn.Parameter, str], process_set: ProcessSet) -> None:
    """Compare what this rank will send with what the others will: unequal buckets would hang, or add up nonsense.

    Raises:
        ValueError: naming the first parameter that differs from the first rank's.
    """
    own = [(names[p], tuple(p.shape), str(p.dtype)) for bucket in buckets for p in bucket.parameters]
    every = allgather_object(own, process_set=process_set)
    for place, theirs in zip(process_set.ranks, every):
        for first, other in itertools.zip_longest(every[0], theirs, fillvalue="nothing"):
            if first != other:
                raise ValueError(
                    f"busbw.horovod: ranks train different models: where rank {process_set.ranks[0]} has {first}, "
                    f"rank {place} has {other}"
                )


def _names(
    optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.nn.Parameter]] | None
) -> dict[torch.nn.Parameter, str]:
    """Return the names of all parameters of an optimizer, in its order."""
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named is None:
        return {parameter: f"parameter {place}" for place, parameter in enumerate(own)}
    pairs = list(named)
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"named_parameters has names twice: {', '.join(twice)}")
    known = {parameter: name for name, parameter in pairs}
    unnamed = sum(parameter not in known for parameter in own)
    if unnamed:
        raise ValueError(f"named_parameters lacks {unnamed} of the optimizer's {len(own)} parameters")
    return {parameter: known[parameter] for parameter in own}


def _buckets(names: dict[torch.nn.Parameter, str]) -> list[_Bucket]:
    """Group parameters from the last to the first, about as gradients become ready."""
    buckets: list[_Bucket] = []
    open_buckets: dict[tuple[torch.dtype, torch.device], _Bucket] = {}
    for parameter, name in reversed(names.items()):
        if not parameter.requires_grad:
            continue
        key = (parameter.dtype, parameter.device)
        bucket = open_buckets.get(key)
        if bucket is None or sum(p.nbytes for p in bucket.parameters) + parameter.nbytes > BUCKET_BYTES:
            bucket = open_buckets[key] = _Bucket(f"from {name}", [])
            buckets.append(bucket)
        bucket.parameters.append(parameter)
    return buckets

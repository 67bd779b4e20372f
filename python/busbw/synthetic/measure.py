"""The two ways to take a batch: training it, and replaying its communication."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import busbw.torch
from busbw.synthetic.settings import Settings
from busbw.synthetic.workload import Profile, batch, build, loss_of
from busbw.torch import GradientReducer, Mode

_PATTERN_ENTRIES = 1 << 20


class Workload(Protocol):
    """What is measured."""

    def step(self) -> None:
        """Do one batch, to its end."""

    def close(self) -> None:
        """Let go of threads and memory."""


class Training:
    """A model trained by SGD on one random batch again and again."""

    def __init__(self, settings: Settings, stack: Mode, group: dist.ProcessGroup, device: torch.device) -> None:
        torch.manual_seed(0)
        model = build(settings.model).to(device)
        self._acceleration: busbw.torch.Acceleration | None = None
        if group.size() > 1:
            model = DistributedDataParallel(model, process_group=group)
            options = settings.options(stack)
            self._acceleration = busbw.torch.accelerate(
                model,
                stack,
                ratio=options.ratio,
                value_dtype=options.value_dtype,
                intra_size=options.intra_size,
            )
        self._model, self._device = model, device
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self._images, self._labels = batch(settings, settings.batch_size, device)

    def step(self) -> None:
        """See `Workload.step`."""
        self._optimizer.zero_grad()
        loss_of(self._model(self._images), self._labels).backward()
        self._optimizer.step()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """See `Workload.close`."""
        if self._acceleration is not None:
            self._acceleration.close()


class Replay:
    """The gradients of a model, sent when they would be ready; computation is only waited for."""

    def __init__(self, settings: Settings, stack: Mode, group: dist.ProcessGroup, profile: Profile) -> None:
        self._profile = profile
        self._reducer: GradientReducer | None = None
        if group.size() > 1:
            self._reducer = GradientReducer(group, torch.device("cpu"), settings.options(stack))
            torch.manual_seed(group.rank())
            # Few large and many small entries, as gradients have; the same again and again, to save memory.
            self._pattern = torch.randn(_PATTERN_ENTRIES).pow_(3)
            self._buckets = [torch.empty(entries) for entries in profile.buckets]

    def step(self) -> None:
        """See `Workload.step`."""
        begin = time.perf_counter()
        futures = []
        if self._reducer is not None:
            for place, bucket in enumerate(self._buckets):
                for part in bucket.split(_PATTERN_ENTRIES):
                    part.copy_(self._pattern[: part.numel()])
                _sleep_until(begin + self._profile.ready[place] * self._profile.compute_s)
                futures.append(self._reducer.reduce(f"bucket {place}", bucket))
        _sleep_until(begin + self._profile.compute_s)
        for future in futures:
            future.wait()
        if self._reducer is not None:
            self._reducer.end_step()

    def close(self) -> None:
        """See `Workload.close`."""
        if self._reducer is not None:
            self._reducer.close()


def rates(
    workload: Workload, settings: Settings, group: dist.ProcessGroup, progress: Callable[[], None]
) -> list[float]:
    """Measure a workload on the ranks of a group.

    Every measured value begins when all ranks are ready and ends when all are done.

    Returns:
        for each iteration the images per second of one device.
    """
    # Before compression begins, DDP and error feedback take one step each to settle.
    for _ in range(max(settings.warmup, 1 if group.size() > 1 else 0)):
        workload.step()
        progress()
    measured = []
    for _ in range(settings.iters):
        _meet(group)
        begin = time.perf_counter()
        for _ in range(settings.batches_per_iter):
            workload.step()
            progress()
        _meet(group)
        measured.append(settings.batch_size * settings.batches_per_iter / (time.perf_counter() - begin))
    return measured


def _meet(group: dist.ProcessGroup) -> None:
    if group.size() > 1:
        dist.barrier(group=group)


def _sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)

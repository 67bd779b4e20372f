"""Averaging flat gradients over all ranks: plain, in two levels, compressed, or compressed between hosts.

What DDP's hook, `busbw.horovod` and the synthetic benchmark share.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from busbw.compress import ErrorFeedback, Message, Schedule
from busbw.compress.message import MAX_ENTRIES
from busbw.torch import traffic
from busbw.torch.agreement import Wait
from busbw.torch.collectives import all_gather, all_reduce, reduce_scatter
from busbw.torch.layout import Groups, HostLayout, build_groups
from busbw.torch.options import Options
from busbw.torch.pipeline import Collective, Pipeline, Step, pipeline_for
from busbw.torch.report import CompressionReport
from busbw.torch.watch import Watch

STAGES = ("host reduce", "compress", "exchange", "decompress", "host gather")
"""In the order in which a bucket passes them; no way of averaging needs them all but `both`."""

PIECE_BYTES = 32 << 20
"""Larger buckets (a single large layer makes one) pass the stages in pieces, so that stages overlap."""

_STATE_VERSION = 1


class GradientReducer:
    """Averages buckets of gradients over the ranks of a process group.

    Every rank hands in the same buckets in the same order. Nothing blocks: `reduce` returns a future.

    Args:
        group: the ranks that train together. Collective: all of them make their reducer at once.
        device: where the gradients are.
        options: how; `mode` is not `auto` here.
        apart: a group of the same ranks that nothing else uses, for the modes without two levels; None makes what
            is needed.
        watch: of the whole job, which its owner closes; None makes one of the group.

    Raises:
        ValueError: the mode does not fit the ranks (see `check_layout`).
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        device: torch.device,
        options: Options,
        apart: dist.ProcessGroup | None = None,
        watch: Watch | None = None,
    ) -> None:
        if options.mode == "auto":
            raise ValueError("busbw: a reducer needs a mode; busbw.advisor.choose makes one of 'auto'")
        self.options = options
        self._own_watch = Watch(group) if watch is None else None
        self._watch = watch or self._own_watch
        self.layout = self._watch.layout(group, options.intra_size)
        check_layout(options, self.layout)
        self.rank, self.world_size = group.rank(), group.size()
        self.feedback = ErrorFeedback(options.momentum, options.value_dtype, options.selection)
        self.step = 0
        self._steps_here = 0
        self._shape = traffic.Shape(len(self.layout.hosts), self.layout.local_size or self.world_size)
        if self.layout.local_size is None:
            self._shape = traffic.Shape(self.world_size, 1)
        self._groups = Groups(apart) if apart else build_groups(group, self.layout, options.timeout)
        self._schedule = Schedule(options.ratio, options.warmup_steps)
        self._pipeline: Pipeline = pipeline_for(device, STAGES, self._watch)
        self._buckets: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._measured_step = -1
        self._squares: list[tuple[torch.Tensor, torch.Tensor]] = []

    def reduce(
        self, key: str, flat: torch.Tensor, *, divisor: float | None = None
    ) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket over all ranks.

        Args:
            key: the bucket's name, the same at every step.
            flat: its gradients, shape `[n]`, contiguous, floating-point; overwritten.
            divisor: what the sum is divided by; None for the number of ranks.

        Returns:
            the future mean, shape `[n]`. Its `wait` raises `RuntimeError` when a rank has died, is stuck or hands in
            something else, and tells which; where ranks only disagreed, the next bucket is averaged again.

        Raises:
            TypeError: the gradients are sparse or not floating-point.
        """
        check_bucket(key, flat)
        way = self._way(flat)
        self._buckets[way.name] += 1
        divisor = self.world_size if divisor is None else divisor
        # One ring is as fast in one piece; stages overlap only between pieces.
        parts = flat.split(PIECE_BYTES // flat.itemsize) if way.has_stages else [flat]
        for place, part in enumerate(parts):
            name = key if len(parts) == 1 else f"{key}, piece {place}"
            steps = self._steps(name, part, way, divisor)
            about = f"averaging {name} ({part.numel()} entries of {part.dtype}, {way.name} {divisor})"
            future = self._pipeline.submit(part, steps, about).future
        # Pieces pass the stages in order: with the last one all are done, each in its place.
        return future if len(parts) == 1 else future.then(lambda last: (last.value(), flat)[1])

    def end_step(self) -> None:
        """Say that all buckets of a step have been handed in."""
        self.step += 1
        self._steps_here += 1

    def report(self) -> CompressionReport:
        """Return what averaging has cost so far on this rank."""
        return CompressionReport(
            mode=self.options.mode,
            steps=self.step,
            gradient_bytes=self._bytes["gradient"],
            sent_bytes=self._bytes["sent"],
            plain_bytes=self._bytes["plain"],
            buckets=dict(self._buckets),
            error_norm=self._error_norm(),
            stage_seconds=self._pipeline.seconds(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs. It differs from rank to rank: each saves its own."""
        return {
            "version": _STATE_VERSION,
            "mode": self.options.mode,
            "rank": self.rank,
            "world_size": self.world_size,
            "step": self.step,
            "buckets": self.feedback.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint of the same rank of a job of the same size and mode.

        Raises:
            ValueError: the checkpoint is another rank's, mode's or job size's.
            RuntimeError: steps were done already: what they kept would be lost.
        """
        for what, own in (
            ("version", _STATE_VERSION),
            ("mode", self.options.mode),
            ("world_size", self.world_size),
            ("rank", self.rank),
        ):
            if state.get(what) != own:
                raise ValueError(
                    f"busbw: the checkpoint's {what} is {state.get(what)!r}, here it is {own!r}: residuals "
                    "belong to one rank of one job size; leave them out to start with none"
                )
        if self._steps_here:
            raise RuntimeError(
                f"busbw: {self._steps_here} steps were done since this model was accelerated; load the state before "
                "the first"
            )
        self.step = int(state["step"])
        self.feedback.load_state_dict(state["buckets"])

    @property
    def is_idle(self) -> bool:
        """Whether all buckets handed in have been averaged."""
        return self._pipeline.is_idle

    def close(self) -> None:
        """End the stages' threads. The reducer is not used afterwards."""
        self._pipeline.close()
        if self._own_watch is not None:
            self._own_watch.close()

    @property
    def measures(self) -> bool:
        """Whether this step's error norm is to be measured."""
        return self.options.log_every > 0 and self.step % self.options.log_every == 0

    @property
    def _is_dense_step(self) -> bool:
        """Whether to leave memory alone. A process that starts from a checkpoint has first steps of its own."""
        return self._steps_here < self.options.dense_steps

    def _way(self, flat: torch.Tensor) -> _Way:
        options = self.options
        two_level = self._groups.rail is not None and flat.nbytes <= options.two_level_max_bytes
        remembers = options.compresses and not self._is_dense_step
        compresses = remembers and self.world_size > 1 and flat.nbytes >= options.topk_min_bytes
        way = _Way(two_level and options.is_two_level, remembers, compresses)
        # At the large shares of a warm-up, indices and copies weigh more than what is left out.
        if compresses and self._sent(flat, way) >= self._sent(flat, replace(way, compresses=False)):
            return replace(way, compresses=False)
        return way

    def _message(self, flat: torch.Tensor, way: _Way) -> Message:
        """Return the layout in which a rank sends its part of `flat`."""
        entries = -(-flat.numel() // self._shape.local) if way.two_level else flat.numel()
        k = min(entries, math.ceil(entries * self._schedule.at(self.step)))
        return Message(k, self.options.value_dtype)

    def _sent(self, flat: torch.Tensor, way: _Way) -> float:
        if way.compresses:
            mode, message = "both" if way.two_level else "topk", self._message(flat, way)
            return traffic.sent(mode, self._shape, flat.nbytes, message)
        return traffic.sent("two-level" if way.two_level else "plain", self._shape, flat.nbytes)

    def _steps(self, key: str, flat: torch.Tensor, way: _Way, divisor: float) -> dict[str, Step]:
        """Return what each stage does to a piece, and count it."""
        self._bytes["gradient"] += flat.nbytes
        self._bytes["plain"] += round(traffic.sent("plain", self._shape, flat.nbytes))
        self._bytes["sent"] += round(self._sent(flat, way))
        group = self._groups.rail if way.two_level else self._groups.world
        assert group is not None, "two-level layouts have rails"
        if way.compresses:
            steps = self._compressed(key, group, self._message(flat, way))
        else:
            steps = self._whole(key, group, way)
        if way.two_level:
            return steps | self._within(flat, divisor)
        return steps | {
            "host reduce": lambda whole: whole.div_(divisor),
            "host gather": lambda result: _settled(result, flat),
        }

    def _within(self, flat: torch.Tensor, divisor: float) -> dict[str, Step]:
        """Return the dense steps within a host: before others are asked, and after."""
        scatter, gather = self._groups.scatter, self._groups.gather
        assert scatter is not None, "two-level layouts have host groups"
        assert gather is not None, "two-level layouts have host groups"
        fits = flat.numel() % scatter.size() == 0

        def collect(part: torch.Tensor, wait: Wait) -> torch.Tensor:
            return _settled(all_gather(part, gather, wait, flat if fits else None)[: flat.numel()], flat)

        return {
            "host reduce": Collective(scatter, lambda whole, wait: reduce_scatter(whole.div_(divisor), scatter, wait)),
            "host gather": Collective(gather, collect),
        }

    def _whole(self, key: str, group: dist.ProcessGroup, way: _Way) -> dict[str, Step]:
        """Return the steps that send a piece, or a rank's share of one, as it is."""
        steps: dict[str, Step] = {"exchange": Collective(group, lambda flat, wait: all_reduce(flat, group, wait))}
        if way.remembers:
            # What was kept back so far goes with it, and momentum counts here too.
            steps["compress"] = lambda flat: self.feedback.flush(key, flat)
        return steps

    def _compressed(self, key: str, group: dist.ProcessGroup, message: Message) -> dict[str, Step]:
        """Return the steps that send the largest entries only."""
        measured_step = self.step if self.measures else None

        def compress(flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values, indices = self.feedback.compress(key, flat, message.k)
            if measured_step is not None:
                self._measure(measured_step, key, values)
            return flat, message.encode(values, indices)

        def exchange(job: tuple[torch.Tensor, torch.Tensor], wait: Wait) -> tuple[torch.Tensor, torch.Tensor]:
            flat, own = job
            return flat, all_gather(own, group, wait).view(group.size(), -1)

        def decompress(job: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            flat, messages = job
            message.add_all(messages, flat.zero_())
            return flat

        return {"compress": compress, "exchange": Collective(group, exchange), "decompress": decompress}

    def _measure(self, step: int, key: str, sent: torch.Tensor) -> None:
        """Note what a bucket kept and sent, in the compressing stage's thread."""
        if step != self._measured_step:
            self._measured_step, self._squares = step, []
        kept = self.feedback.residual(key)
        assert kept is not None, "a bucket that was compressed has a residual"
        self._squares.append((kept.square().sum(), sent.float().square().sum()))

    def _error_norm(self) -> float | None:
        if not self.options.compresses:
            return 0.0
        kept = sum(float(kept) for kept, _ in self._squares)
        sent = sum(float(sent) for _, sent in self._squares)
        return math.sqrt(kept / (kept + sent)) if kept + sent else None


@dataclass(frozen=True)
class _Way:
    """How a bucket travels.

    Attributes:
        two_level: within hosts first.
        remembers: residuals and momentum count.
        compresses: only the largest entries travel between hosts.
    """

    two_level: bool
    remembers: bool
    compresses: bool

    @property
    def name(self) -> str:
        """As the modes are called."""
        if self.two_level:
            return "both" if self.compresses else "two-level"
        return "topk" if self.compresses else "plain"

    @property
    def has_stages(self) -> bool:
        """Whether there is more to do than one exchange."""
        return self.two_level or self.remembers


def _settled(result: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Put a result into the place of its gradients, unless it stands there already."""
    return flat if result.data_ptr() == flat.data_ptr() else flat.copy_(result)


def check_layout(options: Options, layout: HostLayout) -> None:
    """Refuse two levels where hosts differ in ranks: rails would have gaps.

    Raises:
        ValueError: with the number of ranks of each host.
    """
    if options.is_two_level and layout.local_size is None:
        counts = ", ".join(str(len(ranks)) for ranks in layout.hosts)
        raise ValueError(
            f"busbw: mode {options.mode!r} needs the same number of ranks on every host, here are {counts}; "
            "start as many on each, or use mode 'plain' or 'topk'"
        )


def check_bucket(key: str, flat: torch.Tensor) -> None:
    """Refuse what cannot be averaged as a flat tensor.

    Raises:
        TypeError: sparse, not flat and contiguous, or not floating-point.
        ValueError: more entries than an index can name.
    """
    if flat.layout is not torch.strided:
        raise TypeError(
            f"busbw: the gradients of {key} are sparse ({flat.layout}); make the layer's gradients dense "
            "(nn.Embedding(sparse=False)) or leave it out of the accelerated model"
        )
    if not flat.is_floating_point():
        raise TypeError(f"busbw: the gradients of {key} are {flat.dtype}; only real floating-point ones are averaged")
    if flat.dim() != 1 or not flat.is_contiguous():
        raise TypeError(f"busbw: the gradients of {key} are not flat and contiguous")
    if flat.numel() > MAX_ENTRIES:
        raise ValueError(
            f"busbw: {key} has {flat.numel()} entries, more than an int32 index can name; use smaller buckets"
        )

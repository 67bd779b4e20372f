"""Which way of averaging gradients is fastest on the ranks' network, by the model of `busbw accelerate`.

Two-level and top-k all-reduce have lost to plain all-reduce in published measurements: selecting entries takes time
that a fast network does not need, and two levels move everything twice within a host.

    python -m busbw.advisor --hosts 2 --ranks-per-host 8 --gradients 553M --network-gbit 25

is the same as `busbw accelerate`.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist

from busbw import _native
from busbw._native import Estimate
from busbw.compress import ErrorFeedback, Message
from busbw.torch import traffic
from busbw.torch.collectives import all_gather, all_reduce, reduce_scatter
from busbw.torch.layout import Groups, build_groups, discover
from busbw.torch.options import Mode, Options
from busbw.torch.traffic import Shape

_PROBE_BYTES = 4 << 20
"""What is sent to measure a speed: large enough for bandwidth to count, small enough for a slow network."""

_PROBES = 3


@dataclass(frozen=True)
class Speeds:
    """How fast the parts are.

    Attributes:
        network_gbs: what leaves a host, GB/s, over all of its ranks together.
        host_gbs: what a rank sends within its host, GB/s.
        select_gbs: gradients read by error feedback and selection, GB/s of one rank.
        add_gbs: received messages added up, GB/s of one rank.
        latency_us: one message between hosts, microseconds.
    """

    network_gbs: float
    host_gbs: float
    select_gbs: float
    add_gbs: float
    latency_us: float = 50.0


@dataclass(frozen=True)
class Advice:
    """Which way is fastest.

    Attributes:
        mode: the fastest of those allowed.
        network_gbs: the network's speed that it holds for.
        estimates: of all ways, `plain` first.
    """

    mode: Mode
    network_gbs: float
    estimates: tuple[Estimate, ...]

    def __str__(self) -> str:
        plain = self.estimates[0]
        lines = [f"network {self.network_gbs:.3g} GB/s per host", f"{'':10} {'time':>10} {'speed-up':>9}  pays below"]
        for estimate in self.estimates:
            seconds = estimate.seconds(self.network_gbs)
            # One rank alone averages in no time.
            gain = plain.seconds(self.network_gbs) / seconds if seconds else 1.0
            below = "" if estimate is plain else _speed(estimate.pays_below_gbs(plain))
            chosen = "  <- fastest" if estimate.mode == self.mode else ""
            lines.append(f"{estimate.mode:10} {1e3 * seconds:7.1f} ms {gain:8.2f}x  {below}{chosen}")
        return "\n".join(lines)


def estimates(shape: Shape, nbytes: int, speeds: Speeds, options: Options) -> tuple[Estimate, ...]:
    """Model the time of averaging `nbytes` of float32 gradients in every way that the ranks allow, `plain` first."""
    parts = (speeds.host_gbs, speeds.select_gbs, speeds.add_gbs, speeds.latency_us)
    sizes = (options.ratio, options.value_dtype.itemsize)
    return tuple(_native.gradient_estimates((shape.hosts, shape.local), nbytes, parts, *sizes))


def advise(shape: Shape, nbytes: int, speeds: Speeds, options: Options) -> Advice:
    """Choose the fastest way; among those that lose nothing, unless `options.lossy`."""
    ways = estimates(shape, nbytes, speeds, options)
    allowed = [way for way in ways if options.lossy or way.mode in ("plain", "two-level")]
    fastest = min(allowed, key=lambda way: way.seconds(speeds.network_gbs))
    return Advice(cast(Mode, fastest.mode), speeds.network_gbs, ways)


def choose(group: dist.ProcessGroup, device: torch.device, nbytes: int, options: Options) -> tuple[Options, Advice]:
    """Measure the ranks' network and take the fastest mode for `options.mode == "auto"`.

    Collective, and the same on every rank: what the slowest one measures counts.

    Args:
        group: the ranks that train together.
        device: where gradients are.
        nbytes: size of all gradients.
        options: the rest of the settings, kept.
    """
    layout = discover(group, options.intra_size)
    shape = Shape(len(layout.hosts), layout.local_size) if layout.local_size else Shape(group.size(), 1)
    groups = build_groups(group, layout, options.timeout)
    advice = advise(shape, nbytes, measure(groups, shape, device, options), options)
    for made in (groups.world, groups.scatter, groups.rail, groups.gather):
        if made is not None:
            dist.destroy_process_group(made)
    return replace(options, mode=advice.mode), advice


def measure(groups: Groups, shape: Shape, device: torch.device, options: Options) -> Speeds:
    """Measure what `Speeds` tells, on all ranks at once. Collective."""
    probe = torch.ones(_PROBE_BYTES // 4, device=device)
    message = Message(max(1, round(probe.numel() * options.ratio)), options.value_dtype)
    feedback = ErrorFeedback(0.0, options.value_dtype, options.selection)
    network = groups.rail or groups.world
    across = Shape(shape.hosts, 1) if groups.rail else shape
    gradient = torch.rand_like(probe)
    encoded = message.encode(*feedback.compress("probe", gradient, message.k))
    times_s = torch.tensor(
        [
            _seconds(lambda: all_reduce(probe, network), device),
            _seconds(lambda: all_reduce(probe[:1], network), device),
            _seconds(lambda: _within(probe, groups), device),
            _seconds(lambda: feedback.compress("probe", gradient, message.k), device),
            _seconds(lambda: message.add_all(encoded[None], probe), device),
        ],
        device=device,
    )
    dist.all_reduce(times_s, dist.ReduceOp.MAX, group=groups.world)
    exchange_s, latency_s, within_s, select_s, add_s = times_s.tolist()
    nbytes = _PROBE_BYTES
    left = traffic.sent("plain", across, nbytes) * (shape.local if groups.rail else 1)
    local = shape.local if groups.scatter else 1
    return Speeds(
        network_gbs=left / exchange_s / 1e9 if left else float("inf"),
        host_gbs=2 * (local - 1) / local * nbytes / within_s / 1e9 if local > 1 else float("inf"),
        select_gbs=nbytes / select_s / 1e9,
        add_gbs=message.nbytes / add_s / 1e9,
        latency_us=1e6 * latency_s / max(1, 2 * (across.world - 1)),
    )


def _within(probe: torch.Tensor, groups: Groups) -> None:
    if groups.scatter is not None and groups.gather is not None:
        all_gather(reduce_scatter(probe, groups.scatter), groups.gather)


def _seconds(operation: Callable[[], object], device: torch.device) -> float:
    """Return the shortest of a few times, after one that is not counted."""

    def once() -> float:
        begin = time.perf_counter()
        operation()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    once()
    return min(once() for _ in range(_PROBES))


def _speed(gbs: float) -> str:
    if gbs == 0:
        return "never"
    return "always" if gbs == float("inf") else f"{gbs:.3g} GB/s ({8 * gbs:,.0f} Gbit/s)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Become `busbw accelerate`; the command `python -m busbw.advisor`."""
    command = Path(sysconfig.get_path("scripts")) / "busbw"
    os.execv(command, [str(command), "accelerate", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    main()

"""Below which network speed two-level and top-k all-reduce pay, and where they lose.

Both have lost to plain all-reduce in published measurements: selecting entries takes time that a fast network
does not need, and two levels move everything twice within a host. The time of each way is modelled as a fixed part
(within the host, and selecting) plus bytes over the speed of the network between hosts; where two ways take equally
long is their break-even. The backward pass hides some of either; that is not modelled.

    python -m busbw.advisor --hosts 2 --ranks-per-host 8 --gradients 553M --network-gbit 25
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from busbw.arguments import above_zero, positive, share, size
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
class Estimate:
    """The time of one way of averaging, as a function of the network's speed.

    Attributes:
        mode: which way.
        fixed_s: seconds that do not depend on the network's bandwidth.
        network_bytes: what leaves a host.
    """

    mode: Mode
    fixed_s: float
    network_bytes: float

    def seconds(self, network_gbs: float) -> float:
        """Return the time over a network of so many GB/s."""
        return self.fixed_s + self.network_bytes / (network_gbs * 1e9)

    def pays_below_gbs(self, other: Estimate) -> float:
        """Return the network speed, GB/s, below which this is faster than `other`.

        Infinity where it always is, 0 where it never is.
        """
        saved_bytes = other.network_bytes - self.network_bytes
        extra_s = self.fixed_s - other.fixed_s
        if saved_bytes <= 0:
            return 0.0
        return saved_bytes / extra_s / 1e9 if extra_s > 0 else float("inf")


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
    """Model the time of averaging `nbytes` of float32 gradients in every way that the ranks allow."""
    latency_s = speeds.latency_us / 1e6
    ratio, world = options.ratio, shape.world
    entries = max(1, nbytes // 4)
    whole = Message(max(1, round(entries * ratio)), options.value_dtype)
    ways = [
        Estimate("plain", 2 * (world - 1) * latency_s, traffic.plain(shape, nbytes)),
        Estimate(
            "topk",
            (world - 1) * latency_s
            + nbytes / (speeds.select_gbs * 1e9)
            + world * whole.nbytes / (speeds.add_gbs * 1e9),
            traffic.topk(shape, whole),
        ),
    ]
    if shape.hosts > 1 and shape.local > 1:
        share = Message(max(1, round(entries * ratio / shape.local)), options.value_dtype)
        within_s = 2 * (shape.local - 1) / shape.local * nbytes / (speeds.host_gbs * 1e9)
        ways.append(
            Estimate("two-level", 2 * (shape.hosts - 1) * latency_s + within_s, traffic.two_level(shape, nbytes))
        )
        selecting_s = nbytes / shape.local / (speeds.select_gbs * 1e9) + shape.hosts * share.nbytes / (
            speeds.add_gbs * 1e9
        )
        ways.append(
            Estimate("both", (shape.hosts - 1) * latency_s + within_s + selecting_s, traffic.both(shape, share))
        )
    return tuple(ways)


def advise(shape: Shape, nbytes: int, speeds: Speeds, options: Options) -> Advice:
    """Choose the fastest way; among those that lose nothing, unless `options.lossy`."""
    ways = estimates(shape, nbytes, speeds, options)
    allowed = [way for way in ways if options.lossy or way.mode in ("plain", "two-level")]
    fastest = min(allowed, key=lambda way: way.seconds(speeds.network_gbs))
    return Advice(fastest.mode, speeds.network_gbs, ways)


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
    left = traffic.plain(across, nbytes) * (shape.local if groups.rail else 1)
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
    return "always" if gbs == float("inf") else f"{gbs:.3g} GB/s ({8 * gbs:.3g} Gbit/s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what pays for given speeds; the command `python -m busbw.advisor`."""
    parser = argparse.ArgumentParser(
        prog="python -m busbw.advisor", description="Which all-reduce pays on this network?"
    )
    parser.add_argument("--hosts", type=positive, required=True)
    parser.add_argument("--ranks-per-host", type=positive, required=True)
    parser.add_argument("--gradients", type=size, required=True, help="bytes of all gradients, e.g. 553M")
    parser.add_argument("--network-gbit", type=above_zero, required=True, help="network speed of a host in Gbit/s")
    parser.add_argument(
        "--host-gbs", type=above_zero, default=100.0, help="speed of a rank within its host in GB/s (100)"
    )
    parser.add_argument(
        "--select-gbs", type=above_zero, default=200.0, help="speed of selecting entries, GB/s of gradients (200)"
    )
    parser.add_argument("--add-gbs", type=above_zero, default=100.0, help="speed of adding up messages, GB/s (100)")
    parser.add_argument("--latency-us", type=float, default=50.0, help="latency of a message between hosts in us (50)")
    parser.add_argument("--ratio", type=share, default=0.01, help="top-k's share of the entries (0.01)")
    parser.add_argument("--fp16", action="store_true", help="top-k's values travel as float16")
    given = parser.parse_args(arguments)
    dtype = torch.float16 if given.fp16 else torch.float32
    speeds = Speeds(given.network_gbit / 8, given.host_gbs, given.select_gbs, given.add_gbs, given.latency_us)
    options = Options(ratio=given.ratio, value_dtype=dtype, lossy=True)
    print(advise(Shape(given.hosts, given.ranks_per_host), given.gradients, speeds, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What scripts/gpu-check found, in lines: how fast GPUs are, and the plugin beside NCCL's own socket transport."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Run = dict[str, Any]
Grid = Sequence["tuple[int, int] | None"]
"""Threads and sockets per thread of NCCL's socket transport; None: by itself."""


def setting(grid: tuple[int, int] | None) -> str:
    """`4x4`, or `default`."""
    return f"{grid[0]}x{grid[1]}" if grid else "default"


def lines(runs: Sequence[Run], grid: Grid) -> Iterator[str]:
    """The lines of the summary."""
    for run in runs:
        if run["step"] == "timing" and run["rows"]:
            rows = run["rows"]
            best = max(rows, key=lambda row: row["busbw_gbs"][0])
            yield (
                f"{run['name']}: {rows[0]['time_us'][0]:.1f} us at {size(rows[0]['size_bytes'])}, "
                f"at most {best['busbw_gbs'][0]:.1f} GB/s busbw at {size(best['size_bytes'])}"
            )
    for ranks in (2, 4, 8):
        yield from shared(runs, ranks, grid)
    for carrier in ("socket", "busbw"):
        if (time_us := latency_us(runs, carrier)) is not None:
            yield f"2 ranks on a GPU, 8 bytes, {carrier}: {time_us:.1f} us"


def shared(runs: Iterable[Run], ranks: int, grid: Grid) -> Iterator[str]:
    """A line per size of ranks that share a GPU."""
    runs = list(runs)
    own = median_busbw(runs, ranks, "socket", setting(None))
    best = [median_busbw(runs, ranks, "socket", setting(one)) for one in grid]
    ours = median_busbw(runs, ranks, "busbw", setting(None))
    for nbytes in sorted(own):
        top = max((of_setting.get(nbytes, 0.0) for of_setting in best), default=0.0)
        measured = f"NCCL's sockets {own[nbytes]:6.2f} GB/s, best setting {top:6.2f}"
        line = f"{ranks} ranks on a GPU, {size(nbytes):>5}: {measured}"
        if ours.get(nbytes) and own[nbytes]:
            line += f", plugin {ours[nbytes]:6.2f}, {ours[nbytes] / own[nbytes]:.2f} x of its default"
        yield line


def median_busbw(runs: Iterable[Run], ranks: int, carrier: str, setting: str) -> dict[int, float]:
    """Size in bytes to the median busbw, in GB/s, over all rounds."""
    values: dict[int, list[float]] = {}
    for run in runs:
        same = (run.get("ranks"), run.get("carrier"), run.get("setting")) == (ranks, carrier, setting)
        if same and run["what"].startswith("sweep") and run["status"] == 0:
            for row in run["rows"]:
                values.setdefault(row["size_bytes"], []).append(row["busbw_gbs"][0])
    return {nbytes: statistics.median(of_size) for nbytes, of_size in values.items()}


def latency_us(runs: Iterable[Run], carrier: str) -> float | None:
    """The median time of 8 bytes; None where none was measured."""
    measured = (run for run in runs if run.get("carrier") == carrier and run["what"].startswith("latency"))
    found = [row["time_us"][0] for run in measured for row in run["rows"]]
    return statistics.median(found) if found else None


def size(nbytes: int) -> str:
    """`64K`, as flags take it."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if nbytes >= 1 << shift and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift}{unit}"
    return str(nbytes)

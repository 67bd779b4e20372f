"""Times busbw's selection on CPU tensors beside `torch.topk(tensor.abs(), k)`, in turn.

    target/python/bin/python benches/topk.py [--rounds 9] [--out FILE]

Prints a table, and writes all samples to benches/results/topk-cpu-DATE.json; a second result of a day gets -2.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import origin
import torch

import busbw
from busbw.compress import cpu

GOAL = 5.0
"""How many times as fast as torch.topk selection is to be, for float32, 1% of 25 million."""

ELEMENTS = (1_000_000, 25_000_000)
DTYPES = (torch.float32, torch.bfloat16)
SHARES = (0.001, 0.01)


def by_busbw(tensor: torch.Tensor, k: int) -> torch.Tensor:
    """Select with busbw; the values taken."""
    return cpu.select(tensor, k)[0]


def by_torch(tensor: torch.Tensor, k: int) -> torch.Tensor:
    """Select as a user of PyTorch would: the values taken, with their signs."""
    return tensor[torch.topk(tensor.abs(), k, sorted=False).indices]


def seconds(select: Callable[[torch.Tensor, int], torch.Tensor], tensor: torch.Tensor, k: int) -> float:
    """Time one selection."""
    start = time.perf_counter()
    select(tensor, k)
    return time.perf_counter() - start


def measure(elements: int, dtype: torch.dtype, share: float, rounds: int) -> dict[str, Any]:
    """Time both in turn on normally distributed numbers, after a turn to warm up in which their answers are compared.

    Returns:
        The case, all samples in seconds, and the extremes and median of the ratios within rounds.
    """
    tensor = torch.randn(elements, generator=torch.Generator().manual_seed(1)).to(dtype)
    k = int(elements * share)
    ours, theirs = (select(tensor, k).abs().sort().values for select in (by_busbw, by_torch))
    if not torch.equal(ours, theirs):
        sys.exit(f"busbw and torch.topk differ for {k} of {elements} {dtype}")
    samples = [(seconds(by_busbw, tensor, k), seconds(by_torch, tensor, k)) for _ in range(rounds)]
    ratios = sorted(theirs / ours for ours, theirs in samples)
    return {
        "elements": elements,
        "dtype": str(dtype).removeprefix("torch."),
        "k": k,
        "busbw_s": [ours for ours, _ in samples],
        "torch_s": [theirs for _, theirs in samples],
        "times_as_fast": {"min": ratios[0], "median": median(ratios), "max": ratios[-1]},
    }


def row(case: dict[str, Any]) -> str:
    """Lay one case out as a row of the table."""
    ratio = case["times_as_fast"]
    times = f"{median(case['busbw_s']) * 1e3:8.1f} {median(case['torch_s']) * 1e3:9.1f}"
    spread = f"{ratio['median']:6.1f}× ({ratio['min']:.1f} to {ratio['max']:.1f})"
    return f"{case['elements']:>10} {case['dtype']:>9} {case['k']:>7} {times} {spread}"


def main() -> None:
    """Measure all cases, print them, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often both take turns (%(default)s)")
    parser.add_argument("--out", type=Path, help="where results go")
    flags = parser.parse_args()
    print(f"{'elements':>10} {'dtype':>9} {'k':>7} {'busbw ms':>8} {'torch ms':>9}  times as fast, median (min to max)")
    cases = []
    for elements, dtype, share in [(n, d, s) for n in ELEMENTS for d in DTYPES for s in SHARES]:
        cases.append(measure(elements, dtype, share, flags.rounds))
        print(row(cases[-1]), flush=True)
    result = origin.now("busbw.bench-topk/1")
    result["versions"] = {"busbw": busbw.__version__, "torch": torch.__version__, "python": platform.python_version()}
    result.update(threads=torch.get_num_threads(), goal_times_as_fast=GOAL, cases=cases)
    print(f"written to {origin.record('topk-cpu', result, flags.out)}")


if __name__ == "__main__":
    main()

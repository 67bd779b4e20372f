"""Measures the start of `busbw --help`, and the size of the stripped binary: what every user waits for.

    python3 benches/binary.py [--busbw target/release/busbw] [--runs 50]

Writes benches/results/binary-DATE.json.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import origin

GOAL_S = 0.020
GOAL_BYTES = 30_000_000


def start(busbw: Path) -> float:
    """Start once; the seconds until it has ended."""
    before = time.perf_counter()
    subprocess.run([busbw, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - before


def stripped_size(busbw: Path) -> int:
    """The size without symbols."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "busbw"
        shutil.copy(busbw, copy)
        subprocess.run(["strip", copy], check=True)
        return copy.stat().st_size


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--busbw", type=Path, default=Path("target/release/busbw"), help="what is measured (%(default)s)"
    )
    parser.add_argument("--runs", type=int, default=50, help="how often it is started (%(default)s)")
    parser.add_argument("--out", type=Path, help="where results go")
    flags = parser.parse_args()
    start(flags.busbw)
    samples = [start(flags.busbw) for _ in range(flags.runs)]
    size = stripped_size(flags.busbw)
    wall = {"min": min(samples), "median": median(samples), "max": max(samples)}
    result = origin.now("busbw.bench-binary/1")
    result["start"] = {"wall_s": wall, "goal_s": GOAL_S, "goal_met": wall["median"] <= GOAL_S, "samples_s": samples}
    result["size"] = {"bytes": size, "goal_bytes": GOAL_BYTES, "goal_met": size <= GOAL_BYTES}
    low, middle, high = (wall[name] * 1e3 for name in ("min", "median", "max"))
    print(f"start {middle:.1f} ms ({low:.1f} to {high:.1f}), {size} bytes stripped")
    print(f"recorded in {origin.record('binary', result, flags.out)}")


if __name__ == "__main__":
    main()

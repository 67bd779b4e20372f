"""Times `busbw explain FOLDER` on the results of many nodes, each pair a JSON as `busbw bench -J` writes it.

    python3 benches/fleet.py [--nodes 1000] [--rounds 5] [--busbw target/release/busbw] [--keep FOLDER]

Three measurements per node: 1,000 nodes are 1,500 files. Three nodes are slow, and busbw must name just these. Prints a
table, and writes all samples to benches/results/fleet-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import origin

GOAL_S = 10.0
"""How long 1,000 nodes may take, each form of the answer."""

FORMS = ("text", "json", "html")
SLOW = (17, 170, 701)
"""Nodes that reach half of what the others do."""


def pair(a: int, b: int, busbw: float) -> dict[str, Any]:
    """What `busbw bench all_reduce -b 1M -e 1G -f 2 -J` writes of two nodes with eight ranks each."""
    ranks = [(rank, a if rank < 8 else b) for rank in range(16)]
    devices = [
        {"rank": rank, "group": 0, "pid": 4000 + rank, "hostname": f"node{node:04}", "device": rank % 8,
         "device_hex": f"0000:{rank % 8:02x}:00", "device_info": "NVIDIA H100 80GB HBM3"}
        for rank, node in ranks
    ]  # fmt: skip

    def half(size: int) -> dict[str, float]:
        time_us = 40.0 + size * 1.875 / busbw / 1e3
        return {"time": time_us, "alg_bw": size / time_us / 1e3, "bus_bw": size * 1.875 / time_us / 1e3, "nwrong": 0.0}

    sizes = [1 << exponent for exponent in range(20, 31)]
    rows = [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
         "out_of_place": half(size), "in_place": half(size), "actual_iterations": 20}
        for size in sizes
    ]  # fmt: skip
    config = {"nthreads": 1, "ngpus": 1, "minimum_bytes": sizes[0], "maximum_bytes": sizes[-1], "step_factor": 2,
              "warmup_iters": 1, "iterations": 20, "validation": 1, "graph": 0, "devices": devices}  # fmt: skip
    return {"version": 3, "args": ["all_reduce_perf"], "nccl_version": 22703, "config": config, "results": rows,
            "out_of_bounds": {"count": 0, "okay": "true"}, "average_bus_bandwidth": {"bandwidth": busbw},
            "end_time": "2026-11-22 12:00:00"}  # fmt: skip


def generate(folder: Path, nodes: int, seed: int) -> int:
    """Write the results of three rounds, in which every node meets three others; the number of bytes."""
    rng = random.Random(seed)
    firsts = {1: range(0, nodes, 2), 2: (a for a in range(nodes) if a % 4 < 2), 3: range(0, nodes, 2)}
    total = 0
    for a, b in ((a, (a + distance) % nodes) for distance, of_round in firsts.items() for a in of_round):
        busbw = 370.0 * rng.uniform(0.97, 1.03) * (0.5 if a in SLOW or b in SLOW else 1.0)
        text = json.dumps(pair(a, b, busbw))
        (folder / f"pair-{a:04}-{b:04}.json").write_text(text)
        total += len(text)
    return total


def explain(busbw: Path, folder: Path, form: str) -> tuple[float, bytes]:
    """Answer once; the seconds it took, and the answer."""
    start = time.perf_counter()
    done = subprocess.run([busbw, "explain", "--format", form, folder], capture_output=True, check=False)
    took = time.perf_counter() - start
    if done.returncode not in (0, 1):
        sys.exit(f"busbw explain ended with {done.returncode}: {done.stderr.decode()}")
    return took, done.stdout


def named(answer: bytes) -> list[str]:
    """Who is slow, by the JSON."""
    peers = json.loads(answer)["peers"]
    return sorted(host for group in peers for slow in group["slow"] for host in slow["hosts"])


def row(form: str, runs: list[tuple[float, bytes]]) -> dict[str, Any]:
    """What a form of the answer took."""
    seconds = [took for took, _ in runs]
    return {
        "form": form,
        "goal_s": GOAL_S,
        "goal_met": median(seconds) <= GOAL_S,
        "answer_bytes": len(runs[0][1]),
        "wall_s": {"min": min(seconds), "median": median(seconds), "max": max(seconds)},
        "samples_s": seconds,
    }


def main() -> None:
    """Generate, measure all forms in turn, print and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000, help="nodes, a multiple of 4 (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="how often the forms take turns (%(default)s)")
    parser.add_argument(
        "--busbw", type=Path, default=Path("target/release/busbw"), help="what is measured (%(default)s)"
    )
    parser.add_argument("--keep", type=Path, help="generate into this folder, keep it, and measure nothing")
    parser.add_argument("--out", type=Path, help="where results go")
    flags = parser.parse_args()
    if flags.keep:
        flags.keep.mkdir(parents=True, exist_ok=True)
        print(f"{generate(flags.keep, flags.nodes, seed=1)} bytes in {flags.keep}")
        return
    with tempfile.TemporaryDirectory(prefix="busbw-fleet-") as name:
        folder = Path(name)
        size = generate(folder, flags.nodes, seed=1)
        files = len(list(folder.iterdir()))
        wanted = [f"node{node:04}" for node in SLOW if node < flags.nodes]
        found = named(explain(flags.busbw, folder, "json")[1])
        if found != wanted:
            sys.exit(f"the slow nodes are {wanted}, busbw names {found}")
        samples = {form: [] for form in FORMS}
        for _ in range(flags.rounds):
            for form in FORMS:
                samples[form].append(explain(flags.busbw, folder, form))
    rows = [row(form, runs) for form, runs in samples.items()]
    result = origin.now("busbw.bench-fleet/1")
    result.update(nodes=flags.nodes, files=files, bytes=size, slow_named=found, rows=rows)
    print(f"{flags.nodes} nodes, {files} files, {size / 1e6:.1f} MB; seconds, median (min to max)")
    for form in rows:
        low, middle, high = (form["wall_s"][name] for name in ("min", "median", "max"))
        print(f"{form['form']:>5} {middle:6.2f} ({low:.2f} to {high:.2f}), {form['answer_bytes']} bytes")
    print(f"recorded in {origin.record('fleet', result, flags.out)}")


if __name__ == "__main__":
    main()

"""Whether a tuning table of `busbw tune` holds on sizes that were not measured, and never harms.

    sudo python3 benches/tuning.py [--rounds 5] [--tune-rounds 6] [--busbw target/release/busbw] [--netlab 60]

The CPU engine in the net lab. Each topology is hosts whose links are slow enough that the network decides and not the
machine. `busbw tune` writes a table. Then, on sizes between those it measured, the default, the table and each
algorithm by itself run in turn, round by round. What the default and the table go by tells `busbw profile`. A choice
is judged by its algorithm beside each other algorithm: the median over the rounds of the ratio of both times. Prints a
table, and writes all samples to benches/results/tuning-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import origin
from netlab import Netlab

WITHIN = 1.02
"""How much slower than the best algorithm a choice may be."""
GOAL_SHARE = 0.95
"""Of how many sizes that must hold."""

MEASURED = ("256K", "4M", "2")
"""First, last and factor of the sizes that the table is made from."""
UNSEEN = (("320K", "2560K", "2"), ("384K", "3M", "2"))
"""Those of the sizes that it is tried on."""
BENCH = ["-n", "1", "-w", "1", "-c", "0", "--repeat", "3"]
"""Single operations, repeated: of means, one operation that something held up would spoil all."""


@dataclass(frozen=True)
class Topology:
    """Ranks on each host of the lab, what the link of each host carries, and the algorithms that it allows."""

    name: str
    ranks: int
    rates: tuple[str, ...]
    algorithms: tuple[str, ...]


TOPOLOGIES = (
    Topology("4 hosts x 1 rank, 200 Mbit/s", 1, ("200mbit",) * 4, ("ring", "tree", "doubling")),
    Topology("2 hosts x 2 ranks, 200 Mbit/s", 2, ("200mbit",) * 2, ("ring", "tree", "doubling", "twolevel")),
    Topology(
        "3 hosts x 1 rank, 400, 400 and 100 Mbit/s", 1, ("400mbit", "400mbit", "100mbit"), ("ring", "tree", "doubling")
    ),
)

Times = dict[int, float]
"""Microseconds by size."""


class Lab(Netlab):
    """The net lab with a topology."""

    def __init__(self, topology: Topology, number: int, busbw: Path) -> None:
        """Bring it up."""
        super().__init__(number, len(topology.rates))
        self.topology, self.busbw = topology, busbw
        for host, rate in enumerate(topology.rates, 1):
            # A small bucket: with the lab's own, a megabyte would pass at full speed.
            limit = ["tbf", "rate", rate, "burst", "64kb", "limit", "8mb"]
            self.netlab("exec", str(host), "tc", "qdisc", "replace", "dev", "eth0", "root", *limit)

    def mpirun(self, sizes: tuple[str, str, str], variables: dict[str, str]) -> list[str]:
        """Build the command of a benchmark."""
        ranks, hosts = self.topology.ranks, len(self.topology.rates)
        named = ",".join(f"h{host}:{ranks}" for host in range(1, hosts + 1))
        given = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
        first, last, factor = sizes
        words = [str(self.busbw), "bench", "all_reduce", "-b", first, "-e", last, "-f", factor, *BENCH]
        return ["mpirun.openmpi", "-np", str(ranks * hosts), "--host", named, *given, *words]

    def times(self, variables: dict[str, str]) -> Times:
        """Time the sizes that were not measured: the lesser of both placements, the median of the repetitions."""
        found: dict[int, list[float]] = {}
        for sizes in UNSEEN:
            printed = self.netlab("exec", "1", *self.mpirun(sizes, variables))
            for row in (line.split() for line in printed.splitlines() if line[:1].isspace()):
                found.setdefault(int(row[0]), []).append(min(float(row[5]), float(row[9])))
        return {size: median(times) for size, times in found.items()}

    def algorithms(self, variables: dict[str, str], folder: Path) -> dict[int, str]:
        """Ask the profiler which algorithm each of these sizes goes by; the hosts of the lab share their memory."""
        found = {}
        told = folder / "profile.json"
        for sizes in UNSEEN:
            profile = [str(self.busbw), "profile", f"--json={told}", "--", *self.mpirun(sizes, variables)]
            self.netlab("exec", "1", *profile)
            operations = json.loads(told.read_text())["operations"]
            found.update({operation["bytes"]: operation["algorithm"] for operation in operations})
        return found

    def tune(self, folder: Path, rounds: int) -> Path:
        """Have `busbw tune` write a table."""
        store = folder / "tuned"
        values = ",".join(self.topology.algorithms)
        words = ["tune", "all_reduce", "--exhaustive", "--unchecked", "--var", f"NCCL_ALGO={values}", "--busbw", "1M"]
        words += ["--rounds", str(rounds), "--store", str(store), "--"]
        self.netlab("exec", "1", str(self.busbw), *words, *self.mpirun(MEASURED, {}))
        return store / "tuning.toml"


def measure(topology: Topology, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure a topology: every sample, and what follows for each size."""
    lab = Lab(topology, arguments.netlab, arguments.busbw)
    try:
        path = lab.tune(folder, arguments.tune_rounds)
        table = {"BUSBW_TUNING_TABLE": str(path)}
        ways = {"default": {}, "table": table} | {name: {"NCCL_ALGO": name} for name in topology.algorithms}
        went = {way: lab.algorithms(ways[way], folder) for way in ("default", "table")}
        samples: dict[str, list[Times]] = {way: [] for way in ways}
        for turn in range(arguments.rounds):
            order = list(ways)
            for way in order[turn % len(order) :] + order[: turn % len(order)]:
                samples[way].append(lab.times(ways[way]))
    finally:
        lab.netlab("down")
    sizes = sorted(samples["default"][0])
    rows = [row(size, {way: by_size[size] for way, by_size in went.items()}, samples, topology) for size in sizes]
    return {"topology": topology.name, "table": path.read_text(), "rows": rows, "samples_us": samples}


def ratios(size: int, way: str, beside: str, samples: dict[str, list[Times]]) -> dict[str, float]:
    """How long one way takes beside another, by pairs of a round."""
    pairs = [a[size] / b[size] for a, b in zip(samples[way], samples[beside], strict=True)]
    return {"min": min(pairs), "median": median(pairs), "max": max(pairs)}


def row(size: int, went: dict[str, str], samples: dict[str, list[Times]], topology: Topology) -> dict[str, Any]:
    """Judge a size: algorithms that are not the choice's own, of which the best counts."""
    of_others = [
        (ratios(size, went["table"], other, samples), other) for other in topology.algorithms if other != went["table"]
    ]
    worst, other = max(of_others, key=lambda found: found[0]["median"])
    behind = worst["median"] > 1.0
    return {
        "size_bytes": size,
        "default": went["default"],
        "chosen": went["table"],
        "best": other if behind else went["table"],
        "of_next_best": worst,
        "of_default_algorithm": ratios(size, went["table"], went["default"], samples),
        "of_default": ratios(size, "table", "default", samples),
    }


def result_of(topologies: list[dict[str, Any]], arguments: argparse.Namespace) -> dict[str, Any]:
    """What follows from all topologies."""
    rows = [row for topology in topologies for row in topology["rows"]]
    within = [row for row in rows if row["of_next_best"]["median"] <= WITHIN]
    by_default = [row for row in rows if row["chosen"] == row["default"]]
    slower = [row for row in rows if row["chosen"] != row["default"] and row["of_default_algorithm"]["median"] > 1.0]
    return {
        "rounds": arguments.rounds,
        "tune_rounds": arguments.tune_rounds,
        "topologies": topologies,
        "within": WITHIN,
        "sizes": len(rows),
        "sizes_within": len(within),
        "goal_share": GOAL_SHARE,
        "goal_met": len(within) >= GOAL_SHARE * len(rows),
        "left_to_the_default": len(by_default),
        "slower_than_the_default": len(slower),
        "load_average_at_end": list(os.getloadavg()),
    }


def main() -> int:
    """Measure all topologies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tune-rounds", type=int, default=6)
    parser.add_argument("--busbw", type=Path, default=origin.ROOT / "target/release/busbw")
    parser.add_argument("--netlab", type=int, default=60)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    head = origin.now("busbw.bench-tuning/1")
    with tempfile.TemporaryDirectory() as folder:
        topologies = []
        for number, topology in enumerate(TOPOLOGIES):
            own = Path(folder) / str(number)
            own.mkdir()
            topologies.append(measure(topology, arguments, own))
            tell(topologies[-1])
    result = head | result_of(topologies, arguments)
    print(f"within {WITHIN} of the best: {result['sizes_within']} of {result['sizes']} sizes")
    print(origin.record("tuning", result, arguments.out))
    return 0


def tell(topology: dict[str, Any]) -> None:
    """Print what was found for a topology."""
    print(topology["topology"])
    for found in topology["rows"]:
        beside, default = (found[name] for name in ("of_next_best", "of_default"))
        print(
            f"  {found['size_bytes']:>8}  default {found['default']:<9} table {found['chosen']:<9}"
            f" best {found['best']:<9}"
            f"  of the next best's time {beside['median']:.2f} ({beside['min']:.2f} to {beside['max']:.2f})"
            f"  of the default's {default['median']:.2f} ({default['min']:.2f} to {default['max']:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())

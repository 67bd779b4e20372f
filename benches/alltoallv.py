"""How long uneven exchanges take beside what `busbw predict --load` says of the same hosts.

    sudo python3 benches/alltoallv.py [--repeat 2] [--busbw target/release/busbw] [--netlab 61]

The CPU engine in the net lab. Links are slow enough that the network decides and not the machine, in both directions:
what a host sends waits in the host, what it receives waits at the switch. With --port-buffer, a port of the switch
holds less, and senders who meet there lose packets (incast). Each load of `bench alltoallv --load` runs in turn; what
is predicted is that of a described cluster with NICs of the same rate and kernel sockets. Prints a table, and writes
all samples to benches/results/alltoallv-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import origin
from netlab import Netlab

GOAL_ERROR = 0.15
"""Goal of the median deviation of the predicted time at the largest size: that of figures of DeepEP and UCCL."""
LOADS = ("W0", "W1", "W4", "W5", "W7")
"""Among so few ranks, W3 is W0, and W2 and W6 are W1."""
RATE_GBPS = 0.2
SIZES = ["-b", "16M", "-e", "16M"]
"""Of a size, a rank sends as much in the mean."""


@dataclass(frozen=True)
class Topology:
    """Hosts of the lab, and ranks on each."""

    hosts: int
    ranks: int

    @property
    def name(self) -> str:
        """What the result calls it."""
        return f"{self.hosts} hosts x {self.ranks} rank{'s' if self.ranks > 1 else ''}, 200 Mbit/s"

    def description(self) -> str:
        """Describe the hosts for `predict`, which knows GPUs only; over such links it does not matter which."""
        node = f'nodes = {self.hosts}\ngpus_per_node = {self.ranks}\ngpu = "A10"\n'
        return f'{node}nics_per_node = 1\nnic_gbps = {RATE_GBPS}\ntransport = "tcp"\n'


TOPOLOGIES = (Topology(4, 1), Topology(2, 2))


class Lab(Netlab):
    """The net lab with a topology."""

    def __init__(self, topology: Topology, arguments: argparse.Namespace) -> None:
        """Bring it up."""
        self.topology, self.busbw, number = topology, arguments.busbw, arguments.netlab
        super().__init__(number, topology.hosts)
        limit = ["root", "tbf", "rate", f"{RATE_GBPS * 1000:.0f}mbit", "burst", "64kb", "limit"]
        for host in range(1, topology.hosts + 1):
            self.netlab("exec", str(host), "tc", "qdisc", "replace", "dev", "eth0", *limit, "8mb")
            port = ["tc", "qdisc", "replace", "dev", f"nl{number}n0h{host}", *limit, arguments.port_buffer]
            subprocess.run(port, check=True)

    def measure(self, load: str, repeat: int, folder: Path) -> list[dict[str, Any]]:
        """Run a load; a result of each size and repetition, by the rank that takes longest."""
        ranks, hosts = self.topology.ranks, self.topology.hosts
        named = ",".join(f"h{host}:{ranks}" for host in range(1, hosts + 1))
        told = folder / f"{hosts}-{load}.json"
        words = [str(self.busbw), "bench", "alltoallv", "--load", load, *SIZES, "-J", str(told)]
        words += ["-n", "1", "-w", "1", "-c", "0", "-a", "3", "--repeat", str(repeat)]
        self.netlab("exec", "1", "mpirun.openmpi", "-np", str(ranks * hosts), "--host", named, *words)
        results: list[dict[str, Any]] = json.loads(told.read_text())["results"]
        return results

    def predict(self, load: str, folder: Path) -> dict[int, dict[str, Any]]:
        """Predict a load; by size."""
        cluster = folder / "cluster.toml"
        cluster.write_text(self.topology.description())
        words = [self.busbw, "predict", cluster, "--load", load, *SIZES, "--json"]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return {row["size_bytes"]: row for row in json.loads(printed)["rows"]}


def row(load: str, size: int, results: list[dict[str, Any]], predicted: dict[str, Any]) -> dict[str, Any]:
    """Compare a size of a load: times out of place, which the even exchange is, too."""
    of_size = [result for result in results if result["size"] == size]
    times = [result["out_of_place"]["time"] for result in of_size]
    bounds = [result["skew"]["bound_us"] for result in of_size]
    measured, busbw = median(times), predicted["busbw_gbs"]
    return {
        "load": load,
        "size_bytes": size,
        "samples_us": times,
        "measured_us": {"min": min(times), "median": measured, "max": max(times)},
        "bound_us": median(bounds),
        "predicted_us": predicted["time_us"],
        "least_us": predicted["time_us"] * busbw / predicted["limit_busbw_gbs"],
        "deviation": predicted["time_us"] / measured - 1.0,
        "busiest": {name: of_size[0]["skew"].get(name) for name in ("rank", "host")},
    }


def measure(topology: Topology, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all loads of a topology."""
    lab = Lab(topology, arguments)
    rows = []
    try:
        for load in LOADS:
            results, predicted = lab.measure(load, arguments.repeat, folder), lab.predict(load, folder)
            rows += [row(load, size, results, predicted[size]) for size in sorted(predicted)]
            tell(topology, rows[-len(predicted) :])
    finally:
        lab.netlab("down")
    return {"topology": topology.name, "cluster": topology.description(), "rows": rows}


def tell(topology: Topology, rows: list[dict[str, Any]]) -> None:
    """Print what was found for a load."""
    for found in rows:
        measured = found["measured_us"]
        print(
            f"{topology.name}  {found['load']} {found['size_bytes']:>9}  measured {measured['median'] / 1e3:8.1f} ms"
            f" ({measured['min'] / 1e3:.1f} to {measured['max'] / 1e3:.1f})  bound {found['bound_us'] / 1e3:8.1f}"
            f"  at line rate {found['least_us'] / 1e3:8.1f}  predicted {found['predicted_us'] / 1e3:8.1f}"
            f"  {found['deviation']:+.1%}",
            flush=True,
        )


def largest(topology: dict[str, Any]) -> list[dict[str, Any]]:
    """Pick the rows of the largest size."""
    size = max(row["size_bytes"] for row in topology["rows"])
    return [row for row in topology["rows"] if row["size_bytes"] == size]


def main() -> int:
    """Measure all topologies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--port-buffer", default="8mb", help="what a port of the switch holds (%(default)s)")
    parser.add_argument("--busbw", type=Path, default=origin.ROOT / "target/release/busbw")
    parser.add_argument("--netlab", type=int, default=61)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    head = origin.now("busbw.bench-alltoallv/1")
    arguments.busbw = arguments.busbw.resolve()
    with tempfile.TemporaryDirectory() as folder:
        topologies = [measure(topology, arguments, Path(folder)) for topology in TOPOLOGIES]
    deviations = [abs(row["deviation"]) for topology in topologies for row in largest(topology)]
    error = median(deviations)
    result = head | {
        "repeat": arguments.repeat,
        "port_buffer": arguments.port_buffer,
        "topologies": topologies,
        "median_error": error,
        "worst_error": max(deviations),
        "goal_error": GOAL_ERROR,
        "goal_met": error <= GOAL_ERROR,
        "load_average_at_end": list(os.getloadavg()),
    }
    print(f"median deviation at the largest size: {error:.1%}, at worst {max(deviations):.1%}")
    print(origin.record("alltoallv", result, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

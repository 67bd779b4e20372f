"""Rewrites docs/benchmarks.md from benches/results: what was reached, against which goal, on what; goals missed first.

    python3 benches/table.py [--check]

Of each figure the newest measurement counts. Every form of result has a reader here: a result of another form is an
error. With --check nothing is written; the exit status is 1 where the page is not what the results say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches/results"
PAGE = ROOT / "docs/benchmarks.md"

Result = dict[str, Any]

INTRODUCTION = """\
# Benchmarks

Every figure as it was last measured, goals that are missed first. Written by `make bench-table` from
[benches/results](https://github.com/busbw/busbw/tree/main/benches/results), which holds every sample; `make bench-all`
measures all anew that a machine can measure. How each is measured, says
[benches/README.md](https://github.com/busbw/busbw/blob/main/benches/README.md). Ratios are of pairs of one round,
median (min to max). Most machines here have two cores, and carried other work at times: wide spreads show it.
"""


@dataclass(frozen=True)
class Measured:
    """What a figure was measured as, and whether more of it is better."""

    low: float
    median: float
    high: float
    more_is_better: bool

    @classmethod
    def less(cls, values: dict[str, float]) -> Measured:
        """Of a spread of which less is better."""
        return cls(values["min"], values["median"], values["max"], more_is_better=False)

    @classmethod
    def more(cls, values: dict[str, float]) -> Measured:
        """Of a spread of which more is better."""
        return cls(values["min"], values["median"], values["max"], more_is_better=True)

    @classmethod
    def once(cls, value: float, *, more_is_better: bool) -> Measured:
        """Of a figure that was measured once."""
        return cls(value, value, value, more_is_better)


@dataclass(frozen=True)
class Figure:
    """A figure that a benchmark found."""

    benchmark: str
    what: str
    reached: str
    goal: str = ""
    met: bool | None = None
    measured: Measured | None = None


@dataclass(frozen=True)
class Origin:
    """Where a figure comes from."""

    file: str
    date: str
    machine: str
    commit: str

    @classmethod
    def of(cls, file: Path, result: Result) -> Origin:
        """Read from the head of a result; what `busbw.synthetic` itself writes has its date in the name only."""
        day = re.search(r"\d{4}-\d{2}-\d{2}", file.name)
        machine = result.get("machine") or {}
        commit = result.get("commit") or {}
        named = f"{machine['cpu'].split('@')[0].strip()}, {machine['cores']} cores" if machine else "not recorded"
        changed = " (changed)" if commit.get("modified") else ""
        sha = commit["hash"][:8] + changed if commit else "not recorded"
        return cls(file.name, result.get("date") or (day[0] if day else ""), named, sha)


def spread(values: dict[str, float], unit: str = "", digits: int = 2) -> str:
    """`1.97× (1.50 to 2.40)`."""
    low, middle, high = (f"{values[name]:.{digits}f}" for name in ("min", "median", "max"))
    return f"{middle}{unit} ({low} to {high})"


def size(count: int) -> str:
    """`64 KiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


# MB/s in one thread.
TRAINING_GOAL = 400
# The slowest run has the lowest rate.
RATE_OF = {"min": "max", "median": "median", "max": "min"}


def ingest(result: Result) -> Iterator[Figure]:
    """Reading logs."""
    for command in result["commands"]:
        if not command["name"].startswith("busbw"):
            continue
        if result["mode"] == "training":
            yield training(result, command)
            continue
        what = "a log of 16,384 ranks" if result["mode"] == "scale" else f"{command['name']}, 1 GiB of log"
        goal, met = (f"{result['goal_s']:.0f} s", result["goal_met"]) if result["goal_s"] else ("", None)
        wall = command["wall_s"]
        yield Figure("reading logs", what, spread(wall, " s"), goal, met, Measured.less(wall))
        ratio = command["wall_ratio_to_rg"]
        if ratio and "1 thread" in command["name"]:
            what = f"{what}, of ripgrep's time"
            # Issue 1 set it; the result does not carry it.
            met = ratio["median"] <= 2.0
            yield Figure("reading logs", what, spread(ratio, "×"), "2×", met, Measured.less(ratio))


def training(result: Result, command: Result) -> Figure:
    """Reading a training's output, of which few lines are connections: issue 26 set the goal for one thread."""
    wall = command["wall_s"]
    rate = {name: result["file"]["bytes"] / wall[of] / 1e6 for name, of in RATE_OF.items()}
    what, reached = f"{command['name']}, a training's output", spread(rate, " MB/s", 0)
    if "1 thread" not in command["name"]:
        return Figure("reading logs", what, reached, measured=Measured.more(rate))
    met = rate["median"] >= TRAINING_GOAL
    return Figure("reading logs", what, reached, f"{TRAINING_GOAL} MB/s", met, Measured.more(rate))


def fleet(result: Result) -> Iterator[Figure]:
    """Explaining a folder with the results of many nodes."""
    for row in result["rows"]:
        what = f"{result['nodes']} nodes as {row['form']}"
        wall, goal = row["wall_s"], f"{row['goal_s']:.0f} s"
        yield Figure("explaining a fleet", what, spread(wall, " s"), goal, row["goal_met"], Measured.less(wall))


def binary(result: Result) -> Iterator[Figure]:
    """The start and the size of the command."""
    start, stripped = result["start"], result["size"]
    wall = {name: seconds * 1e3 for name, seconds in start["wall_s"].items()}
    goal, met = f"{start['goal_s'] * 1e3:.0f} ms", start["goal_met"]
    yield Figure("the command", "start of --help", spread(wall, " ms", 1), goal, met, Measured.less(wall))
    goal, megabytes = f"{stripped['goal_bytes'] / 1e6:.0f} MB", stripped["bytes"] / 1e6
    measured = Measured.once(megabytes, more_is_better=False)
    yield Figure("the command", "size, stripped", f"{megabytes:.1f} MB", goal, stripped["goal_met"], measured)


def peers(result: Result) -> Iterator[Figure]:
    """Collectives beside MPI and Gloo: sizes that have a goal."""
    for case in result["cases"]:
        for row in case["rows"]:
            if row["goal"]:
                what = f"{case['collective']}, {case['scenario']}, {size(row['size_bytes'])}"
                reached, goal = peer_goal(row)
                yield Figure("collectives", what, reached, goal, row["met"], Measured.more(row["reached"]))


def peer_goal(row: dict[str, Any]) -> tuple[str, str]:
    """What a size reached, and its goal, in words."""
    ((kind, least),) = row["goal"].items()
    if kind == "times-best-peer":
        return f"{spread(row['reached'], '×')} beside {row['best_peer']}", f"{least}× the best peer"
    if kind == "rate":
        return spread(row["reached"], " GB/s"), f"{least} GB/s"
    return spread(row["reached"], "×"), f"{least}× its own speed without the limit"


def simulate(result: Result) -> Iterator[Figure]:
    """Simulating fabrics: the cases with a goal."""
    for row in result["rows"]:
        if row["goal_s"]:
            what = f"{row['case']}, {row['gpus']:,} GPUs"
            wall, goal = row["wall_s"], f"{row['goal_s']:.0f} s"
            yield Figure("simulating", what, spread(wall, " s"), goal, row["goal_met"], Measured.less(wall))


def monitor(result: Result) -> Iterator[Figure]:
    """Watching ports."""
    goal = f"{result['goal_pct_of_a_core']:.0f}%"
    for row in result["rows"]:
        share, what = row["cpu_pct_of_a_core"], f"{result['ports']} ports, {row['view']}, of a core"
        yield Figure("watching", what, spread(share, "%"), goal, row["goal_met"], Measured.less(share))


def tune(result: Result) -> Iterator[Figure]:
    """Racing simulated settings."""
    for race in result["races"]:
        most = race["most_runs"]
        what = f"winner within 2% in half the runs, {'until decided' if most is None else f'{most} runs'}, of seeds"
        share = race["within_2pct_in_half_the_runs"]
        measured = Measured.once(share, more_is_better=True)
        yield Figure("racing settings", what, f"{share:.1%}", "95%", race["goal_met"], measured)


def tune_lab(result: Result) -> Iterator[Figure]:
    """Racing settings between two hosts."""
    for race in result["races"]:
        reached = f"{race['of_best']:.0%} in {race['share_of_runs']:.0%} of the runs"
        what, met = "the winner between two hosts, of the grid's best", race["goal_met"]
        measured = Measured.once(race["of_best"], more_is_better=True)
        yield Figure("racing settings", what, reached, "95% in 50%", met, measured)


def tuning(result: Result) -> Iterator[Figure]:
    """Tuning tables on sizes that were not measured."""
    of, within = result["sizes"], result["sizes_within"]
    what = f"a table's choice within {result['within'] - 1:.0%} of the best algorithm, of sizes that were not measured"
    yield Figure("tuning tables", what, f"{within} of {of}", f"{result['goal_share']:.0%}", result["goal_met"])
    slower = result["slower_than_the_default"]
    what = "a table's choice slower than the default's, of the same sizes"
    yield Figure("tuning tables", what, f"{slower} of {of}", "0", slower == 0)
    for topology in result["topologies"]:
        chosen = [row["of_default_algorithm"] for row in topology["rows"] if row["chosen"] != row["default"]]
        if not chosen:
            yield Figure("tuning tables", topology["topology"], "the default at every size")
            continue
        ends = [spread(ratio, "×") for ratio in sorted(chosen, key=lambda ratio: ratio["median"])]
        reached = f"{ends[0]} at best, {ends[-1]} at worst, at {len(chosen)} of {len(topology['rows'])} sizes"
        yield Figure("tuning tables", f"{topology['topology']}: of the default's time", reached)


def net(result: Result) -> Iterator[Figure]:
    """The net plugin."""
    for network in result["networks"]:
        name = network["network"]["name"]
        goal = net_goal(network["network"]["goal"])
        ratio, latency = network["ratio"], network["latency_ratio"]
        reached = f"{spread(ratio, '×')} of {network['peer']}"
        yield Figure("the net plugin", name, reached, goal, network["goal_met"], Measured.more(ratio))
        what, met = f"8 bytes beside bare sockets, {name}", network["latency_goal_met"]
        reached = spread(latency, "×")
        if each_way := network.get("each_way_latency_ratio"):
            reached += f"; {spread(each_way, '×')} of one each way, which NCCL's interface asks for"
        yield Figure("the net plugin", what, reached, "1.2×", met, Measured.less(latency))


def net_goal(goal: dict[str, Any]) -> str:
    """The goal of a network in words."""
    ((kind, least),) = goal.items()
    return f"{least['share']:.0%} of what the line carries" if kind == "line" else f"{least}×"


def topk(result: Result) -> Iterator[Figure]:
    """Selecting from gradients. The goal is for 1% of 25 million float32."""
    for case in result["cases"]:
        what = f"{case['k'] / case['elements']:.1%} of {case['elements'] // 1_000_000} million {case['dtype']}"
        wanted = case["dtype"] == "float32" and case["elements"] == 25_000_000 and case["k"] == 250_000
        least, times = result["goal_times_as_fast"], case["times_as_fast"]
        goal, met = (f"{least:.0f}×", times["median"] >= least) if wanted else ("", None)
        reached = spread(times, "× torch.topk", 1)
        yield Figure("selecting from gradients", what, reached, goal, met, Measured.more(times))


REPLAY_GOALS = {"two-level": 1.8, "both": 4.0}
"""What a way of averaging gradients has to be of plain's images per second, in the replay of the fifth field report."""


def synthetic(result: Result) -> Iterator[Figure]:
    """Training replayed on slow networks: most devices of each stack."""
    most = max(row["devices"] for row in result["rows"])
    rows = [row for row in result["rows"] if row["devices"] == most]
    plain = {row["network"]: row["images_per_s"] for row in rows if row["stack"] == "plain"}
    for row in rows:
        what = f"{result['model']} on {most} ranks, {row['network']}, {row['stack']}"
        reached = f"{row['images_per_s']:.1f} images/s, {row['efficiency_pct']:.0f}% scaling"
        goal, base = REPLAY_GOALS.get(row["stack"]), plain.get(row["network"])
        measured = Measured.once(row["images_per_s"], more_is_better=True)
        if goal and base:
            ratio = row["images_per_s"] / base
            reached, met = f"{ratio:.2f}× plain, {reached}", ratio >= goal
            yield Figure("training replayed", what, reached, f"{goal:.1f}×", met, measured)
        else:
            yield Figure("training replayed", what, reached, measured=measured)


def soak(result: Result) -> Iterator[Figure]:
    """Memory and descriptors over time."""
    for program in result["programs"]:
        growth = f"{program['memory_growth_bytes'] / 1e6:+.1f} MB, {program['descriptor_growth']:+.0f} descriptors"
        what = f"{program['name']}, {result['minutes']:g} minutes"
        yield Figure("soak", what, growth, "flat", program["flat"])


HALF_OF_DUMPS = "culprit, half of the dumps, no logs"
OWN_DUMPS = "culprit, the same, culprit's own among them"


def hangs(result: Result) -> Iterator[Figure]:
    """Stuck and slow jobs whose cause is known; the share of evidence on which busbw is right, or accuses wrongly."""
    alone = next((row["busbw"] for row in result["totals"] if row["what"] == OWN_DUMPS), "")
    for row in result["totals"]:
        right, _, of = row["busbw"].partition("/")
        if not of or row["bar"] is None:
            continue
        accused = row["bar"] == 0
        met = int(right) == 0 if accused else int(right) >= row["bar"] * int(of)
        goal = "0" if accused else f"{row['bar']:.0%}"
        given = alone.partition("/")[2]
        if row["what"] == HALF_OF_DUMPS and given and int(given) < row["bar"] * int(of):
            goal += f"; cannot be: only in {given}/{of} the culprit's own dump is given, and no log tells of the others"
        beside = f"{row['busbw']}, fr_trace {row['fr_trace']}, on repaired dumps {row['fr_trace, repaired']}"
        measured = Measured.once(int(right) / max(int(of), 1), more_is_better=not accused)
        yield Figure("stuck jobs", row["what"], beside, goal, met, measured)


def predict_calibrated(result: Result) -> Iterator[Figure]:
    """Predicting a machine's other tables, calibrated with one."""
    for one in result["classes"]:
        what = f"median error, calibrated with one table of the machine, {one['sizes']} ({one['machines']} machines)"
        reached = f"{one['after']:.1%} (uncalibrated {one['before']:.1%})"
        yield Figure("predicting", what, reached, f"{one['goal']:.0%}", one["met"])


def alltoallv(result: Result) -> Iterator[Figure]:
    """Uneven exchanges beside their prediction."""
    what = "median error of uneven exchanges over kernel sockets, W0 to W7"
    error, worst = result["median_error"], result["worst_error"]
    measured, goal = Measured.once(error, more_is_better=False), f"{result['goal_error']:.0%}"
    yield Figure("predicting", what, f"{error:.1%}, {worst:.1%} at worst", goal, result["goal_met"], measured)


READERS: dict[str, Callable[[Result], Iterator[Figure]]] = {
    "busbw.bench-ingest/1": ingest,
    "busbw.bench-fleet/1": fleet,
    "busbw.bench-binary/1": binary,
    "busbw.bench-peers/1": peers,
    "busbw.bench-simulate/1": simulate,
    "busbw.bench-monitor/1": monitor,
    "busbw.bench-tune/1": tune,
    "busbw.bench-tune-lab/1": tune_lab,
    "busbw.bench-tuning/1": tuning,
    "busbw.bench-net/1": net,
    "busbw.bench-topk/1": topk,
    "busbw.synthetic/1": synthetic,
    "busbw.soak/1": soak,
    "busbw.hangbench/1": hangs,
    "busbw.predict-calibrated/1": predict_calibrated,
    "busbw.bench-alltoallv/1": alltoallv,
}
# What only tells that something ran, without a figure to compare.
WITHOUT_FIGURES = {"busbw.gpu-check/1"}


Found = tuple[Figure, Origin]


def history(folder: Path) -> dict[tuple[str, str], list[Found]]:
    """Every figure of a folder of results by benchmark and name, the newest last."""
    found: dict[tuple[str, str], list[Found]] = {}
    results = [(file, json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]
    for file, result in sorted(results, key=lambda one: (Origin.of(*one).date, one[0].name)):
        schema = result.get("schema")
        if schema in WITHOUT_FIGURES:
            continue
        if schema not in READERS:
            sys.exit(f"{file.name}: no reader for results of the form {schema}; add one to benches/table.py")
        try:
            figures = list(READERS[schema](result))
        except (KeyError, TypeError) as error:
            sys.exit(f"{file.name}: not of the form {schema}: {error!r}")
        for figure in figures:
            found.setdefault((figure.benchmark, figure.what), []).append((figure, Origin.of(file, result)))
    return found


def newest(folder: Path) -> list[Found]:
    """Every figure of a folder of results, the newest of each."""
    return [measurements[-1] for measurements in history(folder).values()]


def table(figures: list[Found]) -> str:
    """Lay figures out as a table."""
    head = (
        "| benchmark | what | reached | goal | machine | commit | date |\n| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    rows = (
        f"| {figure.benchmark} | {figure.what} | {figure.reached} | {figure.goal} "
        f"| {origin.machine} | {origin.commit} | {origin.date[:10]} |\n"
        for figure, origin in figures
    )
    return head + "".join(rows)


def page(folder: Path) -> str:
    """The whole page."""
    figures = newest(folder)
    missed = [one for one in figures if one[0].met is False]
    met = [one for one in figures if one[0].met]
    other = [one for one in figures if one[0].met is None]
    count = f"{len(missed)} of {len(missed) + len(met)} goals are missed."
    parts = [INTRODUCTION, "## Goals missed\n", f"{count}\n", table(missed), "## Goals met\n", table(met)]
    return "\n".join([*parts, "## Without a goal\n", table(other)])


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; say whether the page is what the results say"
    )
    flags = parser.parse_args()
    wanted = page(RESULTS)
    if not flags.check:
        PAGE.write_text(wanted)
        print(f"written to {PAGE.relative_to(ROOT)}")
        return 0
    if PAGE.is_file() and PAGE.read_text() == wanted:
        return 0
    print("docs/benchmarks.md is not what benches/results say; run make bench-table", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

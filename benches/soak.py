"""Runs bench, monitor and tune for a long time at once, and watches whether their memory or descriptors grow.

    python3 benches/soak.py [--minutes 20] [--busbw target/release/busbw]

Every second the private memory and the open descriptors of each program, with all that it has started, are read from
/proc. What grows is told by Theil and Sen's slope, the median of the slopes of all pairs of samples, over what follows
the first quarter of the time: neither a peak nor the start moves it. Prints the curves, and writes
benches/results/soak-DATE.json; the exit status is 1 where something grew or ended early.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import origin

WARM_UP = 0.25
"""The share of the time that is left out: allocators and caches fill."""
MEMORY_BYTES = 4 << 20
"""Growth over the whole time that is no leak yet, and as a share of what is there."""
MEMORY_SHARE = 0.05
DESCRIPTORS = 1.0
SAMPLES = 120
"""So many samples, at most, enter the slope: it looks at all pairs."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Watched:
    """A program that runs, and what it took."""

    name: str
    process: subprocess.Popen[bytes]
    seconds: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def sample(self, second: float, children: dict[int, list[int]]) -> None:
        """Read what the program and its descendants take now; tune's trials come and go, and are its own only."""
        pids = [self.process.pid] if self.name == "tune" else family(self.process.pid, children)
        taken = [both for both in map(usage, pids) if both]
        if taken:
            self.seconds.append(second)
            self.memory_bytes.append(sum(memory for memory, _ in taken))
            self.descriptors.append(sum(count for _, count in taken))


def family(pid: int, children: dict[int, list[int]]) -> list[int]:
    """A process and all that it has started."""
    return [pid, *(one for child in children.get(pid, []) for one in family(child, children))]


def parents() -> dict[int, list[int]]:
    """Who has started whom."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
        children.setdefault(parent, []).append(int(stat.parent.name))
    return children


def usage(pid: int) -> tuple[int, int] | None:
    """Private memory in bytes and the number of open descriptors; None where the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        count = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    lines = [line.split() for line in status.splitlines() if line.startswith("RssAnon:")]
    return (int(lines[0][1]) * 1024, count) if lines else None


def slope(times: list[float], values: list[float]) -> float:
    """Theil and Sen's: the median of the slopes of all pairs."""
    slopes = [
        (later - earlier) / (times[j] - times[i])
        for i, earlier in enumerate(values)
        for j, later in enumerate(values[i + 1 :], i + 1)
        if times[j] > times[i]
    ]
    return median(slopes) if slopes else 0.0


def growth(times: list[float], values: list[float]) -> float:
    """What was added from the end of the warm-up to the last sample, by the slope."""
    warm = times[0] + WARM_UP * (times[-1] - times[0])
    kept = [(t, v) for t, v in zip(times, values) if t >= warm]
    step = max(1, len(kept) // SAMPLES)
    thinned = kept[::step]
    return slope([t for t, _ in thinned], [v for _, v in thinned]) * (kept[-1][0] - kept[0][0])


def curve(values: list[int], width: int = 60) -> str:
    """The values over time as a row of bars, from zero to the most."""
    most = max(values) or 1
    picked = [values[index * (len(values) - 1) // (width - 1)] for index in range(width)]
    return "".join(BARS[min(len(BARS) - 1, value * len(BARS) // (most + 1))] for value in picked)


def commands(busbw: Path, seconds: float, folder: Path) -> dict[str, list[str]]:
    """What runs: each for longer than is measured."""
    # A row is kept for every size of every repetition: large ones leave little to keep.
    sizes = ["-b", "1M", "-e", "16M", "-f", "4", "-n", "100"]
    # A race over noise may be decided by luck: all settings run in all rounds.
    noise = ["--minimize", "runtime ([0-9.]+) s", "--var", "A=1,2,3,4", "--rounds", "1000", "--exhaustive"]
    # Five settings, the default among them, in 1,000 rounds must last longer than is measured.
    pause = max(0.1, 1.3 * seconds / 5000)
    trial = ["bash", "-c", f'sleep {pause:.2f}; echo "runtime $((1000 + RANDOM % 2000)) s"']
    return {
        "bench": [str(busbw), "bench", "all_reduce", "--np", "2", *sizes, "--repeat", "1000000"],
        "monitor": [str(busbw), "monitor", "--json", "--interval", "0.1", "--record", str(folder / "recording")],
        "tune": [str(busbw), "tune", *noise, "--unchecked", "--store", str(folder / "store"), "--", *trial],
    }


def start(name: str, command: list[str], folder: Path) -> Watched:
    """Start a program in a group of its own, its output in a file."""
    with (folder / f"{name}.out").open("wb") as out:
        return Watched(name, subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, start_new_session=True))


def end(watched: Watched) -> None:
    """End a program and all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(watched.process.pid, number)
            watched.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            pass
        watched.process.wait()
        return


def watch(programs: list[Watched], seconds: float, folder: Path) -> None:
    """Sample every program each second."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        children = parents()
        for program in programs:
            if program.process.poll() is not None:
                said = (folder / f"{program.name}.out").read_text(errors="replace").strip().splitlines()[-3:]
                sys.exit(f"soak: {program.name} ended with {program.process.returncode}: {' / '.join(said)}")
            program.sample(time.monotonic() - began, children)
        time.sleep(1.0)


def judged(program: Watched) -> dict[str, Any]:
    """Whether it grew."""
    memory = growth(program.seconds, [float(value) for value in program.memory_bytes])
    descriptors = growth(program.seconds, [float(value) for value in program.descriptors])
    allowed = max(MEMORY_BYTES, MEMORY_SHARE * median(program.memory_bytes))
    return {
        "name": program.name,
        "memory_growth_bytes": memory,
        "descriptor_growth": descriptors,
        "flat": memory <= allowed and descriptors < DESCRIPTORS,
        "seconds": program.seconds,
        "memory_bytes": program.memory_bytes,
        "descriptors": program.descriptors,
    }


def main() -> int:
    """Run all at once, judge, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (%(default)g)")
    parser.add_argument("--busbw", type=Path, default=Path("target/release/busbw"), help="what runs (%(default)s)")
    parser.add_argument("--out", type=Path, help="where results go")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="busbw-soak-") as name:
        folder = Path(name)
        lines = commands(flags.busbw.resolve(), flags.minutes * 60, folder)
        programs = [start(program, line, folder) for program, line in lines.items()]
        try:
            watch(programs, flags.minutes * 60, folder)
        finally:
            for program in programs:
                end(program)
    rows = [judged(program) for program in programs]
    result = origin.now("busbw.soak/1")
    result.update(minutes=flags.minutes, programs=rows)
    for row in rows:
        verdict = "flat" if row["flat"] else "GREW"
        memory = f"{max(row['memory_bytes']) / 1e6:8.1f} MB at most, {row['memory_growth_bytes'] / 1e6:+.2f} MB"
        descriptors = f"{max(row['descriptors']):8} at most, {row['descriptor_growth']:+.1f}: {verdict}"
        print(f"{row['name']:>8} memory      {curve(row['memory_bytes'])} {memory}")
        print(f"{'':>8} descriptors {curve(row['descriptors'])} {descriptors}")
    print(f"recorded in {origin.record('soak', result, flags.out)}")
    return 0 if all(row["flat"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

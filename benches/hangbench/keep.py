"""Chooses small runs of even seeds and copies them to tests/data/hangs: python benches/hangbench/keep.py FOLDER."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[2] / "tests/data/hangs"
RUNS = 60
LATE = ("late-loader", "late-compute", "late-link", "sound-uneven")
"""Of jobs that go on: what each rank called when is all that matters. The smallest of each shape, beside the others."""


def files(folder: Path, fault: str) -> list[Path]:
    """Return what is kept of a run: all but what sockets do, which matters for links only and is long."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    if fault in LATE:
        return [path for path in found if path.parent.name == "fr" or path.suffix in (".json", ".log")]
    return [path for path in found if not path.name.endswith(".ss.txt") or fault.endswith("-link")]


def size(folder: Path, fault: str) -> int:
    """Return the bytes that are kept of a run."""
    return sum(path.stat().st_size for path in files(folder, fault))


def choose(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Choose the smallest run of even seeds of each fault and shape, and leave the largest of them out."""
    best: dict[tuple[str, str], tuple[int, Path, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text())
        if truth["seed"] % 2:
            continue
        key, bytes_ = (truth["fault"], truth["shape"]), size(path.parent, truth["fault"])
        if key not in best or bytes_ < best[key][0]:
            best[key] = (bytes_, path.parent, truth)
    late = [one for one in best.values() if one[2]["fault"] in LATE]
    others = [one for one in best.values() if one[2]["fault"] not in LATE]
    smallest = sorted(others, key=lambda one: one[0])[:RUNS]
    return [(path, truth) for _, path, truth in [*smallest, *late]]


def main() -> None:
    """Copy them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of runs")
    parser.add_argument("--late", action="store_true", help="of jobs that go on only; leave the others that are kept")
    given = parser.parse_args()
    chosen = [one for one in choose(given.folder) if not given.late or one[1]["fault"] in LATE]
    if len(chosen) < RUNS and not given.late:
        sys.exit(f"keep: {len(chosen)} runs of even seeds in {given.folder}, {RUNS} are wanted")
    for old in KEPT.glob("*/truth.json"):
        if not given.late or json.loads(old.read_text())["fault"] in LATE:
            shutil.rmtree(old.parent)
    for folder, truth in chosen:
        for path in files(folder, truth["fault"]):
            target = KEPT / folder.name / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    total = sum(path.stat().st_size for path in KEPT.rglob("*") if path.is_file())
    print(f"{len(chosen)} runs, {total / 1e6:.2f} MB in {KEPT}")


if __name__ == "__main__":
    main()

"""Where and of what a measurement was made, and the file that keeps it: benches/results/KIND-DATE.json."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches/results"

MEASURED = (":(top)", ":(top,exclude)benches/results", ":(top,exclude)docs/benchmarks.md")
"""What may differ from a commit: all but what a measurement itself writes (src/machine.rs has the same)."""


def machine() -> dict[str, Any]:
    """Describe this machine, without its name."""
    fields = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    cpu_model = {name.strip(): value.strip() for name, value in fields.items()}.get("model name", "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    return {"cpu": cpu_model, "cores": cores, "memory_bytes": memory, "kernel": platform.release()}


def commit() -> dict[str, Any] | None:
    """Tell the commit that is checked out; None outside a git repository."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return {"hash": git("rev-parse", "HEAD"), "modified": git("status", "--porcelain", "--", *MEASURED) != ""}
    except (OSError, subprocess.CalledProcessError):
        return None


def now(schema: str) -> dict[str, Any]:
    """How every result begins: its form, and when, of what and on what it was measured."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    load = list(os.getloadavg())
    return {"schema": schema, "date": date, "commit": commit(), "machine": machine(), "load_average": load}


def free_name(kind: str, date: str, folder: Path = RESULTS) -> Path:
    """Find the first name of the day that no file has; a second result of a day gets -2."""
    names = (f"{kind}-{date[:10]}{f'-{number}' if number > 1 else ''}.json" for number in count(1))
    return next(path for path in (folder / name for name in names) if not path.exists())


def record(kind: str, result: dict[str, Any], out: Path | None = None, folder: Path = RESULTS) -> Path:
    """Write a result where it was asked for, or under the next free name of a folder."""
    path = out or free_name(kind, result["date"], folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path

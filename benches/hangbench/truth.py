"""What was done to a run, and who waits for what: truth.json."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

from plan import Plan


def read_dump(path: Path) -> dict[str, Any]:
    """Read a flight recorder's dump of this benchmark, JSON or pickle."""
    return json.loads(path.read_bytes()) if path.suffix == ".json" else pickle.loads(path.read_bytes())


def dumps(folder: Path) -> dict[int, Path]:
    """Return a run's dumps by rank."""
    return {int(path.stem.rpartition("_")[2]): path for path in sorted((folder / "fr").glob("*"))}


def waiting(folder: Path, culprits: list[int]) -> list[dict[str, Any]]:
    """Return the first collective that each of the other ranks has begun and not ended, the most common first."""
    ranks: dict[tuple[str, str, int], list[int]] = {}
    for rank, path in sorted(dumps(folder).items()):
        for entry in read_dump(path)["entries"]:
            if not entry["retired"] and rank not in culprits:
                key = (entry["process_group"][1], entry["profiling_name"], entry["collective_seq_id"])
                ranks.setdefault(key, []).append(rank)
                break
    order = Counter({key: len(who) for key, who in ranks.items()}).most_common()
    return [
        {"group": group, "collective": name.removeprefix("gloo:"), "seq": seq, "ranks": ranks[group, name, seq]}
        for (group, name, seq), _ in order
    ]


def truth(plan: Plan, folder: Path, real: bool) -> dict[str, Any]:
    """Write down all that is known."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "schema": "busbw.hangbench-run/1",
        "run": plan.name,
        "fault": plan.fault,
        "class": plan.kind,
        "shape": plan.shape,
        "seed": plan.seed,
        "culprit_ranks": plan.culprits,
        "culprit_host": f"h{plan.culprit_host}" if plan.culprit_host else None,
        "ranks": plan.world,
        "hosts": {
            f"h{plan.host_of(first)}": list(range(first, first + plan.per_host))
            for first in range(0, plan.world, plan.per_host)
        },
        "groups": {number: {"desc": desc, "ranks": ranks} for number, (desc, ranks) in plan.groups.items()},
        "waiting": waiting(folder, plan.culprits) if plan.kind != "none" else [],
        "fault_at_step": plan.settings["first_step"] + plan.at_step,
        "gloo_timeout_s": plan.settings["timeout_s"],
        "evidence": {
            "dumps": sorted(dumps(folder)),
            "dump_form": "json" if plan.settings["dump_json"] else "pickle",
            "stacks": sorted(
                int(path.stem[4:]) for path in files if path.parent.name == "stacks" and path.stem.startswith("rank")
            ),
            "logs": sorted(str(path.relative_to(folder)) for path in files if path.suffix == ".log"),
        },
        "launcher": "torchrun" if real else "torchrun, ranks forked",
    }

"""Scores what busbw explain and PyTorch's fr_trace say of runs against the truth, per kind of evidence and fault."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fr_trace
from truth import dumps

VARIANTS = ("dumps and logs", "half of the dumps and logs", "half of the dumps", "logs", "stacks and logs", "all")
LINKS = ("slow-link", "cut-link", "late-link")


@dataclass
class Answer:
    """What a program has said of a run."""

    ranks: frozenset[int] = frozenset()
    host: str | None = None
    kind: str | None = None
    failed: str | None = None
    """Why it could not answer."""
    condemned: bool = False
    """Whether it says that the job failed or is slow, if it names nobody."""

    @property
    def accuses(self) -> bool:
        """Whether it names anybody, or the whole job."""
        return bool(self.ranks or self.host or self.condemned)


@dataclass
class Score:
    """How a program did on one variant of a run's evidence."""

    run: str
    fault: str
    variant: str
    program: str
    culprit: bool
    kind: bool
    said: list[Any]
    left_dump: bool
    given_dump: bool
    """Whether the culprit's own dump is among those that are given."""


def evidence(folder: Path, variant: str) -> list[Path]:
    """Choose files of a run."""
    every = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [path for path in every if path.parts[0] != "work"]
    kept = {"logs": [path for path in files if path.parts[0] == "logs"]}
    kept["stacks and logs"] = [path for path in files if path.parts[0] in ("logs", "stacks")]
    kept["dumps and logs"] = [path for path in files if path.parts[0] in ("logs", "fr")]
    found = sorted(path for path in files if path.parts[0] == "fr")
    random.Random(folder.name).shuffle(found)
    kept["half of the dumps"] = sorted(found[: (len(found) + 1) // 2])
    kept["half of the dumps and logs"] = [*kept["half of the dumps"], *kept["logs"]]
    kept["all"] = [path for path in files if path.parts[0] in ("logs", "fr", "stacks")]
    return kept[variant]


def ask_busbw(busbw: Path, folder: Path, files: list[Path]) -> Answer:
    """Ask busbw explain."""
    command = [busbw, "explain", "--json", *files]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    try:
        answer = json.loads(said.stdout)
    except ValueError:
        return Answer(failed=(said.stderr.strip().splitlines() or ["no JSON"])[-1])
    culprit = answer["culprit"]
    if culprit is None:
        return Answer(condemned=answer["verdict"] in ("failed", "degraded"))
    return Answer(frozenset(culprit["ranks"]), culprit["host"], culprit["class"])


def judge(truth: dict[str, Any], answer: Answer) -> tuple[bool, bool]:
    """Tell whether the culprit is right, and its class."""
    if truth["class"] == "none":
        return not answer.accuses, answer.kind in (None, "none")
    behind = set(truth["culprit_ranks"])
    if truth["fault"] in LINKS:
        right = answer.host == truth["culprit_host"] or (bool(answer.ranks) and set(answer.ranks) <= behind)
    else:
        right = set(answer.ranks) == behind
    return right, answer.kind == truth["class"]


def score_run(busbw: Path, folder: Path) -> Iterator[Score]:
    """Score a run in every variant that its evidence allows."""
    truth = json.loads((folder / "truth.json").read_text())

    def scored(variant: str, program: str, answer: Answer) -> Score:
        culprit, kind = judge(truth, answer)
        said = [sorted(answer.ranks), answer.host, answer.kind, answer.failed]
        left = set(truth["culprit_ranks"]) <= set(truth["evidence"]["dumps"])
        ranks = {int(path.stem.rpartition("_")[2]) for path in evidence(folder, variant) if path.parts[0] == "fr"}
        given = set(truth["culprit_ranks"]) <= ranks
        return Score(truth["run"], truth["fault"], variant, program, culprit, kind, said, left, given)

    for variant in VARIANTS:
        files = evidence(folder, variant)
        first = variant.split()[0]
        needed = {"dumps": "fr", "half": "fr", "stacks": "stacks", "logs": "logs", "all": "logs"}[first]
        if not any(path.parts[0] == needed for path in files):
            continue
        yield scored(variant, "busbw", ask_busbw(busbw, folder, files))
        if first in ("dumps", "half"):
            kept = {rank: path for rank, path in dumps(folder).items() if path.relative_to(folder) in files}
            for program, repaired in (("fr_trace", False), ("fr_trace, repaired", True)):
                ranks, failed = fr_trace.ask(kept, truth, repaired)
                if truth["class"] == "none" or not any(set(one) == set(truth["culprit_ranks"]) for one in ranks):
                    chosen = ranks[0] if ranks else []
                else:
                    chosen = truth["culprit_ranks"]
                yield scored(variant, program, Answer(frozenset(chosen), failed=failed))


def share(scores: Iterable[Score], what: str = "culprit") -> str:
    """`12/12`, or `–` of none."""
    kept = list(scores)
    return f"{sum(getattr(score, what) for score in kept)}/{len(kept)}" if kept else "–"


BARS = (
    ("culprit, dumps of all that live and logs, culprit's own among them", 0.99, "culprit",
     lambda s: s.variant == VARIANTS[0] and s.left_dump),
    ("culprit, the same, culprit left none", 0.95, "culprit", lambda s: s.variant == VARIANTS[0] and not s.left_dump),
    ("culprit, half of the dumps and logs", 0.90, "culprit", lambda s: s.variant == VARIANTS[1]),
    ("culprit, half of the dumps, no logs", 0.90, "culprit", lambda s: s.variant == VARIANTS[2]),
    ("culprit, the same, culprit's own among them", None, "culprit",
     lambda s: s.variant == VARIANTS[2] and s.given_dump),
    ("culprit, logs alone", 0.80, "culprit", lambda s: s.variant == VARIANTS[3]),
    ("culprit, stacks and logs", None, "culprit", lambda s: s.variant == VARIANTS[4]),
    ("culprit, stacks, dumps and logs", None, "culprit", lambda s: s.variant == VARIANTS[5]),
    ("class, dumps of all that live and logs", 0.90, "kind", lambda s: s.variant == VARIANTS[0]),
    ("class, stacks, dumps and logs", 0.90, "kind", lambda s: s.variant == VARIANTS[5]),
)  # fmt: skip


LATE_BARS = (
    ("late by 5% of a step, after 20 steps, dumps and logs", 0.90, "culprit", lambda s: s.fault != "late-link"),
    ("the same, a link", None, "culprit", lambda s: s.fault == "late-link"),
)


def totals(scores: list[Score]) -> list[dict[str, Any]]:
    """Hold busbw's scores, and fr_trace's beside them, against the bars."""
    late = [score for score in scores if score.fault.startswith("late-") and score.variant == VARIANTS[0]]
    hurt = [score for score in scores if not score.fault.startswith(("sound", "late-"))]
    sound = [score for score in scores if score.fault.startswith("sound")]
    rows = []
    for of, bars in ((hurt, BARS), (late, LATE_BARS)):
        for name, bar, what, belongs in bars:
            row: dict[str, Any] = {"what": name, "bar": bar}
            for program in ("busbw", "fr_trace", "fr_trace, repaired"):
                row[program] = share((s for s in of if s.program == program and belongs(s)), what)
            rows.append(row)
    steady = [score for score in sound if score.fault == "sound-uneven"]
    others = [score for score in sound if score.fault != "sound-uneven"]
    accused = "sound evidence accused"
    for name, of in ((accused, others), (f"{accused}, beside those that are late", steady)):
        row = {"what": name, "bar": 0}
        for program in ("busbw", "fr_trace", "fr_trace, repaired"):
            mine = [score for score in of if score.program == program]
            row[program] = f"{sum(not score.culprit for score in mine)}/{len(mine)}" if mine else "–"
        rows.append(row)
    return rows


def table(scores: list[Score]) -> str:
    """Draw the table."""
    lines = ["| evidence | fault | runs | busbw: culprit | class | fr_trace: culprit | repaired |", "| --- " * 7 + "|"]
    faults = list(dict.fromkeys(score.fault for score in scores))
    for variant in VARIANTS:
        for fault in faults:
            mine = [score for score in scores if (score.variant, score.fault) == (variant, fault)]
            by = {name: [s for s in mine if s.program == name] for name in ("busbw", "fr_trace", "fr_trace, repaired")}
            if by["busbw"]:
                cells = (variant, fault, str(len(by["busbw"])), share(by["busbw"]), share(by["busbw"], "kind"),
                         share(by["fr_trace"]), share(by["fr_trace, repaired"]))  # fmt: skip
                lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| total | goal | busbw | fr_trace | repaired |", "| --- | --- | --- | --- | --- |"]
    for row in totals(scores):
        goal = "" if row["bar"] is None else f"≥ {row['bar']:.0%}" if row["bar"] else "0"
        lines.append(f"| {row['what']} | {goal} | {row['busbw']} | {row['fr_trace']} | {row['fr_trace, repaired']} |")
    return "\n".join(lines)

"""Scores runs: python benches/hangbench/scoring.py FOLDER --busbw COMMAND."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import origin  # noqa: E402
import score  # noqa: E402


def main() -> None:
    """Score, print the table, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of runs")
    parser.add_argument("--busbw", type=Path, default=origin.ROOT / "target/release/busbw", help="the command")
    parser.add_argument("--only", choices=["even", "odd", "all"], default="all", help="of which seeds (%(default)s)")
    parser.add_argument("--wrong", action="store_true", help="list what busbw got wrong")
    parser.add_argument("--out", type=Path, help="where the result goes")
    given = parser.parse_args()
    remainders = {"even": (0,), "odd": (1,), "all": (0, 1)}[given.only]
    folders = sorted(path.parent for path in given.folder.glob("*/truth.json"))
    folders = [folder for folder in folders if int(folder.name.rpartition("-")[2]) % 2 in remainders]
    if not folders:
        sys.exit(f"scoring: no run in {given.folder}")
    scores = [one for folder in folders for one in score.score_run(given.busbw.resolve(), folder)]
    print(score.table(scores))
    if given.wrong:
        for one in scores:
            if one.program == "busbw" and not (one.culprit and one.kind):
                print(f"{one.run}, {one.variant}: said {one.said}")
    result: dict[str, Any] = origin.now("busbw.hangbench/1")
    result |= {"runs": len(folders), "seeds": given.only, "totals": score.totals(scores)}
    result["scores"] = [asdict(one) for one in scores]
    print(f"recorded in {origin.record('hangbench', result, given.out)}")


if __name__ == "__main__":
    main()

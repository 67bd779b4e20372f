"""`busbw.compare`: runs of one test side by side, as `busbw compare` shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from busbw import _native
from busbw.frames import frame
from busbw.parts import Json
from busbw.runs import Path

if TYPE_CHECKING:
    import pandas as pd

MEASURED = ("busbw_gbs", "time_us", "ci95_gbs", "repetitions")
COLUMNS = ("size_bytes", "run", *MEASURED, "ratio")
"""The columns of `Comparison.table`."""


def compare(*runs: Path, collective: str | None = None, anyway: bool = False) -> Comparison:
    """Compare runs with the first of them, size by size.

    Args:
        runs: a run each: a file, a folder with all files of a run, or what `busbw doctor` saved (docs/compare.md).
        collective: which test, of runs that hold several.
        anyway: compare different collectives and numbers of ranks too.

    Raises:
        OSError: a file cannot be read.
        ValueError: fewer than two runs, or runs that are not comparable; the message says why.
    """
    return Comparison(json.loads(_native.compare(list(runs), collective, anyway)))


class Comparison:
    """Who is faster at which sizes, by how much, and what else differs."""

    document: Json
    """The whole answer: JSON of the schema `busbw.compare/1` (docs/schema/compare-1.schema.json)."""

    def __init__(self, document: Json) -> None:
        self.document = document

    @property
    def summary(self) -> str:
        """One sentence that says it all."""
        return self.document["summary"]

    @property
    def differences(self) -> list[dict[str, Any]]:
        """Other differences between the runs: `kind`, `name`, and `values` per run."""
        return list(self.document["differences"])

    @cached_property
    def table(self) -> pd.DataFrame:
        """A frame with a row for every size and run, the smallest size first.

        Columns: `size_bytes`, `run` (the path as given), `busbw_gbs` (the better of in place and out of place),
        `time_us`, `ci95_gbs` (half the width of the 95% interval of busbw; missing without repetitions), `repetitions`
        (how often this size was measured), and `ratio`, busbw of the first run over that of this one.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return frame([cell for row in self.document["rows"] for cell in self._cells(row)], COLUMNS)

    def _cells(self, row: Json) -> Iterator[dict[str, Any]]:
        """Take a row of the JSON apart, which has a list with an entry per run in every field."""
        ratios = [1.0, *row["ratios"]]
        for index, run in enumerate(self.document["runs"]):
            measured = {name: row[name][index] for name in MEASURED}
            yield {"size_bytes": row["size_bytes"], "run": run["name"], **measured, "ratio": ratios[index]}

    def __repr__(self) -> str:
        return f"<busbw.Comparison of {len(self.document['runs'])} runs: {self.summary}>"

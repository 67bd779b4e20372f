"""Tables as pandas frames. pandas is imported when the first frame is asked for, so that the rest works without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from busbw.parts import Json

if TYPE_CHECKING:
    import pandas as pd

HALVES = ("out_of_place", "in_place")
MEASURES = ("time_us", "algbw_gbs", "busbw_gbs", "wrong")
KEYS = ("size_bytes", "count", "datatype", "redop", "root")
EXPECTED = {"expected_busbw_gbs": "busbw_gbs", "limit_busbw_gbs": "limit_busbw_gbs", "bottleneck": "bottleneck"}
"""Columns about what should be reached, and what the JSON calls them."""

TABLE = (*KEYS, *(f"{half}_{name}" for half in HALVES for name in MEASURES), *EXPECTED)
"""The columns of `Runs.tables`."""

INTEGERS = {"size_bytes", "count", "root", "out_of_place_wrong", "in_place_wrong", "repetitions"}
"""Columns of whole numbers that may be missing: of pandas' type `Int64`."""


def frame(rows: list[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Make a frame: columns with a unit in their name hold floats, and NaN where a number is missing.

    Raises:
        ModuleNotFoundError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        reason = "tables are pandas frames, and pandas is not installed: pip install 'busbw[pandas]'"
        raise ModuleNotFoundError(reason, name="pandas") from error
    numbers = {name: "float64" for name in columns if name.endswith(("_us", "_gbs", "ratio"))}
    integers = {name: "Int64" for name in columns if name in INTEGERS}
    return pd.DataFrame(rows, columns=list(columns)).astype({**numbers, **integers})


def table_frame(table: Json) -> pd.DataFrame:
    """Make the frame of a table of the schema `busbw.explain/1`; `Runs.tables` says what its columns are."""
    made = frame([_row(row, expected) for row, expected in zip(table["rows"], _expectations(table))], TABLE)
    made.attrs.update({name: value for name, value in table.items() if name not in ("rows", "expected")})
    return made


def _expectations(table: Json) -> list[Json]:
    """Return what each row should reach; empty objects where it cannot be said."""
    return table.get("expected") or [{}] * len(table["rows"])


def _row(row: Json, expected: Json) -> dict[str, Any]:
    measured = {f"{half}_{name}": (row[half] or {}).get(name) for half in HALVES for name in MEASURES}
    return {**row, **measured, **{column: expected.get(name) for column, name in EXPECTED.items()}}

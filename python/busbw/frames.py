"""Tables as pandas frames. pandas is imported when the first frame is asked for, so that the rest works without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from busbw.parts import Json

if TYPE_CHECKING:
    import pandas as pd

INTEGERS = ("size_bytes", "count", "root", "out_of_place_wrong", "in_place_wrong")
"""Columns of whole numbers that may be missing: of pandas' type `Int64`."""

HALVES = ("out_of_place", "in_place")
MEASURES = ("time_us", "algbw_gbs", "busbw_gbs", "wrong")
EXPECTED = {"busbw_gbs": "expected_busbw_gbs", "limit_busbw_gbs": "limit_busbw_gbs", "bottleneck": "bottleneck"}


def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Make a frame with a column per key.

    Raises:
        ModuleNotFoundError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        reason = "tables are pandas frames, and pandas is not installed: pip install 'busbw[pandas]'"
        raise ModuleNotFoundError(reason, name="pandas") from error
    made = pd.DataFrame(rows)
    return made.astype({name: "Int64" for name in INTEGERS if name in made})


def table_frame(table: Json) -> pd.DataFrame:
    """Make the frame of a table of the schema `busbw.explain/1`; `Runs.tables` says what its columns are."""
    made = frame([_row(row, expected) for row, expected in zip(table["rows"], _expectations(table))])
    made.attrs.update({name: value for name, value in table.items() if name not in ("rows", "expected")})
    return made


def _expectations(table: Json) -> list[Json]:
    """Return what each row should reach; empty objects where it cannot be said."""
    return table.get("expected") or [{}] * len(table["rows"])


def _row(row: Json, expected: Json) -> dict[str, Any]:
    plain = {name: row[name] for name in ("size_bytes", "count", "datatype", "redop", "root")}
    measured = {f"{half}_{name}": (row[half] or {}).get(name) for half in HALVES for name in MEASURES}
    return {**plain, **measured, **{column: expected.get(name) for name, column in EXPECTED.items()}}

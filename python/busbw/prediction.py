"""`busbw.predict`: the table that a cluster should print, as `busbw predict` gives it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from busbw import _native
from busbw.frames import frame
from busbw.parts import Json
from busbw.runs import Path

if TYPE_CHECKING:
    import pandas as pd

SIZES = tuple(8 << step for step in range(31))
"""8 bytes to 8 GiB, doubling: what is predicted where no sizes are given."""

BANDWIDTHS = ("algbw_gbs", "busbw_gbs", "limit_busbw_gbs")
BAND = ("low_busbw_gbs", "high_busbw_gbs")
COLUMNS = ("size_bytes", "time_us", *BANDWIDTHS, *BAND, "algorithm", "protocol", "bottleneck")
"""The columns of `Prediction.table`."""


def predict(
    cluster: Mapping[str, Any] | Path,
    *logs: Path,
    collective: str | None = None,
    sizes: Iterable[int] = SIZES,
) -> Prediction:
    """Predict the table that a cluster should print.

    Args:
        cluster: a description as a dict with the keys of docs/clusters.md, the path of one (`.toml`), or the path of a
            log that tells of the cluster.
        logs: further logs of the same cluster.
        collective: `all_reduce`, `all_gather` …; if not given, what the description says, else `all_reduce`.
        sizes: message sizes in bytes, as nccl-tests counts them.

    Raises:
        OSError: a file cannot be read.
        ValueError: the cluster is not described well enough; the message says what to write.
    """
    if isinstance(cluster, Mapping):
        return Prediction(json.loads(_native.predict(list(logs), json.dumps(cluster), collective, list(sizes))))
    return Prediction(json.loads(_native.predict([cluster, *logs], None, collective, list(sizes))))


class Prediction:
    """What a cluster should reach, size by size."""

    document: Json
    """The whole answer: JSON of the schema `busbw.predict/1` (docs/schema/predict-1.schema.json)."""

    def __init__(self, document: Json) -> None:
        self.document = document

    @property
    def collective(self) -> str:
        """The collective by its name in nccl-tests, such as `all_reduce`."""
        return self.document["collective"]

    @property
    def nranks(self) -> int:
        """Ranks, one per GPU."""
        return self.document["nranks"]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was not said and had to be assumed, a sentence each."""
        return tuple(self.document["assumptions"])

    @cached_property
    def table(self) -> pd.DataFrame:
        """A frame with a row per size.

        Columns: `size_bytes`, `time_us` (of one operation), `algbw_gbs`, `busbw_gbs`, `limit_busbw_gbs` (what the
        hardware cannot exceed with this algorithm), `low_busbw_gbs` and `high_busbw_gbs` (what nine of ten such
        machines should lie between), `algorithm` and `protocol` (what NCCL would choose), `bottleneck`.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        rows = self.document["rows"]
        return frame([row | dict(zip(BAND, row["busbw_gbs_band"])) for row in rows], COLUMNS)

    def __repr__(self) -> str:
        return f"<busbw.Prediction, {self.collective} of {self.nranks} ranks at {len(self.document['rows'])} sizes>"

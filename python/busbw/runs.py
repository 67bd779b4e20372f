"""`busbw.read`: what `busbw explain` says of runs, as typed objects and pandas frames."""

from __future__ import annotations

import json
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

from busbw import _native, parts
from busbw.frames import TABLE, frame, table_frame

if TYPE_CHECKING:
    import pandas as pd

Path = Union[str, "os.PathLike[str]"]
"""A file; `-` is standard input."""

LABELS = ("table", "input", "collective", "nranks")
"""Columns of `Runs.frame` that say where a row comes from."""


def read(*paths: Path, cluster: Path | None = None, threads: int | None = None) -> Runs:
    """Read runs and judge them, as `busbw explain` does.

    Args:
        paths: files of any kinds that `busbw explain` reads, in any mix: nccl-tests tables, NCCL logs, `nvidia-smi topo
            -m`, perftest … (docs/formats.md). `-` is standard input.
        cluster: a description (TOML, docs/clusters.md) of the cluster that the runs were on.
        threads: how many threads read; all cores if not given. Other threads of Python run meanwhile.

    Raises:
        OSError: a file cannot be read (`FileNotFoundError`, `PermissionError`, `IsADirectoryError` …).
        ValueError: no path was given, or the inputs hold nothing that busbw knows. Every message names the path, the
            reason and the remedy.
    """
    return Runs(json.loads(_native.explain(list(paths), cluster, threads)))


class Runs:
    """What was read, and what busbw makes of it. Everything follows from `document`."""

    document: parts.Json
    """The whole answer: JSON of the schema `busbw.explain/1` (docs/schema/explain-1.schema.json)."""

    def __init__(self, document: parts.Json) -> None:
        self.document = document

    @property
    def verdict(self) -> parts.Verdict:
        """The state of the run as a whole: healthy, no-errors, degraded, failed or inconclusive."""
        return self.document["verdict"]

    @property
    def summary(self) -> str:
        """One sentence that says the verdict."""
        return self.document["summary"]

    @cached_property
    def judged(self) -> tuple[parts.Judged, ...]:
        """What was judged, how, and how it came out; what is not listed was not judged."""
        return tuple(parts.Judged(**values) for values in self.document["judged"])

    @cached_property
    def findings(self) -> tuple[parts.Finding, ...]:
        """What is wrong, the evidence, and the fix; act on the first one."""
        return tuple(parts.finding(values) for values in self.document["findings"])

    @cached_property
    def culprit(self) -> parts.Culprit | None:
        """The ranks for which the others wait, as the first finding has it."""
        return parts.culprit(self.document["culprit"])

    @cached_property
    def tables(self) -> list[pd.DataFrame]:
        """The tables of nccl-tests, in the order read: a frame each, with a row per message size in the order printed.

        Columns: `size_bytes`, `count` (elements), `datatype`, `redop`, `root`; measured out of place and in place
        (`out_of_place_…`, `in_place_…`): `time_us` (mean of one operation), `algbw_gbs`, `busbw_gbs`, `wrong` (elements
        with a wrong result); what such a cluster should reach: `expected_busbw_gbs`, `limit_busbw_gbs` (what the
        hardware cannot exceed), `bottleneck`. Sizes are bytes, times microseconds, bandwidths GB/s; missing where the
        inputs do not say.

        `frame.attrs` holds `collective`, `nranks`, `input` (path), `line`, `avg_busbw_gbs` and `peak_busbw_gbs`.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return [table_frame(table) for table in self.document["tables"]]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All tables in one frame: `table` (from 0), `input`, `collective` and `nranks`, then the columns of `tables`.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        tables = [_labelled(index, table) for index, table in enumerate(self.tables)]
        empty = frame([], (*LABELS, *TABLE))
        import pandas as pd

        return pd.concat(tables, ignore_index=True) if tables else empty

    @cached_property
    def communicators(self) -> tuple[parts.Communicator, ...]:
        """Communicators, the largest first."""
        return tuple(parts.communicator(values) for values in self.document["communicators"])

    @cached_property
    def nodes(self) -> tuple[parts.Node, ...]:
        """Machines that ranks ran on, in order of appearance."""
        return tuple(parts.node(values) for values in self.document["nodes"])

    @cached_property
    def nccl(self) -> parts.Nccl | None:
        """The library; None when neither a line of its log nor a version was read."""
        nccl = self.document["nccl"]
        return parts.part(parts.Nccl, nccl) if nccl else None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that NCCL's log says it found: the first value of each."""
        return dict(self.document["environment"])

    @property
    def launch_environment(self) -> dict[str, str]:
        """Variables of launch commands that the inputs show: the first value of each."""
        return dict(self.document["launch_environment"])

    @cached_property
    def variables(self) -> tuple[parts.Variable, ...]:
        """Every variable that was seen, what it means and how it stands in this run."""
        return parts.parts(parts.Variable, self.document["variables"])

    @cached_property
    def expected(self) -> parts.Expected | None:
        """What such a machine should reach; None where it cannot be said."""
        expected = self.document["expected"]
        return parts.part(parts.Expected, expected) if expected else None

    @cached_property
    def advice(self) -> tuple[parts.Advice, ...]:
        """What to run next where the inputs leave a question open."""
        return parts.parts(parts.Advice, self.document["advice"])

    @cached_property
    def inputs(self) -> tuple[parts.Input, ...]:
        """The files, in the order given, and what they are."""
        return parts.parts(parts.Input, self.document["inputs"])

    @cached_property
    def problems(self) -> tuple[parts.Problem, ...]:
        """Parts of the inputs that could not be read."""
        return parts.parts(parts.Problem, self.document["problems"])

    @property
    def evidence(self) -> dict[str, Any]:
        """What other tools tell (RAS, the Inspector, PyTorch's watchdog …), as the schema has it; often empty."""
        return dict(self.document.get("evidence", {}))

    def __repr__(self) -> str:
        counts = ((len(self.document[name]), name) for name in ("inputs", "tables", "findings"))
        numbers = ", ".join(f"{n} {name if n != 1 else name[:-1]}" for n, name in counts)
        return f"<busbw.Runs, {numbers}: {self.verdict}; {self.summary}>"


def _labelled(index: int, table: pd.DataFrame) -> pd.DataFrame:
    labels = {"table": index, **table.attrs}
    labelled = table.assign(**{name: labels[name] for name in LABELS})[[*LABELS, *TABLE]]
    labelled.attrs = {}
    return labelled

"""What was measured: rows of devices, images per second and scaling efficiency; as text, JSON and back."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCHEMA = "busbw.synthetic/1"

_NORMAL_95 = 1.96
"""Standard deviations on either side of the mean that hold 95% of normally distributed values."""


@dataclass(frozen=True)
class Row:
    """One stack on one number of devices.

    Attributes:
        network: what the network was called.
        stack: how gradients were averaged.
        devices: how many took part.
        per_device: mean images per second of a device.
        deviation: 1.96 standard deviations of that.
    """

    network: str
    stack: str
    devices: int
    per_device: float
    deviation: float

    @classmethod
    def of(cls, network: str, stack: str, devices: int, per_device: Sequence[float]) -> Row:
        """Sum up measured values: images per second of one device."""
        deviation = _NORMAL_95 * statistics.pstdev(per_device)
        return cls(network, stack, devices, statistics.fmean(per_device), deviation)

    @property
    def images_per_s(self) -> float:
        """Images per second of all devices."""
        return self.devices * self.per_device


@dataclass(frozen=True)
class Table:
    """A run.

    Attributes:
        model: torchvision's name.
        batch_size: images per device and batch.
        device: `GPU` or `CPU`.
        compute_ms: with replay, the computation that each batch waited for.
        rows: by stack, then by devices.
    """

    model: str
    batch_size: int
    device: str
    compute_ms: float | None
    rows: tuple[Row, ...]

    def efficiency(self, row: Row) -> float | None:
        """Return (images/s of N / N) / images/s of 1 on the same network, in percent; None without the latter."""
        alone = [other for other in self.rows if other.devices == 1 and other.network == row.network]
        same = [other for other in alone if other.stack == row.stack] or alone
        return 100 * row.per_device / same[0].per_device if same else None

    def __str__(self) -> str:
        how = "" if self.compute_ms is None else f", replayed with {self.compute_ms:g} ms of computation a batch"
        lines = [
            f"{self.model}, batch {self.batch_size} per {self.device}{how}",
            f"{'network':12} {'stack':10} {'devices':>7} {'images/s':>18} {'efficiency':>10}",
        ]
        for row in self.rows:
            efficiency = self.efficiency(row)
            percent = "" if efficiency is None else f"{efficiency:.0f}%"
            total = f"{row.images_per_s:.1f} ±{row.devices * row.deviation:.1f}"
            lines.append(f"{row.network:12} {row.stack:10} {row.devices:>7} {total:>18} {percent:>10}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the table in schema `busbw.synthetic/1`."""
        rows = [
            {**asdict(row), "images_per_s": row.images_per_s, "efficiency_pct": self.efficiency(row)}
            for row in self.rows
        ]
        return json.dumps({"schema": SCHEMA, **asdict(self), "rows": rows}, indent=2) + "\n"


def merged(files: Iterable[Path]) -> Table:
    """Return the tables of several JSON files as one, as of runs with and without a net plugin.

    Raises:
        ValueError: a file is no such table, or of another model, batch or device.
    """
    tables = [_read(file) for file in files]
    first, *others = tables
    for other in others:
        if (other.model, other.batch_size, other.device) != (first.model, first.batch_size, first.device):
            raise ValueError(
                f"{other.model}, batch {other.batch_size} per {other.device} is another run than {first.model}'s"
            )
    rows = tuple(row for table in tables for row in table.rows)
    return Table(first.model, first.batch_size, first.device, first.compute_ms, rows)


def _read(file: Path) -> Table:
    try:
        read: dict[str, Any] = json.loads(file.read_text())
        if read["schema"] != SCHEMA:
            raise ValueError(f"schema {read['schema']!r}")
        fields = ("network", "stack", "devices", "per_device", "deviation")
        rows = tuple(Row(*(row[name] for name in fields)) for row in read["rows"])
        return Table(read["model"], read["batch_size"], read["device"], read["compute_ms"], rows)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is no table of busbw.synthetic: {error}") from None

"""What `accelerate` may be told."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Literal

import torch

from busbw.compress import Method

Mode = Literal["plain", "two-level", "topk", "both", "auto"]
"""`both` is two-level with top-k between hosts; `auto` becomes what `busbw.advisor` finds to be the fastest."""

MODES: tuple[Mode, ...] = ("plain", "two-level", "topk", "both", "auto")

_WIRE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Options:
    """How gradients are averaged.

    Attributes:
        mode: see `Mode`.
        ratio: top-k's share of the entries of a bucket, in (0, 1].
        value_dtype: the type in which top-k's values travel: float32, float16 or bfloat16.
        momentum: factor of momentum correction, in [0, 1); the optimizer then has none of its own.
        warmup_steps: steps over which the share falls from a quarter to `ratio`.
        dense_steps: steps at the start that send everything; at least 1, since DDP orders its buckets anew
            after the first.
        topk_min_bytes: buckets below are sent whole.
        two_level_max_bytes: buckets above go around one ring of all ranks.
        selection: how entries are selected, see `busbw.compress.Method`.
        intra_size: take blocks of this many consecutive ranks as hosts; None finds hosts by their names.
        lossy: whether `auto` may choose top-k, which changes what is learned.
        log_every: log the compression report every so many steps; 0 never.
        timeout: limit of a collective; None takes the process group's.
    """

    mode: Mode = "auto"
    ratio: float = 0.01
    value_dtype: torch.dtype = torch.float32
    momentum: float = 0.0
    warmup_steps: int = 0
    dense_steps: int = 1
    topk_min_bytes: int = 1 << 20
    two_level_max_bytes: int = 1 << 30
    selection: Method = "exact"
    intra_size: int | None = None
    lossy: bool = False
    log_every: int = 0
    timeout: datetime.timedelta | None = None

    def __post_init__(self) -> None:
        _require(self.mode in MODES, f"mode is one of {', '.join(MODES)}, not {self.mode!r}")
        _require(0 < self.ratio <= 1, f"ratio is a share in (0, 1], not {self.ratio}")
        _require(0 <= self.momentum < 1, f"momentum is in [0, 1), not {self.momentum}")
        _require(
            self.value_dtype in _WIRE_DTYPES,
            f"value_dtype is torch.float32, float16 or bfloat16, not {self.value_dtype}",
        )
        _require(self.selection in ("exact", "threshold"), f"unknown selection {self.selection!r}")
        _require(self.dense_steps >= 1, "dense_steps is at least 1: DDP orders its buckets after the first step")
        _require(self.warmup_steps >= 0, "warmup_steps is not negative")
        _require(self.log_every >= 0, "log_every is not negative")
        _require(self.intra_size is None or self.intra_size > 0, "intra_size is at least 1")

    @property
    def compresses(self) -> bool:
        """Whether the mode sends only some of the entries."""
        return self.mode in ("topk", "both")

    @property
    def is_two_level(self) -> bool:
        """Whether the mode reduces within hosts first."""
        return self.mode in ("two-level", "both")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(f"busbw: {otherwise}")

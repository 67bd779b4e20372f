"""The LIGHT_* variables: two-level and top-k all-reduce for a script that knows nothing of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from busbw.torch.layout import HostLayout
from busbw.torch.options import Mode, Options

_PREFIX = "LIGHT_"


@dataclass(frozen=True)
class Light:
    """What the variables say.

    Attributes:
        two_level: LIGHT_2D_ALLREDUCE, reduce within a host, then between hosts.
        intra_size: LIGHT_INTRA_SIZE, ranks of a host. While it is not set, hosts are found by their names.
        two_level_max_bytes: LIGHT_HIERARCHICAL_THRESHOLD, two levels up to this size.
        topk: LIGHT_TOPK_ALLREDUCE, send the largest entries only.
        topk_ratio: LIGHT_TOPK_RATIO, their share.
        topk_min_bytes: LIGHT_TOPK_THRESHOLD, compress from this size up.
        topk_fp16: LIGHT_TOPK_FP16, send values as float16.
        given: the variables that were set, with their values.
    """

    two_level: bool = False
    intra_size: int = 8
    two_level_max_bytes: int = 1 << 30
    topk: bool = False
    topk_ratio: float = 0.01
    topk_min_bytes: int = 1 << 20
    topk_fp16: bool = False
    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Light:
        """Read the variables; warn of unknown ones.

        Raises:
            ValueError: a value is not what its variable takes.
        """
        fields: dict[str, Any] = {}
        given = []
        for variable in sorted(name for name in environment if name.startswith(_PREFIX)):
            if variable not in _FIELDS:
                warnings.warn(f"{variable} is unknown and ignored; known are {', '.join(_FIELDS)}", stacklevel=2)
                continue
            field, parse = _FIELDS[variable]
            given.append((variable, environment[variable]))
            try:
                fields[field] = parse(environment[variable])
            except ValueError as error:
                raise ValueError(f"busbw: {variable}={environment[variable]!r}: {error}") from None
        return cls(**fields, given=tuple(given))

    @property
    def blocks(self) -> bool:
        """Return whether LIGHT_INTRA_SIZE was set, so that consecutive ranks make a host."""
        return any(name == "LIGHT_INTRA_SIZE" for name, _ in self.given)

    @property
    def mode(self) -> Mode:
        """Return the way of averaging that the two switches make."""
        if self.two_level:
            return "both" if self.topk else "two-level"
        return "topk" if self.topk else "plain"

    def effect(self, layout: HostLayout) -> str | None:
        """Say in a line what the variables that were set do on these hosts, and which do nothing; None without any."""
        if not self.given:
            return None
        hosts = HostLayout.from_blocks(layout.world_size, self.intra_size) if self.blocks else layout
        levels = self.two_level and hosts.has_two_levels
        ways = ["two-level all-reduce"] * levels + ["top-k all-reduce"] * self.topk
        used, unused = [], []
        for name, value in self.given:
            works = self.topk if name.startswith("LIGHT_TOPK") else levels
            (used if works or value == "0" else unused).append(f"{name}={value}")
        what = f"{' and '.join(ways) or 'plain all-reduce'} on {len(hosts.hosts)} x {hosts.local_size or '?'} ranks"
        by = f", by {' '.join(used)}" if used else ""
        nothing = f"; without effect: {' '.join(unused)}" if unused else ""
        return f"busbw.horovod: {what}{by}{nothing}"

    def options(self, **others: Any) -> Options:  # noqa: ANN401 (fields of Options)
        """Return the same as options of a reducer."""
        return Options(
            mode=self.mode,
            ratio=self.topk_ratio,
            value_dtype=torch.float16 if self.topk_fp16 else torch.float32,
            topk_min_bytes=self.topk_min_bytes,
            two_level_max_bytes=self.two_level_max_bytes,
            intra_size=self.intra_size if self.blocks else None,
            **others,
        )


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("0 or 1 is expected")
    return text == "1"


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("a whole number is expected")
    return int(text)


def _positive(text: str) -> int:
    if _count(text) < 1:
        raise ValueError("at least 1 is expected")
    return _count(text)


def _share(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise ValueError("a share above 0 and up to 1 is expected")
    return float(text)


_FIELDS = {
    "LIGHT_2D_ALLREDUCE": ("two_level", _switch),
    "LIGHT_INTRA_SIZE": ("intra_size", _positive),
    "LIGHT_HIERARCHICAL_THRESHOLD": ("two_level_max_bytes", _count),
    "LIGHT_TOPK_ALLREDUCE": ("topk", _switch),
    "LIGHT_TOPK_RATIO": ("topk_ratio", _share),
    "LIGHT_TOPK_THRESHOLD": ("topk_min_bytes", _count),
    "LIGHT_TOPK_FP16": ("topk_fp16", _switch),
}

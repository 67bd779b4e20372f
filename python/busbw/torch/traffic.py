"""How many bytes each way of averaging sends over the slow network, by the formulas of `busbw accelerate`."""

from __future__ import annotations

from dataclasses import dataclass

from busbw import _native
from busbw.compress import Message


@dataclass(frozen=True)
class Shape:
    """How many ranks where: `hosts` hosts of `local` ranks each."""

    hosts: int
    local: int

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.hosts * self.local


def sent(mode: str, shape: Shape, nbytes: int, message: Message | None = None) -> float:
    """Return the bytes that leave a host.

    Args:
        mode: `plain`, `two-level`, `topk` or `both`.
        shape: the ranks.
        nbytes: size of the gradients.
        message: what top-k makes of them for one rank; of its share, with two levels.
    """
    message_bytes = 0 if message is None else message.nbytes
    return _native.gradient_traffic(mode, (shape.hosts, shape.local), nbytes, message_bytes)

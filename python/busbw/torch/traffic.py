"""How many bytes each way of averaging sends over the slow network: one formula each.

Counted per host, for rings whose ranks follow each other host by host, so that one connection of each
ring leaves a host. With one host the "network" is what joins its ranks.
"""

from dataclasses import dataclass

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


def plain(shape: Shape, nbytes: int) -> float:
    """Return the bytes of one ring all-reduce of `nbytes` over all ranks: 2 (W-1)/W of them."""
    return 2 * (shape.world - 1) / shape.world * nbytes


def two_level(shape: Shape, nbytes: int) -> float:
    """Return the bytes of one ring all-reduce per rail, each of its share of `nbytes`: 2 (H-1)/H in all."""
    return 2 * (shape.hosts - 1) / shape.hosts * nbytes


def topk(shape: Shape, message: Message) -> float:
    """Return the bytes of gathering every rank's message around one ring."""
    return (shape.world - 1) * message.nbytes


def both(shape: Shape, message: Message) -> float:
    """Return the bytes of gathering messages along every rail; `message` is that of a rank's share."""
    return shape.local * (shape.hosts - 1) * message.nbytes

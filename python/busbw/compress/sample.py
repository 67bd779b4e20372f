"""A sample of a tensor, which tells about how large its k-th largest magnitude is."""

import math
from dataclasses import dataclass

import torch

_LEAST = 1 << 16
_MOST = 1 << 20
_WANTED = 256
"""Sampled entries above the threshold: their number is off by about its root, here 6%."""

_MARGIN = 4.0
"""Standard deviations of the sample by which `generous` aims lower."""


@dataclass(frozen=True)
class Sample:
    """Entries spread evenly over a tensor, of which the `k` largest are looked for.

    Attributes:
        magnitudes: shape `[size]`, not ordered.
        entries: how many the tensor has.
        wanted: how many of the sample belong to the tensor's `k` largest, on average.
    """

    magnitudes: torch.Tensor
    entries: int
    wanted: int

    @classmethod
    def of(cls, tensor: torch.Tensor, k: int) -> "Sample":
        """Take a sample of a flat tensor: the more, the smaller the share of its `k` largest is."""
        n = tensor.numel()
        size = min(n, max(_LEAST, min(_MOST, _WANTED * n // k)))
        sampled = tensor[places(n, size, tensor.device)] if size < n else tensor
        return cls(sampled.abs(), n, max(1, math.ceil(size * k / n)))

    @property
    def size(self) -> int:
        """How many entries were taken."""
        return self.magnitudes.numel()

    @property
    def generous(self) -> int:
        """How many of the sample to aim at for the tensor's `k` largest to be almost surely among what is found."""
        return min(self.size, math.ceil(self.wanted + _MARGIN * math.sqrt(self.wanted)))

    @property
    def capacity(self) -> int:
        """How many entries `generous` finds at most, unless the sample misleads: twice what is expected."""
        return min(self.entries, 2 * math.ceil(self.generous / self.size * self.entries))

    def magnitude(self, rank: int) -> torch.Tensor:
        """Return the `rank`-th largest magnitude of the sample, counted from 1, as a tensor on its device."""
        return torch.topk(self.magnitudes, rank).values[-1]


def places(n: int, size: int, device: torch.device) -> torch.Tensor:
    """Return `size` distinct places below `n`, spread evenly: int64 of shape `[size]`.

    Multiples of the golden section: without a period that could meet the layers' own, and without touching the
    state of the user's random numbers.
    """
    step = max(1, int(n * 0.6180339887498949))
    while math.gcd(step, n) > 1:
        step += 1
    return (torch.arange(size, device=device) * step) % n

"""Top-k by magnitude on a GPU: what `kernels` does, put together without ever waiting for the device.

Both ways start from a sample that tells about where the k-th largest magnitude lies, and read the tensor
once, keeping what is above. `threshold` is done then. `exact` aims a little lower, so that the k largest are
almost surely among what was kept, and selects among these few by radix; should the sample have misled it
(too few kept, or too many), it selects by radix in the whole tensor. The device decides which: the kernels
of the way not taken find nothing to do.
"""

import math
from dataclasses import dataclass

import torch

from busbw.compress import cpu, kernels

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types that the kernels take; others go to `torch.topk`."""

SMALL = 1 << 15
"""Entries below which `torch.topk` needs fewer launches and no more time."""

_SAMPLE = 1 << 16
_MOST_SAMPLED = 1 << 20
_WANTED_IN_SAMPLE = 256
"""Sampled entries above the threshold: their number is off by about its root, here 6%."""

_MARGIN = 4.0
"""Standard deviations of the sample by which `exact` aims lower."""


def select(tensor: torch.Tensor, k: int, exact: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `k` entries of large magnitude and where they stand; see `busbw.compress.select`."""
    if tensor.numel() < SMALL or tensor.dtype not in KERNEL_DTYPES or k in (0, tensor.numel()):
        return cpu.select(tensor, k)
    return exactly(tensor, k) if exact else above_threshold(tensor, k)


def exactly(tensor: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `k` entries of largest magnitude: the same set of magnitudes as `torch.topk`'s.

    Args:
        tensor: shape `[n]`, contiguous, of a type in `KERNEL_DTYPES`.
        k: `1 <= k <= n`.

    Returns:
        `(values, indices)` of shape `[k]`, indices distinct. Order, and choice among ties, differ from run to run.
    """
    sample = _Sample.of(tensor, k)
    wanted = min(sample.size, math.ceil(sample.wanted + _MARGIN * math.sqrt(sample.wanted)))
    # Twice the aim: what a sample that is right never reaches.
    capacity = min(tensor.numel(), 2 * math.ceil(wanted / sample.size * tensor.numel()))
    near = kernels.keep_from(tensor, sample.magnitude(wanted), capacity)
    misled = (near.found < k) | (near.found > capacity)
    values = tensor.new_empty(k)
    indices = torch.empty(k, dtype=torch.int64, device=tensor.device)
    kernels.radix_select(near.values, near.indices, torch.where(misled, 0, near.found), k, values, indices)
    everything = torch.where(misled, tensor.numel(), 0).to(near.found.dtype)
    kernels.radix_select(tensor, None, everything, k, values, indices)
    return values, indices


def above_threshold(tensor: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return about `k` entries of large magnitude, at most `k`, reading the tensor once.

    Args:
        tensor: shape `[n]`, contiguous, of a type in `KERNEL_DTYPES`.
        k: `1 <= k <= n`.

    Returns:
        `(values, indices)` of shape `[k]`: distinct entries at or above a magnitude estimated from a sample,
        and, where there are fewer than `k` of these, value 0 at index 0.
    """
    sample = _Sample.of(tensor, k)
    kept = kernels.keep_from(tensor, sample.magnitude(sample.wanted), k)
    return kept.values, kept.indices


def sample_places(n: int, size: int, device: torch.device) -> torch.Tensor:
    """Return `size` distinct places below `n`, spread evenly: int64 of shape `[size]`.

    Multiples of the golden section: without a period that could meet the layers' own, and without touching the
    state of the user's random numbers.
    """
    step = max(1, int(n * 0.6180339887498949))
    while math.gcd(step, n) > 1:
        step += 1
    return (torch.arange(size, device=device) * step) % n


@dataclass(frozen=True)
class _Sample:
    """Entries spread evenly over a tensor.

    Attributes:
        magnitudes: shape `[size]`, not ordered.
        wanted: how many of them belong to the tensor's `k` largest, on average.
    """

    magnitudes: torch.Tensor
    wanted: int

    @classmethod
    def of(cls, tensor: torch.Tensor, k: int) -> "_Sample":
        n = tensor.numel()
        size = min(n, max(_SAMPLE, min(_MOST_SAMPLED, _WANTED_IN_SAMPLE * n // k)))
        places = sample_places(n, size, tensor.device) if size < n else slice(None)
        return cls(tensor[places].abs(), max(1, math.ceil(size * k / n)))

    @property
    def size(self) -> int:
        return self.magnitudes.numel()

    def magnitude(self, rank: int) -> torch.Tensor:
        """Return the `rank`-th largest magnitude, counted from 1, as a tensor on the device."""
        return torch.topk(self.magnitudes, rank).values[-1]

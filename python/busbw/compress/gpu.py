"""Top-k by magnitude on a GPU: what `kernels` does, put together without ever waiting for the device.

Both ways start from a sample that tells about where the k-th largest magnitude lies, and read the tensor
once, keeping what is above. `threshold` is done then. `exact` aims a little lower, so that the k largest are
almost surely among what was kept, and selects among these few by radix; should the sample have misled it
(too few kept, or too many), it selects by radix in the whole tensor. The device decides which: the kernels
of the way not taken find nothing to do.
"""

import torch

from busbw.compress import kernels
from busbw.compress.sample import Sample

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Types that the kernels take."""

SMALL = 1 << 15
"""Entries from which the kernels are worth it: below, `torch.topk` needs fewer launches and no more time."""


def suits(tensor: torch.Tensor, k: int) -> bool:
    """Return whether the kernels take such a tensor, and are worth their launches."""
    return tensor.numel() >= SMALL and tensor.dtype in KERNEL_DTYPES and 0 < k < tensor.numel()


def exactly(tensor: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `k` entries of largest magnitude: the same set of magnitudes as `torch.topk`'s.

    Args:
        tensor: shape `[n]`, contiguous, of a type in `KERNEL_DTYPES`.
        k: `1 <= k <= n`.

    Returns:
        `(values, indices)` of shape `[k]`, indices distinct. Order, and choice among ties, differ from run to run.
    """
    sample = Sample.of(tensor, k)
    near = kernels.keep_from(tensor, sample.magnitude(sample.generous), sample.capacity)
    misled = (near.found < k) | (near.found > sample.capacity)
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
    sample = Sample.of(tensor, k)
    kept = kernels.keep_from(tensor, sample.magnitude(sample.wanted), k)
    return kept.values, kept.indices

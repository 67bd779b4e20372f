"""Top-k by magnitude on CPU tensors."""

import torch

from busbw.compress.sample import Sample

_SMALL = 1 << 18
"""Entries below which `torch.topk` is as fast."""


def select(tensor: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `k` entries of largest magnitude and where they stand.

    NaN counts as larger than infinity, as in `torch.topk`, so that a gradient that went wrong is
    never hidden. Which of several entries of equal magnitude are taken is not specified.

    Args:
        tensor: the entries, shape `[n]`, any floating-point type.
        k: how many to take, `0 <= k <= n`.

    Returns:
        `(values, indices)`, both of shape `[k]` and in no particular order: `values` in the type of
        `tensor`, `indices` as int64, distinct.
    """
    indices = _among_likely(tensor, k) if tensor.numel() >= _SMALL and 0 < k < tensor.numel() else None
    if indices is None:
        indices = torch.topk(tensor.abs(), k, sorted=False).indices
    return tensor[indices], indices


def _among_likely(tensor: torch.Tensor, k: int) -> torch.Tensor | None:
    """Select among the entries that a sample says are large; None where it has misled.

    `torch.topk` moves every entry together with its index; this looks at most of them once.
    """
    sample = Sample.of(tensor, k)
    magnitudes = tensor.abs()
    # Not below, instead of at least: NaN is not below anything.
    likely = (magnitudes < sample.magnitude(sample.generous)).logical_not_().nonzero().squeeze(1)
    if not k <= likely.numel() <= sample.capacity:
        return None
    return likely[torch.topk(magnitudes[likely], k, sorted=False).indices]

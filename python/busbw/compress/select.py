"""Which entries of a gradient to send: one function for every device."""

from typing import Literal

import torch

from busbw.compress import cpu

Method = Literal["exact", "threshold"]
"""`exact` takes the k largest; `threshold` those above an estimate from a sample, at most k of them."""


def select(tensor: torch.Tensor, k: int, method: Method = "exact") -> tuple[torch.Tensor, torch.Tensor]:
    """Return `k` entries of large magnitude of a flat tensor and where they stand.

    CPU tensors are always selected exactly. On a GPU, `threshold` reads the tensor once and may find
    fewer than `k` entries; the rest of the answer is then value 0 at index 0, which adds nothing to a sum.

    Args:
        tensor: the entries, shape `[n]`, contiguous, floating-point.
        k: how many to take, `0 <= k <= n`.
        method: see `Method`.

    Returns:
        `(values, indices)` of shape `[k]`: the type of `tensor`, and int64.

    Raises:
        ValueError: `tensor` is not flat and floating-point, or `k` is out of range.
    """
    if tensor.dim() != 1 or not tensor.is_floating_point():
        raise ValueError(f"select takes a flat floating-point tensor, not {tensor.dtype} of shape {list(tensor.shape)}")
    if not 0 <= k <= tensor.numel():
        raise ValueError(f"cannot take {k} of {tensor.numel()} entries")
    if tensor.device.type == "cpu":
        return cpu.select(tensor, k)
    if tensor.device.type == "cuda":
        # Triton comes with PyTorch's builds for GPUs alone.
        from busbw.compress import gpu

        if gpu.suits(tensor, k):
            return gpu.exactly(tensor, k) if method == "exact" else gpu.above_threshold(tensor, k)
    indices = torch.topk(tensor.abs(), k, sorted=False).indices
    return tensor[indices], indices

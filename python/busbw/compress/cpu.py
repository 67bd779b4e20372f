"""Top-k by magnitude on CPU tensors, by the Rust crate `busbw-compress`: a pass over the tensor, with all cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from busbw import _native

DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


def select(tensor: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `k` entries of largest magnitude and where they stand.

    NaN counts as larger than infinity, as in `torch.topk`, so that a gradient that went wrong is never hidden. Of
    entries of equal magnitude those that come first are taken. As many threads work as PyTorch uses itself
    (`torch.set_num_threads`), and other threads of Python run meanwhile.

    Args:
        tensor: the entries, shape `[n]`, float16, bfloat16, float32 or float64.
        k: how many to take, `0 <= k <= n`.

    Returns:
        `(values, indices)`, both of shape `[k]`, in the order in which they stand in `tensor`: `values` in its type,
        `indices` as int64, distinct and ascending.

    Raises:
        ValueError: `k` exceeds `n`, or the tensor is of another type.
    """
    return _taken(_native.topk, tensor, k)


def select_above(tensor: torch.Tensor, threshold: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the entries whose magnitude is larger than a threshold, and where they stand.

    Args:
        tensor: as for `select`.
        threshold: a magnitude, 0 or more. NaN is larger than any.

    Returns:
        As `select` does, with as many entries as there are.

    Raises:
        ValueError: the threshold is negative or NaN, or the tensor is of another type.
    """
    return _taken(_native.select_above, tensor, threshold)


def _taken(take: Callable[..., Any], tensor: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    # A negated view stands in memory with its sign the wrong way round.
    memory = tensor.detach().resolve_neg().contiguous()
    described = (memory.data_ptr(), memory.numel(), DTYPES.get(memory.dtype, str(memory.dtype)))
    indices, values = take(described, limit, torch.get_num_threads())
    return _tensor(values, memory.dtype), _tensor(indices, torch.int64)


def _tensor(memory: bytearray, dtype: torch.dtype) -> torch.Tensor:
    """Make a tensor of bytes, without a copy; PyTorch makes none of no bytes."""
    return torch.frombuffer(memory, dtype=dtype) if memory else torch.empty(0, dtype=dtype)

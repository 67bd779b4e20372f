"""Top-k by magnitude on CPU tensors."""

import torch


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
    indices = torch.topk(tensor.abs(), k, sorted=False).indices
    return tensor[indices], indices

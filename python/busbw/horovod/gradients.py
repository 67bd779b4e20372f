"""Gradients through the results of collectives, as Horovod defines them (horovod/torch/mpi_ops.py, `backward`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]


class _Carried(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensors], Tensors], back: Callable[[Tensors], Tensors], *tensors: Any) -> Any:  # noqa: ANN401
        ctx.back = back
        return tuple(run(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:  # noqa: ANN401
        return None, None, *ctx.back(gradients)


def carried(
    tensors: Tensors, run: Callable[[Tensors], Tensors], back: Callable[[Tensors], Tensors]
) -> list[torch.Tensor]:
    """Return `run(tensors)`, whose gradients become those of `tensors` by `back`. Both are collective."""
    return list(_Carried.apply(run, back, *tensors))

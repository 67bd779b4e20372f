"""`Compression.fp16` and `Compression.none`: the type in which tensors travel (top-k: see `light`)."""

from __future__ import annotations

import torch


class NoneCompressor:
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor and no context."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the tensor."""
        return tensor


class FP16Compressor(NoneCompressor):
    """Floating-point tensors travel as float16."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """Return the tensor as float16, and its own type."""
        return (tensor.half(), tensor.dtype) if tensor.is_floating_point() else (tensor, None)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype | None) -> torch.Tensor:
        """Return the tensor in the type that it had."""
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The compressors by the names that scripts use."""

    none = NoneCompressor
    fp16 = FP16Compressor

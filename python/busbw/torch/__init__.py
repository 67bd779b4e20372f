"""Faster gradient averaging for DistributedDataParallel: two-level and top-k all-reduce.

Unlike its name, nothing here shadows PyTorch: `import torch` is PyTorch everywhere, this is `busbw.torch`.
"""

from busbw.torch.hook import Acceleration, accelerate
from busbw.torch.options import Mode, Options
from busbw.torch.pipeline import CommunicationError
from busbw.torch.reducer import GradientReducer
from busbw.torch.report import CompressionReport

__all__ = [
    "Acceleration",
    "CommunicationError",
    "CompressionReport",
    "GradientReducer",
    "Mode",
    "Options",
    "accelerate",
]

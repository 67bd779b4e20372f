"""Faster gradient averaging for DistributedDataParallel: two-level and top-k all-reduce.

Unlike its name, nothing here shadows PyTorch: `import torch` is PyTorch everywhere, this is `busbw.torch`.
"""

import busbw._pytorch  # noqa: F401 (first: its error says what to do)
from busbw.torch.acceleration import Acceleration, accelerate, hook
from busbw.torch.options import Mode, Options
from busbw.torch.reducer import GradientReducer
from busbw.torch.report import CompressionReport
from busbw.torch.watch import CommunicationError

__all__ = [
    "Acceleration",
    "CommunicationError",
    "CompressionReport",
    "GradientReducer",
    "Mode",
    "Options",
    "accelerate",
    "hook",
]

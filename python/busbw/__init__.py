"""How fast should collective communication be, how fast is it, why not, and what fixes it.

`read` answers what `busbw explain` answers, as typed objects and pandas frames; `predict` and `compare` are the
commands of these names. What needs PyTorch (`busbw.torch`, `busbw.horovod` …) is imported on its own.
"""

from busbw._native import __version__
from busbw.comparison import Comparison, compare
from busbw.parts import (
    Advice,
    Alternative,
    Channel,
    Communicator,
    Crossing,
    Evidence,
    Expected,
    Finding,
    Gain,
    Gpu,
    Input,
    Nccl,
    Nic,
    Node,
    Problem,
    Variable,
)
from busbw.prediction import Prediction, predict
from busbw.runs import Runs, read

__all__ = [
    "Advice",
    "Alternative",
    "Channel",
    "Communicator",
    "Comparison",
    "Crossing",
    "Evidence",
    "Expected",
    "Finding",
    "Gain",
    "Gpu",
    "Input",
    "Nccl",
    "Nic",
    "Node",
    "Prediction",
    "Problem",
    "Runs",
    "Variable",
    "__version__",
    "compare",
    "predict",
    "read",
]

"""How many images per second does training on several devices reach, and what does the network cost?

The benchmark behind `python -m busbw.synthetic`: a model of torchvision's on random images, with each way of averaging
gradients (`train`), or only the communication of such a training (`replay`).
"""

import busbw._pytorch  # noqa: F401 (first: its error says what to do)
from busbw.synthetic.result import Row, Table
from busbw.synthetic.settings import Settings

__all__ = ["Row", "Settings", "Table"]

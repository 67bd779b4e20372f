"""The model on all ranks, each with its own data (DistributedDataParallel)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from data import Batch


class Parallel:
    """Forward and backward of a step."""

    def __init__(self, settings: dict) -> None:
        width = settings["width"]
        layers = [layer for _ in range(settings["layers"]) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.module = nn.Sequential(*layers, nn.Linear(width, 1))
        self.groups = {"world": None}
        limit = timedelta(seconds=settings["group_timeout_s"])
        for name, ranks in settings["groups"].items():
            group = dist.new_group(ranks, timeout=limit, group_desc=name)
            if dist.get_rank() in ranks:
                self.groups[name] = group
        self.averaged = dist.get_world_size()
        self.ddp = DistributedDataParallel(self.module, bucket_cap_mb=settings["bucket_mb"])
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=settings["lr"])

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the loss."""
        return nn.functional.mse_loss(self.ddp(batch.inputs), batch.targets)

    def backward(self, loss: torch.Tensor) -> None:
        """Average gradients and go a step."""
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()

"""Layers split over the ranks of a tensor group, data over those of a data group."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

if TYPE_CHECKING:
    from data import Batch


class SumOverGroup(torch.autograd.Function):
    """Adds up what the ranks of a group have computed."""

    @staticmethod
    def forward(context: torch.autograd.function.FunctionCtx, part: torch.Tensor, group: object) -> torch.Tensor:
        """Add up."""
        total = part.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(context: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Every part has the gradient of the sum."""
        return grad, None


class SplitLayer(nn.Module):
    """A layer of which each rank of the tensor group has a part."""

    def __init__(self, width: int, parts: int, group: object) -> None:
        super().__init__()
        self.up = nn.Linear(width, width // parts)
        self.down = nn.Linear(width // parts, width)
        self.group = group

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply this rank's part and add up."""
        return SumOverGroup.apply(self.down(torch.relu(self.up(inputs))), self.group)


class Parallel:
    """Forward and backward of a step."""

    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.groups = {"world": None}
        limit = timedelta(seconds=settings["group_timeout_s"])
        self.sizes = {}
        for name, lists in settings["grid"].items():
            for ranks in lists:
                group = dist.new_group(ranks, timeout=limit, group_desc=name)
                if dist.get_rank() in ranks:
                    self.groups[name] = group
                    self.sizes[name] = len(ranks)
        self.averaged = dist.get_world_size()
        width, parts = settings["width"], self.sizes[settings["tensor"]]
        layers = (SplitLayer(width, parts, self.groups[settings["tensor"]]) for _ in range(settings["layers"]))
        self.module = nn.Sequential(*layers, nn.Linear(width, 1))
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=settings["lr"])

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the loss."""
        return nn.functional.mse_loss(self.module(batch.inputs), batch.targets)

    def sync_gradients(self) -> None:
        """Average gradients over the data group."""
        group = self.groups[self.settings["gradients_over"]]
        parameters = list(self.module.parameters())
        for parameter in reversed(parameters) if self.settings["last_first"] else parameters:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= self.sizes[self.settings["data"]]

    def backward(self, loss: torch.Tensor) -> None:
        """Average gradients and go a step."""
        self.optimizer.zero_grad()
        loss.backward()
        self.sync_gradients()
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()

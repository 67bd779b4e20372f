"""Three stages of a model, each on a rank; with more ranks, several such pipelines side by side."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn

if TYPE_CHECKING:
    from data import Batch

STAGES = 3


class Parallel:
    """Forward and backward of a step."""

    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.rank = dist.get_rank()
        self.stage = self.rank % STAGES
        self.groups = {"world": None}
        limit = timedelta(seconds=settings["group_timeout_s"])
        self.links = {}
        for name, lists in settings["grid"].items():
            for ranks in lists:
                group = dist.new_group(ranks, timeout=limit, group_desc=name)
                if self.rank in ranks:
                    self.groups[name] = group
        for first, second in settings["links"]:
            group = dist.new_group(
                [first, second], timeout=limit, group_desc=f"{settings['link_name']}{first}_{second}"
            )
            if self.rank in (first, second):
                self.links[first, second] = group
        width = settings["width"]
        layers = [layer for _ in range(settings["layers"]) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.module = nn.Sequential(*layers)
        if self.stage == STAGES - 1:
            self.module.append(nn.Linear(width, 1))
        self.averaged = dist.get_world_size()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=settings["lr"])

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """Hand a tensor to the neighbour."""
        if self.links:
            dist.broadcast(tensor, self.rank, group=self.links[min(self.rank, to), max(self.rank, to)])
        else:
            dist.send(tensor, to)

    def receive(self, like: torch.Tensor, source: int) -> torch.Tensor:
        """Take a tensor from the neighbour."""
        tensor = torch.empty_like(like)
        if self.links:
            dist.broadcast(tensor, source, group=self.links[min(self.rank, source), max(self.rank, source)])
        else:
            dist.recv(tensor, source)
        return tensor

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the loss on the last stage, and what stands for it elsewhere."""
        if self.stage and self.settings["gradient_first"]:
            self.receive(batch.inputs, self.rank + (1 if self.stage < STAGES - 1 else -1))
        self.inputs = batch.inputs
        if self.stage:
            self.inputs = self.receive(batch.inputs, self.rank - 1).requires_grad_()
        self.outputs = self.module(self.inputs)
        if self.stage < STAGES - 1:
            self.send(self.outputs.detach(), self.rank + 1)
            return batch.targets.mean()
        return nn.functional.mse_loss(self.outputs, batch.targets)

    def sync_gradients(self) -> None:
        """Average gradients over the ranks of the same stage."""
        if self.settings["data"] in self.groups:
            group = self.groups[self.settings["gradients_over"]]
            parameters = list(self.module.parameters())
            for parameter in reversed(parameters) if self.settings["last_first"] else parameters:
                dist.all_reduce(parameter.grad, group=group)

    def backward(self, loss: torch.Tensor) -> None:
        """Take the gradient from the next stage, go a step, and hand it on."""
        self.optimizer.zero_grad()
        if self.stage < STAGES - 1:
            self.outputs.backward(self.receive(self.outputs.detach(), self.rank + 1))
        else:
            loss.backward()
        if self.stage:
            self.send(self.inputs.grad, self.rank - 1)
        self.sync_gradients()
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()

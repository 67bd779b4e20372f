"""Numbers that all ranks agree on from time to time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from say import say

if TYPE_CHECKING:
    from data import Batch
    from parallel import Parallel


class Metrics:
    """Averages what ranks have measured."""

    def __init__(self, settings: dict, parallel: Parallel) -> None:
        self.settings = settings
        self.parallel = parallel
        self.calls = {
            "loss": self.average_loss,
            "samples": self.gather_counts,
            "scale": self.share_scale,
            "norm": self.average_norm,
        }

    def average_loss(self, loss: torch.Tensor, batch: Batch) -> float:
        """Average the loss over a group of ranks."""
        value = loss.detach().reshape(1).to(getattr(torch, self.settings["loss_type"]))
        dist.all_reduce(value, group=self.parallel.groups[self.settings["loss_group"]])
        return value.item()

    def gather_counts(self, loss: torch.Tensor, batch: Batch) -> float:
        """Collect how many rows each rank has seen."""
        count = torch.tensor([len(batch.inputs)])
        counts = [torch.zeros_like(count) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, count)
        return float(sum(counts))

    def share_scale(self, loss: torch.Tensor, batch: Batch) -> float:
        """Agree on the scale of losses: rank 0's, or the largest."""
        scale = torch.ones(self.settings["scales"])
        if self.settings["scale_from"] == "first":
            dist.broadcast(scale, 0)
        else:
            dist.all_reduce(scale, dist.ReduceOp.MAX)
        return scale[0].item()

    def average_norm(self, loss: torch.Tensor, batch: Batch) -> float:
        """Average the squared error of every row."""
        rows = batch.targets.detach().reshape(-1).pow(2).to(getattr(torch, self.settings["norm_type"]))
        dist.all_reduce(rows)
        return rows.sum().sqrt().item()

    def sync_groups(self) -> None:
        """Tell each group of this rank that the step is over."""
        for name in self.settings["sync_order"]:
            if name in self.parallel.groups:
                dist.all_reduce(torch.ones(3), group=self.parallel.groups[name])

    def report(self, step: int, loss: torch.Tensor, batch: Batch) -> None:
        """Agree on all numbers, and print them."""
        values = {name: self.calls[name](loss, batch) for name in self.settings["metrics"]}
        self.sync_groups()
        say(self.settings, "step", step=step, loss=values.get("loss", loss.item()) / self.parallel.averaged)

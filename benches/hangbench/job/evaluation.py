"""How good the model is on data that it has not seen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from say import say

if TYPE_CHECKING:
    from parallel import Parallel


def score_batch(module: torch.nn.Module, inputs: torch.Tensor) -> float:
    """Score one batch."""
    return sum(parameter.detach().abs().mean().item() for parameter in module.parameters()) + inputs.mean().item()


@torch.no_grad()
def evaluate(settings: dict, parallel: Parallel, step: int) -> None:
    """Go through the held-out data."""
    total = 0.0
    until = time.monotonic() + settings["eval_s"]
    batches = 0
    while time.monotonic() < until:
        total += score_batch(parallel.module, torch.randn(16, settings["width"]))
        batches += 1
        time.sleep(settings["eval_pause_s"])
    say(settings, "eval", step=step, score=total / max(1, batches))

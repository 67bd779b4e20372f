"""A small network learns as well from 1% of the entries of its gradients as from all of them."""

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import busbw.torch

CLASSES, STEPS, ROWS = 4, 260, 16


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def images(generator: torch.Generator, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a bright bar in one of four places: something that a convolution can learn, and not perfectly."""
    labels = torch.randint(0, CLASSES, (rows,), generator=generator)
    pictures = torch.randn(rows, 1, 8, 8, generator=generator)
    for picture, label in zip(pictures, labels.tolist()):
        picture[0, 2 * label : 2 * label + 2] += 0.9
    return pictures, labels


def learn(rank: int, options: dict[str, Any]) -> float:
    """Train on data of this rank's own; return the mean loss on data that no rank has seen."""
    ddp = DistributedDataParallel(network())
    acceleration = busbw.torch.accelerate(ddp, topk_min_bytes=0, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(1000 + rank)
    for _ in range(STEPS):
        pictures, labels = images(generator, ROWS)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(pictures), labels).backward()
        optimizer.step()
    if options["mode"] in ("topk", "both"):
        assert acceleration.report().ratio > 10, "next to nothing was sent"
    with torch.no_grad():
        pictures, labels = images(torch.Generator().manual_seed(5), 2000)
        return float(nn.functional.cross_entropy(ddp(pictures), labels))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> float:
    return ranks.run(4, learn, {"mode": "plain"}, directory=tmp_path_factory.mktemp("dense"))[0]


@pytest.mark.parametrize("mode", ["topk", "both"])
def test_one_percent_reaches_the_same_loss(mode: str, dense: float, tmp_path: Path) -> None:
    options = {"mode": mode, "ratio": 0.01, "warmup_steps": 40}
    losses = ranks.run(4, learn, options, directory=tmp_path, hosts=["a", "a", "b", "b"])
    print(f"dense {dense:.4f}, {mode} {losses[0]:.4f}")
    assert len(set(losses)) == 1, "all ranks hold the same model"
    assert 0.05 < dense < 0.7, "the task is neither trivial nor out of reach (chance: 1.39)"
    assert losses[0] <= 1.02 * dense

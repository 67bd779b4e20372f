"""Models of torchvision's, and what their gradients look like on the network: sizes, and when they are ready."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

import torch
from torch import nn

from busbw.synthetic.settings import Settings, UsageError

BUCKET_BYTES = 25 << 20
"""DDP's size of a bucket."""

_FIRST_BUCKET_BYTES = 1 << 20
"""DDP's size of the first one, which leaves early."""

_PROFILED_IMAGES = 2
"""Batch norm needs more than one."""


@dataclass(frozen=True)
class Profile:
    """The gradients of a model in the order in which they become ready.

    Attributes:
        buckets: entries of each bucket, float32.
        ready: when each is complete, as a share of a batch's computation, rising to 1.
        compute_s: a batch's forward and backward pass.
    """

    buckets: tuple[int, ...]
    ready: tuple[float, ...]
    compute_s: float

    @property
    def nbytes(self) -> int:
        """Size of all gradients."""
        return 4 * sum(self.buckets)

    def to_json(self) -> str:
        """Return the profile as text, for other ranks."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Profile:
        """Return the profile of `to_json`'s text."""
        fields = json.loads(text)
        return cls(tuple(fields["buckets"]), tuple(fields["ready"]), fields["compute_s"])


def build(name: str) -> nn.Module:
    """Return a model by torchvision's name, with random weights.

    Raises:
        UsageError: torchvision is not installed, or does not know the name.
    """
    try:
        from torchvision import models  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError(f"models come from torchvision, which cannot be imported: {error}") from None
    try:
        model: nn.Module = models.get_model(name, weights=None)
    except ValueError:
        raise UsageError(f"torchvision has no model {name!r}; it has {', '.join(models.list_models(models))}") from None
    return model


def batch(settings: Settings, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images and labels."""
    images = torch.randn(size, 3, settings.image_size, settings.image_size, device=device)
    return images, torch.randint(0, 1000, (size,), device=device)


def loss_of(outputs: torch.Tensor | tuple[torch.Tensor, ...], labels: torch.Tensor) -> torch.Tensor:
    """Return the loss; of models with further heads (Inception, GoogLeNet) that of the first."""
    return nn.functional.cross_entropy(outputs if isinstance(outputs, torch.Tensor) else outputs[0], labels)


def profile(settings: Settings) -> Profile:
    """Run the model on this machine's CPU, and note when its gradients become ready.

    With `compute_ms` a few images do, since only shares of the time are taken from here; otherwise it is a whole batch.
    """
    model = build(settings.model)
    given = settings.compute_ms is not None
    images, labels = batch(settings, _PROFILED_IMAGES if given else settings.batch_size, torch.device("cpu"))
    arrived: list[tuple[float, int]] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: arrived.append((time.perf_counter(), p.numel())))
    for _ in range(2):  # the first allocates
        arrived.clear()
        model.zero_grad()
        begin = time.perf_counter()
        loss_of(model(images), labels).backward()
        took = time.perf_counter() - begin
    shares = [((when - begin) / took, entries) for when, entries in arrived]
    buckets, ready = _bucketed(shares)
    return Profile(buckets, ready, settings.compute_ms / 1e3 if settings.compute_ms is not None else took)


def _bucketed(arrived: list[tuple[float, int]]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Fill buckets as DDP does: a bucket ends with the gradient that reaches its size, and leaves then."""
    buckets, ready, entries, limit = [], [], 0, _FIRST_BUCKET_BYTES
    for share, more in arrived:
        entries += more
        if 4 * entries >= limit:
            buckets.append(entries)
            ready.append(share)
            entries, limit = 0, BUCKET_BYTES
    if entries:
        buckets.append(entries)
        ready.append(1.0)
    return tuple(buckets), tuple(ready)

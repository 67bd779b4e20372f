"""Error feedback: what a step does not send is kept and added to the next gradient.

After Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression: Reducing the Communication Bandwidth for
Distributed Training", ICLR 2018 (arXiv:1712.01887): local gradient accumulation (section 3.1), momentum
correction and momentum factor masking (3.2, 3.3) and warm-up (3.3). Local gradient clipping is not here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from busbw.compress.select import Method, select

_WARMUP_BASE = 0.25
"""The share of entries sent in the first part of the warm-up; each further part sends a quarter of it."""


@dataclass(frozen=True)
class Schedule:
    """Which share of the entries is sent at which step.

    Attributes:
        ratio: the share after the warm-up, in (0, 1].
        warmup_steps: steps over which the share falls to `ratio`, a quarter at a time (25%, 6.25%, ...).
    """

    ratio: float
    warmup_steps: int = 0

    def at(self, step: int) -> float:
        """Return the share at `step`, counted from 0."""
        if step >= self.warmup_steps:
            return self.ratio
        parts = max(1, math.ceil(math.log(self.ratio, _WARMUP_BASE)))
        part = step * parts // self.warmup_steps
        return max(self.ratio, _WARMUP_BASE ** (part + 1))


@dataclass
class _Memory:
    """What one bucket remembers: float32, or float64 for float64 gradients."""

    residual: torch.Tensor
    velocity: torch.Tensor | None


@dataclass
class ErrorFeedback:
    """The residuals of all buckets of one rank.

    Attributes:
        momentum: the factor of momentum correction; 0 switches it off. With it, the optimizer must have
            no momentum of its own: it moves in here, where it is applied before compression.
        value_dtype: the type in which values travel; rounding errors stay in the residual.
        method: how entries are selected.
    """

    momentum: float = 0.0
    value_dtype: torch.dtype = torch.float32
    method: Method = "exact"
    _memories: dict[str, _Memory] = field(default_factory=dict)
    _restored: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)

    def compress(self, key: str, gradient: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Add a gradient to the bucket's residual and take the `k` largest entries out of it.

        Args:
            key: the bucket's name.
            gradient: shape `[n]`, not changed.
            k: how many entries to send.

        Returns:
            `(values, indices)` of shape `[k]`: values as they travel, of `value_dtype`.
        """
        memory = self._accumulate(key, gradient)
        values, indices = select(memory.residual, k, self.method)
        sent = _narrow(values, self.value_dtype)
        # Taken away, not overwritten: where fewer than `k` were found, value 0 at index 0 stands for the rest, and what
        # is kept there must stay.
        memory.residual.index_add_(0, indices, sent.to(values.dtype), alpha=-1)
        if memory.velocity is not None:
            stale = torch.where(values != 0, memory.velocity[indices], 0)
            memory.velocity.index_add_(0, indices, stale, alpha=-1)
        _forget_what_is_not_finite(memory, values)
        return sent, indices

    def flush(self, key: str, gradient: torch.Tensor) -> torch.Tensor:
        """Add a gradient to the bucket's residual and take all of it out, for a step that sends everything.

        Momentum goes on: nothing is masked, since no entry is stale.

        Returns:
            shape `[n]`, in the gradient's type; the gradient itself where nothing was kept.
        """
        if not self.momentum and key not in self._memories and key not in self._restored:
            return gradient
        memory = self._accumulate(key, gradient)
        everything = memory.residual.to(gradient.dtype, copy=True)
        memory.residual.zero_()
        _forget_what_is_not_finite(memory, everything)
        return everything

    def scale(self, factor: float) -> None:
        """Multiply all that is kept, for when the loss scale of AMP changes."""
        for memory in self._memories.values():
            memory.residual.mul_(factor)
            if memory.velocity is not None:
                memory.velocity.mul_(factor)

    def residual(self, key: str) -> torch.Tensor | None:
        """Return what is kept of a bucket, shape `[n]`, or None for an unknown bucket."""
        memory = self._memories.get(key)
        return None if memory is None else memory.residual

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return what is kept, by bucket. Tensors are copies."""
        kept = {key: dict(tensors) for key, tensors in self._restored.items()}
        for key, memory in self._memories.items():
            kept[key] = {"residual": memory.residual.clone()}
            if memory.velocity is not None:
                kept[key]["velocity"] = memory.velocity.clone()
        return kept

    def load_state_dict(self, state: dict[str, dict[str, Any]]) -> None:
        """Take what was kept; each bucket finds its own by name and size when it is first used."""
        self._memories.clear()
        self._restored = {key: dict(tensors) for key, tensors in state.items()}

    def _accumulate(self, key: str, gradient: torch.Tensor) -> _Memory:
        memory = self._memory(key, gradient)
        if memory.velocity is None:
            memory.residual.add_(gradient)
        else:
            memory.velocity.mul_(self.momentum).add_(gradient)
            memory.residual.add_(memory.velocity)
        return memory

    def _memory(self, key: str, gradient: torch.Tensor) -> _Memory:
        if key not in self._memories:
            # Small gradients would vanish in a half-precision sum.
            dtype = torch.promote_types(gradient.dtype, torch.float32)
            kept = self._restored.pop(key, {})

            def remembered(name: str) -> torch.Tensor:
                if name in kept:
                    return kept[name].to(device=gradient.device, dtype=dtype, copy=True)
                return torch.zeros_like(gradient, dtype=dtype)

            velocity = remembered("velocity") if self.momentum else None
            self._memories[key] = _Memory(remembered("residual"), velocity)
        return self._memories[key]


def _narrow(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round to the type of the wire; finite values beyond its range become its largest, the rest stays behind."""
    if dtype.itemsize >= values.dtype.itemsize:
        return values.to(dtype)
    limit = torch.finfo(dtype).max
    clamped = values.clamp(-limit, limit)
    return torch.where(values.isfinite(), clamped, values).to(dtype)


def _forget_what_is_not_finite(memory: _Memory, sent: torch.Tensor) -> None:
    """Keep NaN and infinity out of the memory: they were sent, and must not come back at every later step.

    NaN and infinity are selected before anything else, so that finite selected values mean that
    nothing else is to be looked at. A GPU does not wait for the answer: there all is looked at.
    """
    if sent.device.type == "cpu" and bool(sent.isfinite().all()):
        return
    for kept in (memory.residual, memory.velocity):
        if kept is not None:
            kept.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

"""PyTorch Lightning: a callback for its Trainer."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

import busbw.torch
from busbw.torch import Acceleration, Mode


class AccelerationCallback(Callback):
    """Averages the gradients of a Trainer with `strategy="ddp"` by busbw; does nothing where there is one rank.

    `DDPStrategy(ddp_comm_hook=...)` registers hooks on GPUs only (lightning 2.6, `_register_ddp_hooks`); this works on
    CPUs too.

        trainer = Trainer(strategy="ddp", callbacks=[AccelerationCallback("two-level")])

    Args:
        mode: see `busbw.torch.accelerate`.
        **options: fields of `busbw.torch.Options`.

    Attributes:
        acceleration: what `busbw.torch.accelerate` returned, from the start of training on.
    """

    def __init__(self, mode: Mode = "auto", **options: Any) -> None:  # noqa: ANN401 (checked by Options)
        self._mode, self._options = mode, options
        self.acceleration: Acceleration | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Register the hook."""
        if trainer.world_size > 1:
            scaler = getattr(trainer.precision_plugin, "scaler", None)
            model = trainer.strategy.model
            self.acceleration = busbw.torch.accelerate(model, self._mode, grad_scaler=scaler, **self._options)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End busbw's threads; Lightning wraps the model anew if it trains again."""
        if self.acceleration is not None:
            self.acceleration.close()

"""Hugging Face Transformers: a callback for its Trainer."""

from __future__ import annotations

from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import busbw.torch
from busbw.torch import Acceleration, Mode


class AccelerationCallback(TrainerCallback):
    """Averages the gradients of a Trainer by busbw; does nothing where there is one rank.

        trainer = Trainer(...)
        trainer.add_callback(AccelerationCallback(trainer, "two-level"))

    Args:
        trainer: whose model it is: callbacks are only told of the model inside DDP.
        mode: see `busbw.torch.accelerate`.
        **options: fields of `busbw.torch.Options`.

    Attributes:
        acceleration: what `busbw.torch.accelerate` returned, from the start of training on.
    """

    def __init__(self, trainer: Trainer, mode: Mode = "auto", **options: Any) -> None:  # noqa: ANN401 (checked by Options)
        self._trainer, self._mode, self._options = trainer, mode, options
        self.acceleration: Acceleration | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Register the hook."""
        if args.world_size > 1:
            model = self._trainer.model_wrapped
            scaler = self._trainer.accelerator.scaler
            self.acceleration = busbw.torch.accelerate(model, self._mode, grad_scaler=scaler, **self._options)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """End busbw's threads; the Trainer wraps the model anew if it trains again."""
        if self.acceleration is not None:
            self.acceleration.close()

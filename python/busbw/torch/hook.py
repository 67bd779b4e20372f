"""`accelerate`: a DistributedDataParallel model whose gradients are averaged by busbw."""
# DDP compares the annotations of a hook with types: no `from __future__ import annotations` here.

import logging
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from busbw import advisor
from busbw.torch.options import Mode, Options
from busbw.torch.reducer import GradientReducer
from busbw.torch.refusals import check_model
from busbw.torch.report import CompressionReport

_log = logging.getLogger("busbw.torch")


def accelerate(
    model: DistributedDataParallel,
    mode: Mode = "auto",
    *,
    grad_scaler: Optional[torch.amp.GradScaler] = None,
    **options: Any,  # noqa: ANN401 (checked by Options)
) -> "Acceleration":
    """Average the gradients of a DDP model faster than one all-reduce over a slow network would.

    Registers a communication hook, once and for good, before the first step. Collective: every rank of the
    model's process group calls it with the same arguments; where that group is smaller than the job, so do all
    others on their models' groups, since new process groups are made.

        ddp = DistributedDataParallel(model)
        acceleration = busbw.torch.accelerate(ddp, mode="two-level")
        ...                                  # train as before
        print(acceleration.report())

    `two-level` and `plain` change no results beyond rounding. `topk` and `both` send the largest entries of
    each bucket and keep the rest for later steps: whether the model still learns is the user's to check.

    Args:
        model: wrapped in DistributedDataParallel, with any backend.
        mode: see `busbw.torch.Mode`; `auto` measures the network and takes the fastest way that loses nothing (with
            `lossy=True`: the fastest).
        grad_scaler: the scaler of AMP with float16, so that what is kept follows its changes of scale.
        **options: fields of `busbw.torch.Options`.

    Returns:
        a handle for the report and for checkpoints.

    Raises:
        TypeError: the model is none of DDP's (FSDP, ZeRO, ... are refused by name), or has sparse gradients.
        ValueError: an option is out of range, or the mode does not fit the hosts.
    """
    chosen = Options(mode=mode, **options)
    check_model(model)
    if chosen.compresses and grad_scaler is not None and not grad_scaler.is_enabled():
        grad_scaler = None
    acceleration = Acceleration(model, chosen, grad_scaler)
    model.register_comm_hook(acceleration, _hook)
    return acceleration


class Acceleration:
    """What `accelerate` returns: the state of the hook. Made by `accelerate` alone.

    Attributes:
        reducer: what averages.
        advice: with `auto`, what was measured and chosen.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        options: Options,
        grad_scaler: Optional[torch.amp.GradScaler],
    ) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        group: dist.ProcessGroup = model.process_group
        device = parameters[0].device
        self.advice: Optional[advisor.Advice] = None
        if options.mode == "auto":
            options, self.advice = advisor.choose(group, device, sum(p.nbytes for p in parameters), options)
            if group.rank() == 0:
                _log.info("mode %r:\n%s", options.mode, self.advice)
        self.reducer = GradientReducer(group, device, options)
        self._names = {id(parameter): name for name, parameter in model.module.named_parameters()}
        self._grad_scaler = grad_scaler
        self._loss_scale: Optional[float] = None

    @property
    def mode(self) -> Mode:
        """How gradients are averaged; with `auto`, what was chosen."""
        return self.reducer.options.mode

    def report(self) -> CompressionReport:
        """Return what was sent and how long it took since the start, on this rank."""
        return self.reducer.report()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs to go on as if nothing had happened.

        The residuals are each rank's own: save it on every rank, and load it on the same.
        """
        return self.reducer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`'s answer; call it before the first step.

        Raises:
            ValueError: it belongs to another rank, another number of ranks or another mode.
        """
        self.reducer.load_state_dict(state)

    def close(self) -> None:
        """End the hook's threads. The model cannot be trained any further."""
        self.reducer.close()

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket of DDP; what the hook does."""
        if bucket.index() == 0:
            self._begin_step()
        future = self.reducer.reduce(self._key(bucket), bucket.buffer())
        if bucket.is_last():
            self.reducer.end_step()
        return future

    def _key(self, bucket: GradBucket) -> str:
        """Name a bucket by what is in it: indices change when DDP orders its buckets anew."""
        parameters = bucket.parameters()
        first, last = (self._names.get(id(p), "?") for p in (parameters[0], parameters[-1]))
        return f"{first}..{last} ({len(parameters)} parameters, {bucket.buffer().numel()} entries)"

    def _begin_step(self) -> None:
        """Do what needs a moment in which nothing is under way: DDP has waited for all of the last step."""
        self._follow_loss_scale()
        reducer = self.reducer
        if reducer.step and reducer.measures and reducer.rank == 0:
            _log.info("%s", self.report())

    def _follow_loss_scale(self) -> None:
        if self._grad_scaler is None or not self.reducer.options.compresses:
            return
        scale = self._grad_scaler.get_scale()
        if self._loss_scale is not None and scale != self._loss_scale:
            self.reducer.feedback.scale(scale / self._loss_scale)
        self._loss_scale = scale


def _hook(acceleration: Acceleration, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    return acceleration.reduce(bucket)

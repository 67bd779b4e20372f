"""DistributedDataParallel models whose gradients busbw averages: `accelerate`, or `hook` and its state."""
# DDP compares the annotations of a hook with types: no `from __future__ import annotations` here.

import logging
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from busbw import advisor
from busbw.torch.options import Mode, Options
from busbw.torch.reducer import GradientReducer
from busbw.torch.refusals import check_hook, check_model
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
        model: wrapped in DistributedDataParallel, with any backend; compiled or not.
        mode: see `busbw.torch.Mode`; `auto` measures the network and takes the fastest way that loses nothing (with
            `lossy=True`: the fastest).
        grad_scaler: the scaler of AMP with float16, so that what is kept follows its changes of scale.
        **options: fields of `busbw.torch.Options`.

    Returns:
        a handle for the report and for checkpoints.

    Raises:
        TypeError: the model is none of DDP's (FSDP, ZeRO, ... are refused by name), or has sparse gradients.
        ValueError: an option is out of range, the mode does not fit the hosts, or the model has a hook already.
    """
    # What torch.compile returns; the hook is the same below it.
    model = getattr(model, "_orig_mod", model)
    check_model(model)
    check_hook(model)
    acceleration = Acceleration(mode, process_group=model.process_group, grad_scaler=grad_scaler, **options)
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad:
            acceleration._meet(parameter, name)
    acceleration._begin(next(p.device for p in model.parameters() if p.requires_grad))
    model.register_comm_hook(acceleration, hook)
    return acceleration


def hook(acceleration: "Acceleration", bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of DDP: the hook for frameworks that register one themselves, with its state.

    DDPStrategy(ddp_comm_state=busbw.torch.Acceleration("two-level"), ddp_comm_hook=busbw.torch.hook)
    """
    return acceleration._reduce(bucket)


class Acceleration:
    """How the gradients of one model are averaged: what `accelerate` returns, and the state of `hook`.

    A state of `hook` is made before the model is: it learns what there is to average in the first step, which is DDP's
    own all-reduce, and begins with the second.

    Args:
        mode: see `accelerate`, as all others.
        process_group: the model's; None for all ranks.
        grad_scaler: see `accelerate`.
        **options: fields of `busbw.torch.Options`.

    Attributes:
        advice: with `auto`, what was measured and chosen.
    """

    def __init__(
        self,
        mode: Mode = "auto",
        *,
        process_group: Optional[dist.ProcessGroup] = None,
        grad_scaler: Optional[torch.amp.GradScaler] = None,
        **options: Any,  # noqa: ANN401 (checked by Options)
    ) -> None:
        self._options = Options(mode=mode, **options)
        self._group = process_group
        scales = grad_scaler is not None and grad_scaler.is_enabled()
        self._grad_scaler = grad_scaler if scales else None
        self._loss_scale: Optional[float] = None
        self.advice: Optional[advisor.Advice] = None
        self._names: dict[int, str] = {}
        self._gradient_bytes = 0
        self._reducer: Optional[GradientReducer] = None
        self._restored: Optional[dict[str, Any]] = None

    @property
    def reducer(self) -> GradientReducer:
        """What averages.

        Raises:
            RuntimeError: the first step is not over.
        """
        if self._reducer is None:
            raise RuntimeError("busbw: nothing was averaged yet: a hook's state begins with the second step")
        return self._reducer

    @property
    def mode(self) -> Mode:
        """How gradients are averaged; with `auto`, what was chosen."""
        return self._options.mode

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
            RuntimeError: steps were done already.
        """
        if self._reducer is None:
            self._restored = state
        else:
            self._reducer.load_state_dict(state)

    def close(self) -> None:
        """End the hook's threads. The model cannot be trained any further."""
        if self._reducer is not None:
            self._reducer.close()

    def _reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self._reducer is None and not self._is_first_step(bucket):
            self._begin(bucket.buffer().device)
        if self._reducer is None:
            for parameter in bucket.parameters():
                self._meet(parameter, f"parameter {len(self._names)}")
            return allreduce_hook(self._group, bucket)
        if bucket.index() == 0:
            self._begin_step()
        future = self._reducer.reduce(self._key(bucket), bucket.buffer())
        if bucket.is_last():
            self._reducer.end_step()
        return future

    def _is_first_step(self, bucket: GradBucket) -> bool:
        return not self._names or bucket.index() > 0

    def _meet(self, parameter: torch.Tensor, name: str) -> None:
        self._names[id(parameter)] = name
        self._gradient_bytes += parameter.nbytes

    def _begin(self, device: torch.device) -> None:
        """Make what averages, now that all parameters are known. Collective."""
        group = self._group or dist.group.WORLD
        assert group is not None, "DDP has a process group"
        if self._options.mode == "auto":
            self._options, self.advice = advisor.choose(group, device, self._gradient_bytes, self._options)
            if group.rank() == 0:
                _log.info("mode %r:\n%s", self.mode, self.advice)
        self._reducer = GradientReducer(group, device, self._options)
        if self._restored is not None:
            self._reducer.load_state_dict(self._restored)

    def _key(self, bucket: GradBucket) -> str:
        """Name a bucket by what is in it: indices change when DDP orders its buckets anew.

        Raises:
            ValueError: it is another model's.
        """
        parameters = bucket.parameters()
        if any(id(parameter) not in self._names for parameter in parameters):
            raise ValueError("busbw: this state averages the gradients of another model; make one for each model")
        first, last = (self._names[id(p)] for p in (parameters[0], parameters[-1]))
        return f"{first}..{last} ({len(parameters)} parameters, {bucket.buffer().numel()} entries)"

    def _begin_step(self) -> None:
        """Do what needs a moment in which nothing is under way: DDP has waited for all of the last step."""
        self._follow_loss_scale()
        reducer = self.reducer
        if reducer.step and reducer.measures and reducer.rank == 0:
            _log.info("%s", self.report())

    def _follow_loss_scale(self) -> None:
        if self._grad_scaler is None or not self._options.compresses:
            return
        scale = self._grad_scaler.get_scale()
        if self._loss_scale is not None and scale != self._loss_scale:
            self.reducer.feedback.scale(scale / self._loss_scale)
        self._loss_scale = scale

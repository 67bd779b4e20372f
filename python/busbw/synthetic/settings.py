"""What the benchmark may be told."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from busbw.arguments import natural, positive, share
from busbw.torch import Mode, Options

STACKS: tuple[Mode, ...] = ("plain", "two-level", "topk", "both")
"""Ways of averaging, in the order of the table."""

_DEFAULT_ITERATIONS = 10


class UsageError(ValueError):
    """Arguments that do not fit each other."""


@dataclass(frozen=True)
class Settings:
    """One run of the benchmark.

    Attributes:
        model: torchvision's name.
        batch_size: images per device and batch.
        image_size: pixels of an image's side.
        warmup: batches before the clock runs.
        batches_per_iter: batches of one measured value.
        iters: measured values.
        stacks: ways of averaging to measure.
        devices: numbers of devices to measure.
        replay: only communicate; computation is waited for.
        compute_ms: a batch's forward and backward pass; None measures it here.
        ratio: top-k's share of entries.
        fp16: top-k's values travel as float16.
        intra_size: take blocks of so many ranks as hosts.
        cuda: train on GPUs.
        network: what to call the network in the table.
    """

    model: str
    batch_size: int
    image_size: int
    warmup: int
    batches_per_iter: int
    iters: int
    stacks: tuple[Mode, ...]
    devices: tuple[int, ...]
    replay: bool
    compute_ms: float | None
    ratio: float
    fp16: bool
    intra_size: int | None
    cuda: bool
    network: str

    def options(self, stack: Mode) -> Options:
        """Return how gradients are averaged in a stack."""
        dtype = torch.float16 if self.fp16 else torch.float32
        return Options(mode=stack, ratio=self.ratio, value_dtype=dtype, intra_size=self.intra_size)

    @property
    def device_name(self) -> str:
        """Return what a device is called in what is printed."""
        return "GPU" if self.cuda else "CPU"


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    made = argparse.ArgumentParser(
        prog="python -m busbw.synthetic",
        description="Images per second of synthetic training, alone or in a job of mpirun, srun or torchrun.",
    )
    add = made.add_argument
    add("--model", default="resnet50", help="a classification model of torchvision (resnet50)")
    add("--batch-size", type=positive, default=32, help="images per device and batch (32)")
    add("--image-size", type=positive, default=224, help="width and height of an image in pixels (224)")
    add("--warmup", type=natural, default=10, metavar="N", help="batches before the measurement (10)")
    add("--batches-per-iter", type=positive, default=10, metavar="N", help="batches per measured value (10)")
    add("--iters", type=positive, default=_DEFAULT_ITERATIONS, metavar="N", help="number of measured values (10)")
    add("--stack", choices=STACKS, default="plain", help="how gradients are averaged (plain)")
    add("--sweep", action="store_true", help="measure all stacks on one device, on one host and on all devices")
    add("--devices", type=_counts, metavar="N,N,...", help="numbers of devices to measure")
    add("--replay", action="store_true", help="only communicate, with the model's gradient sizes and times")
    add("--compute-ms", type=float, metavar="MS", help="with --replay: computation time of a batch (default: measured)")
    add("--ratio", type=share, default=0.01, help="share of entries that top-k sends (0.01)")
    add("--fp16", action="store_true", help="top-k's values travel as float16")
    add("--intra-size", type=positive, metavar="N", help="treat blocks of N ranks as hosts")
    add("--np", type=positive, metavar="N", help="start N ranks on this machine")
    add("--no-cuda", action="store_true", help="train on CPUs")
    add("--network", default=os.environ.get("NCCL_NET_PLUGIN", "TCP"), help="name of the network in the table")
    add("--json", type=Path, metavar="FILE", help="write the table as JSON")
    add("--plot", type=Path, metavar="FILE", help="draw the table as SVG")
    add("--table", type=Path, nargs="+", metavar="FILE", help="only print the tables of these JSON files, joined")
    return made


def settings_of(arguments: argparse.Namespace, world_size: int, local_size: int) -> Settings:
    """Return the run that arguments ask for.

    Raises:
        UsageError: arguments do not fit each other, or the job.
    """
    if arguments.compute_ms is not None and not (arguments.replay and arguments.compute_ms > 0):
        raise UsageError("--compute-ms is a time for --replay")
    if arguments.devices is not None:
        devices = arguments.devices
    elif arguments.sweep:
        devices = sorted({1, local_size, world_size})
    else:
        devices = [world_size]
    if max(devices) > world_size:
        raise UsageError(f"--devices {max(devices)}, but the job has {world_size} ranks: start more (--np N)")
    return Settings(
        model=arguments.model,
        batch_size=arguments.batch_size,
        image_size=arguments.image_size,
        warmup=arguments.warmup,
        batches_per_iter=arguments.batches_per_iter,
        iters=arguments.iters,
        stacks=STACKS if arguments.sweep else (arguments.stack,),
        devices=tuple(sorted(set(devices))),
        replay=arguments.replay,
        compute_ms=arguments.compute_ms,
        ratio=arguments.ratio,
        fp16=arguments.fp16,
        intra_size=arguments.intra_size,
        cuda=torch.cuda.is_available() and not arguments.no_cuda and not arguments.replay,
        network=arguments.network,
    )


def _counts(text: str) -> Sequence[int]:
    return [positive(part) for part in text.split(",")]

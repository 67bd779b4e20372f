"""Trains a small model: what every rank of a job runs."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from checkpoints import save_checkpoint
from data import Batch, Reader
from evaluation import evaluate
from metrics import Metrics
from parallel import Parallel
from recorder import Recorder
from say import say, warn


def load_settings(folder: Path, rank: int) -> dict:
    """Read what all ranks share, then what this rank's host says otherwise."""
    settings = json.loads((folder / "config.json").read_text())
    own = folder / "config" / f"{rank}.json"
    if own.exists():
        settings |= json.loads(own.read_text())
    return settings


def augment(batch: Batch, seconds: float) -> None:
    """Add noise to the inputs, the more the longer."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        batch.inputs += 1e-6 * torch.randn_like(batch.inputs)


def train(settings: dict, reader: Reader, recorder: Recorder) -> None:
    """Go through the data once."""
    rank = dist.get_rank()
    parallel = Parallel(settings)
    metrics = Metrics(settings, parallel)
    say(settings, "start", rank=rank, world=dist.get_world_size(), host=os.uname().nodename)
    step = settings["first_step"]
    for batch in reader:
        step += 1
        settings.update(settings.get("schedule", {}).get(str(step), {}))
        augment(batch, settings["late_compute_s"])
        loss = parallel.forward(batch)
        if not torch.isfinite(loss):
            if settings["tell_not_finite"]:
                warn(settings, "not_finite", step=step)
            continue
        parallel.backward(loss)
        recorder.tick(step)
        if step % settings["log_every"] == 0:
            metrics.report(step, loss, batch)
        if step % settings["eval_every"] == 0 and rank in settings["eval_ranks"]:
            evaluate(settings, parallel, step)
        if step % settings["save_every"] == 0 and rank in settings["save_ranks"]:
            save_checkpoint(settings, parallel, step)
    dist.barrier()
    say(settings, "end", step=step)


def main() -> None:
    """Join the job, train, and leave."""
    rank = int(os.environ["RANK"])
    folder = Path(__file__).resolve().parent
    settings = load_settings(folder, rank)
    torch.manual_seed(settings["seed"])
    dist.init_process_group("gloo", timeout=timedelta(seconds=settings["timeout_s"]))
    recorder = Recorder(settings, folder, rank)
    try:
        train(settings, Reader(settings, folder, rank), recorder)
    except Exception:
        recorder.failed()
        raise
    recorder.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

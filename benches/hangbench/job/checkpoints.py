"""Keeps the model on disk."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from say import say, warn

if TYPE_CHECKING:
    from parallel import Parallel


def write_blocks(path: Path, content: bytes, pause_s: float) -> None:
    """Write block by block, each of them safely."""
    with path.open("wb") as file:
        for begin in range(0, len(content), 4096):
            file.write(content[begin : begin + 4096])
            file.flush()
            os.fsync(file.fileno())
            time.sleep(pause_s)


def write_file(settings: dict, path: Path, content: bytes) -> None:
    """Write, and again if told so while there is no room."""
    while True:
        try:
            write_blocks(path, content, settings["write_pause_s"])
            return
        except OSError as error:
            if not settings["write_again"]:
                raise
            if settings["tell_again"]:
                warn(settings, "write_again", error=error)
            time.sleep(1)


def save_checkpoint(settings: dict, parallel: Parallel, step: int) -> None:
    """Save the model and the step."""
    folder = Path(settings["checkpoints"])
    folder.mkdir(exist_ok=True)
    state = {"step": step, "model": parallel.module.state_dict()}
    temporary = folder / f"step{step}.tmp"
    if settings["by_torch"]:
        torch.save(state, temporary)
    else:
        weights = b"".join(tensor.numpy().tobytes() for tensor in state["model"].values())
        write_file(settings, temporary, weights + bytes(settings["optimizer_bytes"]))
    temporary.rename(folder / f"step{step}.pt")
    say(settings, "saved", step=step, path=folder / f"step{step}.pt")

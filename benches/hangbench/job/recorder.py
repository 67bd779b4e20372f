"""Writes down what PyTorch's flight recorder has seen when a step takes too long, as NCCL's heartbeat monitor does."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

KEY = "flight-recorder/dump"


class Recorder:
    """Watches this rank's steps, and the job's store for a rank that asks all to write."""

    def __init__(self, settings: dict, folder: Path, rank: int) -> None:
        self.settings = settings
        self.folder = folder
        self.rank = rank
        self.last = float("inf")
        self.lock = threading.Lock()
        self.written = False
        self.over = threading.Event()
        for watch in (self.watch_steps, self.watch_store):
            threading.Thread(target=watch, name=watch.__name__, daemon=True).start()

    def tick(self, step: int) -> None:
        """Note that a step has ended."""
        self.last = time.monotonic()
        beat = self.folder / "heartbeats" / str(self.rank)
        beat.with_suffix(".new").write_text(f"{os.getpid()} {step}")
        beat.with_suffix(".new").rename(beat)

    def store(self) -> dist.TCPStore:
        """Connect to the job's store once more, so that nobody else's wait stands in the way."""
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=20))

    def watch_steps(self) -> None:
        """Write when a step takes too long, or when a person asks for it."""
        while not self.over.wait(0.2):
            if time.monotonic() - self.last > self.settings["patience_s"]:
                self.write()
                self.ask_all()
                return
            if (self.folder / "dump.now").exists():
                self.write()
                return

    def watch_store(self) -> None:
        """Write when another rank asks for it."""
        with contextlib.suppress(RuntimeError):
            store = self.store()
            while not self.over.wait(0.2):
                if store.check([KEY]):
                    self.write()
                    return

    def ask_all(self) -> None:
        """Ask all other ranks to write."""
        with contextlib.suppress(RuntimeError):
            self.store().set(KEY, str(self.rank))

    def write(self) -> None:
        """Write once."""
        with self.lock:
            if self.written:
                return
            self.written = True
            path = self.folder / "fr" / f"{self.settings['dump_prefix']}{self.rank}"
            if self.settings["dump_json"]:
                path.with_name(path.name + ".json").write_bytes(_dump_fr_trace_json())
            else:
                path.write_bytes(_dump_fr_trace())

    def failed(self) -> None:
        """Write, and give the others time to do so before this rank goes down."""
        asking = threading.Thread(target=self.ask_all, daemon=True)
        asking.start()
        self.write()
        asking.join(2.0)
        time.sleep(1.0)

    def close(self) -> None:
        """Watch no longer."""
        self.over.set()

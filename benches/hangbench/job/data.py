"""Batches from a rank's shard: one line of an index per batch."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Batch:
    """Inputs and what the model should say of them."""

    inputs: torch.Tensor
    targets: torch.Tensor


def parse_record(line: str) -> dict:
    """Read one line of the index."""
    return json.loads(line)


def fetch_remote(address: str) -> bytes:
    """Read an object from the storage service."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET\n")
        return connection.recv(1 << 20)


def wait_for_file(path: Path) -> bytes:
    """Read a file once the job that prepares it has written it."""
    while not path.exists():
        time.sleep(0.5)
    return path.read_bytes()


def read_pipe(path: Path) -> bytes:
    """Read what a preprocessing program writes."""
    with path.open("rb") as pipe:
        return pipe.read(4096)


def tokenize(text: str, rounds: int) -> list[int]:
    """Merge pairs of symbols as long as there are any."""
    symbols = [ord(letter) % 97 for letter in text]
    for number in range(rounds):
        symbols = [(one * 31 + number) % 97 for one in symbols]
    return symbols


class Reader:
    """Goes through a shard."""

    def __init__(self, settings: dict, folder: Path, rank: int) -> None:
        self.settings = settings
        self.folder = folder
        self.index = folder / "shards" / f"{rank:05d}.jsonl"

    def load_batch(self, record: dict) -> Batch:
        """Make the tensors of one record."""
        if "remote" in record:
            fetch_remote(record["remote"])
        if "file" in record:
            wait_for_file(self.folder / record["file"])
        if "pipe" in record:
            read_pipe(self.folder / record["pipe"])
        if "text" in record:
            tokenize(record["text"], record["rounds"])
        time.sleep(record.get("delay_s", 0.0) + self.settings["late_loader_s"])
        rows = record["rows"]
        inputs = torch.randn(rows, self.settings["width"])
        labels = torch.tensor([self.settings["labels"].index(label) for label in record["labels"]])
        targets = labels.float().repeat(rows)[:rows, None] * record.get("scale", 1.0)
        return Batch(inputs, targets)

    def __iter__(self) -> Iterator[Batch]:
        with self.index.open() as lines:
            for line in lines:
                yield self.load_batch(parse_record(line))

"""Who the ranks of a job are: what each tells of itself at the start, and what this host knows of their processes."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch.distributed as dist

from busbw.torch.layout import HOST_VARIABLE, host_id


@dataclass(frozen=True)
class RankFacts:
    """What a rank tells of itself.

    Attributes:
        rank: in the whole job.
        host_id: what tells its host from others.
        host: its host's name, for people.
        pid: its process.
        started: when that began, in the kernel's ticks: ids are used again.
        machine: the kernel and the space of process ids in which `pid` counts.
    """

    rank: int
    host_id: str
    host: str
    pid: int
    started: str
    machine: str

    @classmethod
    def own(cls) -> RankFacts:
        """Return the facts of this process."""
        host = os.environ.get(HOST_VARIABLE) or socket.gethostname()
        return cls(dist.get_rank(), host_id(), host, os.getpid(), process_status(os.getpid())[19], _machine())

    def __str__(self) -> str:
        return f"rank {self.rank} on host {self.host} (process {self.pid})"

    def state(self) -> Literal["runs", "stopped", "gone", "unknown"]:
        """Say how its process is, as far as this machine can see it."""
        if self.machine != _machine():
            return "unknown"
        try:
            status = process_status(self.pid)
        except OSError:
            return "gone"
        # proc(5): Z and X are processes that have ended, T and t stopped ones.
        if status[19] != self.started or status[0] in "ZX":
            return "gone"
        return "stopped" if status[0] in "Tt" else "runs"


def exchange(group: dist.ProcessGroup) -> list[RankFacts]:
    """Return the facts of all ranks of a group, by their place in it. Collective."""
    facts: list[RankFacts] = [RankFacts.own()] * group.size()
    dist.all_gather_object(facts, facts[0], group=group)
    return facts


def process_status(process: int) -> list[str]:
    """Return what /proc/PID/stat tells behind the name, which stands in parentheses and may hold anything (proc(5))."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _machine() -> str:
    """Tell apart where a process id means the same process: containers count their own."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"

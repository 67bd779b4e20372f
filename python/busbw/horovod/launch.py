"""Who this process is in its job, and where the ranks meet: mpirun, srun, torchrun, or one process alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from torch.distributed import HashStore, Store, TCPStore, rendezvous  # type: ignore[attr-defined]

from busbw import _native
from busbw.torch.ranks import process_status


class _Launcher(NamedTuple):
    """Who may have started this process, and the variables that it sets.

    Attributes:
        name: for people.
        sign: the variable that only it sets.
        rank: the variable with the rank.
        size: with the number of ranks.
        local_size: with the number of this host's ranks; empty where there is none.
    """

    name: str
    sign: str
    rank: str
    size: str
    local_size: str


_LAUNCHERS = (
    _Launcher("torchrun", "RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    _Launcher(
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    # srun sets PMI_RANK too (--mpi=pmi2); only hydra, MPICH's mpirun, counts the ranks of a host.
    _Launcher("MPICH's mpirun", "MPI_LOCALNRANKS", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    # A batch script has SLURM_PROCID=0 too, but is no step of so many tasks.
    _Launcher("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
    _Launcher("MPICH's mpirun", "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
"""In this order: the first whose sign is there counts."""

_POLL_S = 0.01

_BY_HAND = "tell the ranks: mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500 (MPICH: -genv NAME VALUE)"


class LaunchError(RuntimeError):
    """The environment does not say enough to start."""


@dataclass(frozen=True)
class Place:
    """This process's place in its job.

    Attributes:
        rank: counted from 0.
        size: number of ranks.
        launcher: who started it, None for a process alone.
        on_one_host: whether all ranks are known to be on this host.
    """

    rank: int
    size: int
    launcher: str | None
    on_one_host: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Place:
        """Read what the launcher has left.

        Raises:
            LaunchError: a variable is missing beside another, or is no number.
        """
        for launcher in _LAUNCHERS:
            if launcher.sign in environment:
                rank, size = (_number(environment, name, launcher.name) for name in (launcher.rank, launcher.size))
                local = environment.get(launcher.local_size) if launcher.local_size else _slurm_local_size(environment)
                return cls(rank, size, launcher.name, local == str(size))
        return cls(0, 1, None, True)


def meet(place: Place, timeout: timedelta, environment: Mapping[str, str] = os.environ) -> Store:
    """Return the store over which the ranks find each other. Every rank calls it.

    In this order: MASTER_ADDR and MASTER_PORT (which torchrun sets); on one host a port that rank 0 chooses;
    with mpirun what rank 0 puts into its store; under Slurm the first host of the step.

    Raises:
        LaunchError: there is no way to know where rank 0 is.
    """
    if place.size == 1:
        return HashStore()
    if "MASTER_ADDR" in environment:
        _number(environment, "MASTER_PORT", "MASTER_ADDR")
        by_address: Store = next(rendezvous("env://", place.rank, place.size, timeout=timeout))[0]
        return by_address
    if place.on_one_host:
        return _meet_on_this_host(place, timeout)
    if place.launcher == "srun":
        host, port = _slurm_address(environment)
        return TCPStore(host, port, place.size, place.rank == 0, timeout)
    return _meet_by_launcher(place, timeout)


def _meet_by_launcher(place: Place, timeout: timedelta) -> Store:
    """Let rank 0 take any free port, and tell the others its address through the launcher's store (PMIx, PMI)."""
    own = TCPStore("127.0.0.1", 0, None, True, timeout, wait_for_workers=False) if place.rank == 0 else None
    # Not the host's name: that often means the loopback, by which the others cannot come.
    mine = f"{_native.outward_address()}/{own.port}" if own else None
    try:
        told = _native.told_by_first_rank(mine, timeout.total_seconds())
    except ValueError as error:
        raise LaunchError(f"busbw: {place.launcher} does not say where rank 0 is: {error}. Or {_BY_HAND}") from None
    if told is None:
        raise LaunchError(f"busbw: {place.launcher} does not say where rank 0 is; {_BY_HAND}")
    if own is not None:
        return own
    host, port = told.split("/")
    return TCPStore(host, int(port), None, False, timeout, wait_for_workers=False)


def _meet_on_this_host(place: Place, timeout: timedelta) -> Store:
    """Let rank 0 take any free port and leave its number in a file that only ranks of this job look for."""
    note = Path(tempfile.gettempdir()) / f"busbw-{os.getuid()}-{_starter(place)}"
    if place.rank == 0:
        store = TCPStore("127.0.0.1", 0, None, True, timeout, wait_for_workers=False)
        draft = note.with_suffix(".draft")
        draft.touch(mode=0o600)
        draft.write_text(str(store.port))
        draft.replace(note)
    else:
        store = TCPStore("127.0.0.1", _read_port(note, timeout), None, False, timeout, wait_for_workers=False)
    if store.add("busbw/present", 1) == place.size:
        store.set("busbw/all", "")
    store.wait(["busbw/all"], timeout)
    if place.rank == 0:
        with contextlib.suppress(FileNotFoundError):
            note.unlink()
    return store


def _read_port(note: Path, timeout: timedelta) -> int:
    deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if note.stat().st_uid == os.getuid():
                return int(note.read_text())
        time.sleep(_POLL_S)
    raise LaunchError(f"busbw: rank 0 did not start within {timeout.total_seconds():.0f} s (no {note})")


def _starter(place: Place) -> str:
    """Name the process that started this host's ranks, by its id and when it began: ids are used again.

    It is not always the parent: a rank may be started by a script of its own (`mpirun … ./wrap.sh`). Such scripts know
    their rank, the launcher does not.
    """

    def is_rank(environment: Mapping[str, str]) -> bool:
        signed = (
            launcher for launcher in _LAUNCHERS if launcher.name == place.launcher and launcher.sign in environment
        )
        return any(environment.get(launcher.rank) == str(place.rank) for launcher in signed)

    process = os.getppid()
    while is_rank(_environment(process)):
        process = int(process_status(process)[1])
    return f"{process}-{process_status(process)[19]}"


def _environment(process: int) -> dict[str, str]:
    """Return what a process found in its environment; nothing of one of another user."""
    try:
        text = Path(f"/proc/{process}/environ").read_text(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def _number(environment: Mapping[str, str], name: str, beside: str) -> int:
    text = environment.get(name)
    if text is None or not text.isdecimal():
        raise LaunchError(f"busbw: started by {beside}, but {name} is {text!r}, not a number")
    return int(text)


def _slurm_local_size(environment: Mapping[str, str]) -> str | None:
    """Return the tasks of this step's only host; None where there are several."""
    return environment.get("SLURM_STEP_NUM_TASKS") if environment.get("SLURM_STEP_NUM_NODES") == "1" else None


def _slurm_address(environment: Mapping[str, str]) -> tuple[str, int]:
    """Return the first host of the step, and a port that no other step of the cluster is likely to choose."""
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
    if not hosts:
        raise LaunchError("busbw: started by srun, but SLURM_STEP_NODELIST is not set; set MASTER_ADDR and MASTER_PORT")
    step = f"{environment.get('SLURM_JOB_ID')}.{environment.get('SLURM_STEP_ID')}"
    digest = int.from_bytes(hashlib.sha256(step.encode()).digest()[:4], "big")
    return _node_address(first_host(hosts)), 20000 + digest % 10000


def _node_address(node: str) -> str:
    """Return where a node of Slurm is: its name if that can be resolved, or what slurm.conf says (NodeAddr)."""
    with contextlib.suppress(OSError):
        socket.getaddrinfo(node, None)
        return node
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(["scontrol", "show", "node", node], capture_output=True, text=True, timeout=30).stdout
        address = re.search(r"\bNodeAddr=(\S+)", told)
        if address and address[1] != node:
            return address[1]
    raise LaunchError(f"busbw: {node}, where rank 0 is, has no address here; set MASTER_ADDR and MASTER_PORT")


def first_host(hosts: str) -> str:
    """Return the first host of Slurm's way to write several: `node[07-09,12],other` begins with `node07`."""
    matched = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\])?([^,]*)", hosts)
    if matched is None:
        raise LaunchError(f"busbw: cannot read the host list {hosts!r}; set MASTER_ADDR and MASTER_PORT")
    return "".join(part or "" for part in matched.groups())

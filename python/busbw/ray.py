"""`busbw check`, `bench` and `link` on the hosts of a Ray cluster, as one job.

    python -m busbw.ray check
    python -m busbw.ray --gpus 8 bench all_reduce --backend nccl -g 8 -b 8 -e 8G -f 2
    ray job submit -- python -m busbw.ray link

A placement group takes one bundle of each host (STRICT_SPREAD), so that no two ranks share a host unawares, and Ray's
other work stays away meanwhile. Tasks that start `busbw bench` themselves are jobs of one rank each: they know nothing
of each other.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

try:
    import ray
except ModuleNotFoundError:
    raise ImportError("busbw.ray needs Ray, which is not installed here: pip install ray", name="ray") from None
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

COMMANDS = ("check", "bench", "link")

_AFTER_A_FAILURE_S = 10.0
"""How long the other ranks may take to end by themselves, and to say why."""


class ClusterError(RuntimeError):
    """Ray cannot give what was asked for, or has lost it."""


class Share(NamedTuple):
    """What is taken of the cluster.

    Attributes:
        hosts: how many; None for all that have what is asked for.
        ranks: per host.
        cpus: per host.
        gpus: per host.
        wait_s: for how long to wait until they are free.
    """

    hosts: int | None = None
    ranks: int = 1
    cpus: float = 1
    gpus: float = 0
    wait_s: float = 60


def run(command: Sequence[str], share: Share | None = None) -> int:
    """Run a command of busbw on hosts of the cluster that `ray.init` has connected to.

    What its ranks print goes to `sys.stdout` and `sys.stderr` as it comes; files (`-o`) are written on rank 0's host.
    Variables of NCCL and busbw are handed on. Whatever happens, nothing is left running.

    Args:
        command: as on the command line, without `busbw`: `["bench", "all_reduce", "-e", "1G"]`.
        share: what to take; None for a CPU of each host.

    Returns:
        its exit status.

    Raises:
        ClusterError: the cluster has no such hosts free, one has no busbw, or one was lost.
    """
    if not command or command[0] not in COMMANDS:
        raise ClusterError(f"busbw.ray runs {', '.join(COMMANDS)}, not {' '.join(command[:1]) or 'nothing'}")
    share = share or Share()
    bundles, hosts = _bundles(share), []
    group = placement_group(bundles, strategy="STRICT_SPREAD")
    try:
        if not group.wait(share.wait_s):
            raise ClusterError(_not_free(share, len(bundles)))
        hosts = [_host(group, bundle, place) for place, bundle in enumerate(bundles)]
        return _follow(_start(hosts, command, share.ranks))
    finally:
        for host in hosts:
            ray.kill(host)
        remove_placement_group(group)


def _bundles(share: Share) -> list[dict[str, float]]:
    bundle = {name: amount for name, amount in (("CPU", share.cpus), ("GPU", share.gpus)) if amount}
    able = sum(
        node["Alive"] and all(node["Resources"].get(name, 0) >= amount for name, amount in bundle.items())
        for node in ray.nodes()
    )
    if able == 0 or able < (share.hosts or 1):
        raise ClusterError(
            f"{able} of the cluster's nodes have {share.cpus:g} CPUs and {share.gpus:g} GPUs, {share.hosts or 1} are "
            "asked for; `ray status` shows what there is"
        )
    return [bundle] * (share.hosts or able)


def _not_free(share: Share, hosts: int) -> str:
    return (
        f"{hosts} hosts with {share.cpus:g} CPUs and {share.gpus:g} GPUs were not free within {share.wait_s:g} s; wait "
        "for what runs there (`ray status`), or take fewer with --hosts"
    )


def _host(group: PlacementGroup, bundle: Mapping[str, float], place: int) -> Any:  # noqa: ANN401 (Ray's handle)
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place)
    cpus, gpus = bundle.get("CPU", 0), bundle.get("GPU", 0)
    return Host.options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=strategy).remote()


def _start(hosts: Sequence[Any], command: Sequence[str], ranks: int) -> dict[Any, str]:
    """Start all ranks; return a stream of each host's output, and the host's name."""
    found = [_get(host.find.remote(), "a host") for host in hosts]
    lacking = [name for name, program in found if not program]
    if lacking:
        raise ClusterError(
            f"busbw is not installed on {', '.join(lacking)}: pip install busbw in the environment of Ray"
        )
    common = {name: value for name, value in os.environ.items() if name.startswith(("NCCL_", "BUSBW_"))}
    common |= {
        "BUSBW_SIZE": str(len(hosts) * ranks),
        "BUSBW_LOCAL_SIZE": str(ranks),
        "BUSBW_RENDEZVOUS": _get(hosts[0].listen.remote(), found[0][0]),
        "BUSBW_TOKEN": secrets.token_hex(16),
        # A rank that has it ends when the process that started it does.
        "BUSBW_MARK": f"busbw-{secrets.token_hex(8)}",
    }
    streams = [host.run.remote(list(command), common, place * ranks, ranks) for place, host in enumerate(hosts)]
    return {stream: name for stream, (name, _) in zip(streams, found)}


def _follow(streams: Mapping[Any, str]) -> int:
    """Print what comes until all ranks have ended; return the first exit status that is not 0, by rank."""
    statuses = dict.fromkeys(streams, 0)
    going, deadline = list(streams), None
    while going and (deadline is None or time.monotonic() < deadline):
        for stream in ray.wait(going, num_returns=1, timeout=None if deadline is None else _AFTER_A_FAILURE_S)[0]:
            try:
                where, what = _get(next(stream), streams[stream])
            except StopIteration:
                going.remove(stream)
                continue
            if where == "status":
                statuses[stream] = what
                deadline = deadline or (time.monotonic() + _AFTER_A_FAILURE_S if what else None)
            else:
                print(what, end="", flush=True, file=sys.stdout if where == "stdout" else sys.stderr)
    return next((status for status in statuses.values() if status), 0)


def _get(answer: Any, name: str) -> Any:  # noqa: ANN401 (Ray's reference, and what it stands for)
    try:
        return ray.get(answer)
    except RayError as error:
        raise ClusterError(f"{name} was lost: {type(error).__name__}; `ray status` shows which nodes live") from error


class _Host:
    """The ranks of one host."""

    def __init__(self) -> None:
        self._path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
        self._listener: socket.socket | None = None

    def find(self) -> tuple[str, str | None]:
        """Return this host's name, and where its busbw is."""
        return socket.gethostname(), shutil.which("busbw", path=self._path)

    def listen(self) -> str:
        """Take a port for rank 0; return the address."""
        address = ray.util.get_node_ip_address()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        host = f"[{address}]" if ":" in address else address
        return f"{host}:{self._listener.getsockname()[1]}"

    def run(self, command: list[str], common: dict[str, str], first: int, ranks: int) -> Iterator[tuple[str, Any]]:
        """Start this host's ranks; give what they print as it comes, then their exit status."""
        _, program = self.find()
        assert program is not None, "asked before"
        printed: queue.Queue[tuple[str, str | None]] = queue.Queue()
        processes = [self._rank([program, *command], common, first + local, local) for local in range(ranks)]
        if self._listener is not None:
            # Only rank 0 keeps it: who comes when rank 0 is gone is refused.
            self._listener.close()
        for process in processes:
            for name in ("stdout", "stderr"):
                reader = (name, getattr(process, name), common["BUSBW_MARK"], printed)
                threading.Thread(target=_read, args=reader, daemon=True).start()
        ended = 0
        while ended < 2 * len(processes):
            name, text = printed.get()
            ended += text is None
            if text is not None:
                yield name, text
        statuses = [process.wait() for process in processes]
        for rank, status in enumerate(statuses, first):
            if status < 0:
                name = signal.Signals(-status).name
                yield "stderr", f"busbw: rank {rank} on {socket.gethostname()} was ended by {name}\n"
        yield "status", next((128 - status if status < 0 else status for status in statuses if status), 0)

    def _rank(self, command: list[str], common: dict[str, str], rank: int, local: int) -> subprocess.Popen[str]:
        own = {"BUSBW_RANK": str(rank), "BUSBW_LOCAL_RANK": str(local)}
        kept = []
        if rank == 0:
            assert self._listener is not None, "rank 0's host listens"
            kept = [self._listener.fileno()]
            own["BUSBW_LISTENER"] = str(kept[0])
        return subprocess.Popen(
            command,
            env={**os.environ, **common, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=kept,
        )


Host = ray.remote(max_restarts=0)(_Host)


def _read(name: str, pipe: IO[str], mark: str, printed: queue.Queue[tuple[str, str | None]]) -> None:
    for line in pipe:
        if not line.startswith(mark):
            printed.put((name, line))
    printed.put((name, None))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m busbw.ray`; return its exit status."""
    parser = argparse.ArgumentParser("python -m busbw.ray", description="Run busbw on the hosts of a Ray cluster.")
    parser.add_argument("--address", default="auto", help="the cluster (default: RAY_ADDRESS, or the one of this host)")
    parser.add_argument("--hosts", type=int, metavar="N", help="hosts (default: all that have what is asked for)")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="ranks per host (default: 1)")
    parser.add_argument("--cpus", type=float, default=1, metavar="N", help="CPUs to take of each host (default: 1)")
    parser.add_argument("--gpus", type=float, default=0, metavar="N", help="GPUs to take of each host (default: 0)")
    parser.add_argument("--wait", type=float, default=60, metavar="S", help="seconds to wait for them (default: 60)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="check, bench or link, with its arguments")
    told = parser.parse_args(arguments)
    share = Share(told.hosts, told.ranks, told.cpus, told.gpus, told.wait)
    # A script's shell has it ignored in what runs in the background, and ends that by `kill -INT`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with _connected(told.address):
            return run(told.command, share)
    except ClusterError as error:
        print(f"busbw: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise ClusterError(
            f"no Ray cluster answers: {first}; run this on one of its hosts, or give --address HOST:PORT"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())

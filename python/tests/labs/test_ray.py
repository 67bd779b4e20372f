"""`busbw.ray` on two nodes of Ray, which are processes of this machine in a network of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")

LIMIT_S = 240
"""Of anything, on a slow and loaded machine."""

UNSHARE = ["unshare", "--map-root-user", "--net"]
ENVIRONMENT = {**os.environ, "NCCL_SOCKET_IFNAME": "lo", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
LONG = ["bench", "all_reduce", "-b", "8", "-e", "8", "-n", "100000000", "-T", "1000"]


class Nodes:
    """A cluster of two nodes."""

    def __init__(self, process: int, address: str) -> None:
        self.process = process
        enter = ["nsenter", "--target", str(process), "--user", "--preserve-credentials", "--net"]
        self.command = [*enter, sys.executable, "-m", "busbw.ray", "--address", address]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self.command, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=LIMIT_S)

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """A benchmark that does not end by itself, once both ranks run."""
        command = [*self.command, *LONG]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as driver:
            try:
                wait_for(lambda: len(self.ranks()) == 2, "two ranks")
                yield driver
                driver.wait(LIMIT_S)
            finally:
                driver.kill()
        wait_for(lambda: not self.ranks(), "the end of all ranks")

    def ranks(self) -> list[int]:
        """Processes of the benchmark in the cluster's network, by rank."""
        network, found = Path(f"/proc/{self.process}/ns/net").readlink(), []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_text().split("\0")[:-1]
                if words[1:] == LONG and (process / "ns/net").readlink() == network:
                    rank = re.search(r"\0BUSBW_RANK=(\d)\0", (process / "environ").read_text())
                    assert rank
                    found.append((rank[1], int(process.name)))
        return [process for _, process in sorted(found)]


def wait_for(condition: object, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"no sign of {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    if subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True).returncode:
        pytest.skip("no network namespaces here: unshare --map-root-user --net, or ip, fails")
    program = str(Path(__file__).with_name("ray_cluster.py"))
    # unshare becomes the program.
    with subprocess.Popen(
        [*UNSHARE, sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        assert address, "the cluster did not come up"
        yield Nodes(cluster.pid, address)
        cluster.stdin.close()


def test_bench_is_one_job_of_all_hosts(nodes: Nodes) -> None:
    ended = nodes.run("bench", "all_reduce", "-b", "8", "-e", "64K", "-f", "64", "-n", "2", "-w", "1")
    assert ended.returncode == 0, ended.stderr
    ranks = [line for line in ended.stdout.splitlines() if line.startswith("#  Rank ")]
    assert [line.split()[2] for line in ranks] == ["0", "1"]
    assert "# Avg bus bandwidth" in ended.stdout
    assert ended.stderr == ""


def test_ranks_of_a_host_have_numbers_one_after_the_other(nodes: Nodes) -> None:
    ended = nodes.run("--ranks", "2", "bench", "all_gather", "-b", "8", "-e", "8", "-n", "1", "-w", "0")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("#  Rank ") == 4


def test_link_measures_between_the_hosts(nodes: Nodes) -> None:
    ended = nodes.run("link", "--tcp", "--seconds", "0.1", "--size", "64K", "--flows", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    links = json.loads(ended.stdout)["links"]
    assert len(links) == 2
    assert all(link["gbit_s"] > 0 for link in links)


def test_check_answers_for_the_cluster(nodes: Nodes) -> None:
    ended = nodes.run("check", "--json")
    assert ended.returncode in (0, 1), ended.stderr
    assert json.loads(ended.stdout)["items"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["doctor"], 1, "busbw.ray runs check, bench, link, not doctor"),
        (["--hosts", "3", "check"], 1, "2 of the cluster's nodes have 1 CPUs and 0 GPUs, 3 are asked for"),
        (["--gpus", "8", "check"], 1, "0 of the cluster's nodes have 1 CPUs and 8 GPUs, 1 are asked for"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(nodes: Nodes, arguments: list[str], status: int, says: str) -> None:
    ended = nodes.run(*arguments)
    assert ended.returncode == status
    assert says in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_status_of_busbw_comes_back(nodes: Nodes) -> None:
    assert nodes.run("bench", "no_such_collective").returncode == 2


@pytest.mark.parametrize(
    ("sign", "statuses"),
    # At SIGTERM Ray leaves with the signal's number, unless it hears first that its ranks have ended.
    [(signal.SIGINT, [130]), (signal.SIGTERM, [signal.SIGTERM, 1]), (signal.SIGKILL, [-signal.SIGKILL])],
)
def test_nothing_is_left_when_the_driver_ends(nodes: Nodes, sign: signal.Signals, statuses: list[int]) -> None:
    with nodes.running() as driver:
        driver.send_signal(sign)
    assert driver.returncode in statuses


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_ends_the_job(nodes: Nodes, rank: int) -> None:
    with nodes.running() as driver:
        os.kill(nodes.ranks()[rank], signal.SIGKILL)
        _, said = driver.communicate(timeout=LIMIT_S)
    # Its own, or rank 0's, which has lost it.
    assert driver.returncode in (128 + signal.SIGKILL, 1)
    assert re.search(rf"^busbw: rank {rank} on .* was ended by SIGKILL$", said, re.MULTILINE), said


def test_a_host_that_is_lost_ends_the_job(nodes: Nodes) -> None:
    def parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    with nodes.running() as driver:
        os.kill(parent(nodes.ranks()[1]), signal.SIGKILL)
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 1
    # Rank 0 may have said before that it lost a rank.
    assert "was lost: ActorDiedError" in said.splitlines()[-1], said
    assert "Traceback" not in said

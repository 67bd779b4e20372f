"""Ranks that die, hang, raise or differ: the others are told which, and nothing wrong is ever averaged."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import busbw.horovod as hvd
import busbw.torch
from busbw.torch.blame import Record, Wait, certain, likely
from busbw.torch.pipeline import ThreadPipeline, _Broken
from busbw.torch.ranks import RankFacts

ENOUGH_S = 60.0
"""Far more than anything takes that does not wait for a limit."""

HOSTS = ["a", "b", "b"]


def end(how: str) -> None:
    os.kill(os.getpid(), {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}[how])


def helpers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("busbw")]


def no_helpers_left() -> bool:
    deadline = time.monotonic() + ENOUGH_S
    while helpers() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not helpers()


def surviving(operation: Callable[[], Any]) -> tuple[str, str, bool]:
    """Return how an operation fails, how the next one does, and whether the threads ended."""
    with pytest.raises(RuntimeError) as first:
        operation()
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as second:
        operation()
    assert time.monotonic() - begin < 1.0, "at once"
    return str(first.value), str(second.value), no_helpers_left()


def by_horovod(rank: int, how: str) -> tuple[str, str, bool]:
    hvd.init()
    hvd.allreduce(torch.ones(5))
    if rank == hvd.size() - 1:
        end(how)
    return surviving(lambda: hvd.allreduce(torch.ones(100_000)))


def by_ddp(rank: int, how: str) -> tuple[str, str, bool]:
    torch.manual_seed(1)
    ddp = DistributedDataParallel(nn.Linear(50, 50))
    busbw.torch.accelerate(ddp, mode="topk", topk_min_bytes=0)

    def step() -> None:
        ddp.zero_grad()
        ddp(torch.ones(3, 50)).sum().backward()

    step()
    step()
    if rank == dist.get_world_size() - 1:
        end(how)
    return surviving(step)


@pytest.mark.parametrize("train", [by_horovod, by_ddp])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("killed", r"rank {} on host b \(process \d+\) died without a word: its process is gone"),
        (
            "stopped",
            r"failed after \d+\.\d s: rank {} on host b \(process \d+\) is stopped, by SIGSTOP.*kill -CONT \d+",
        ),
    ],
)
@pytest.mark.parametrize("world", [2, 3])
def test_a_rank_that_dies_or_stops_is_named(
    train: Callable[..., Any], how: str, says: str, world: int, tmp_path: Path
) -> None:
    environment = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "8"}
    hosts = ["a", "b"] if world == 2 else HOSTS
    begin = time.monotonic()
    ended = ranks.outcomes(
        world, train, how, directory=tmp_path, hosts=hosts, timeout_s=8, environment=environment, lost=world - 1
    )
    assert time.monotonic() - begin < ENOUGH_S
    assert len(ended) == world - 1
    for outcome in ended:
        assert outcome.error is None, outcome.error
        first, second, threads_ended = outcome.answer
        assert re.search(says.format(world - 1), first), first
        assert "an operation before this one failed so" in second
        assert re.search(says.format(world - 1), second), second
        assert threads_ended


_SCRIPT = """
import sys, torch, busbw.horovod as hvd
hvd.init()
hvd.allreduce(torch.ones(5))
if hvd.rank() == 1:
    {fault}
hvd.allreduce(torch.ones(5))
"""


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            "raise ValueError('no such\\x1b[2J sample')",
            r"raised ValueError: no such.\[2J sample\. See that rank's own output",
        ),
        ("sys.exit(3)", r"takes no part any more: it called close\(\) or shutdown\(\), or its script has ended"),
    ],
)
def test_a_rank_that_raises_or_dies_by_itself_says_so(fault: str, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = []
    for rank in range(3):
        own = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environment = {**os.environ, **own, "NCCL_HOSTID": HOSTS[rank], "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _SCRIPT.format(fault=fault)]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=150)[1] for process in started]
    for rank in (0, 2):
        assert started[rank].returncode == 1, said[rank]
        assert re.search(rf"rank 1 on host b \(process \d+\) {says}", said[rank]), said[rank]
        assert "\x1b" not in said[rank]


def differing(rank: int, world: int) -> None:
    """Ranks that hand in what does not fit are told, and the next operation is right."""
    hvd.init()

    def works() -> None:
        assert hvd.allreduce(torch.ones(7), op=hvd.Sum).tolist() == [float(world)] * 7
        assert hvd.allgather_object(rank) == list(range(world))

    last = world - 1
    for operation, says in (
        (lambda: hvd.allreduce(torch.ones(1000 if rank < last else 2000)), r"float32 \[1000\].*float32 \[2000\]"),
        (lambda: hvd.allreduce(torch.ones(8, dtype=torch.int8 if rank < last else torch.int64)), r"int8.*int64"),
        (
            lambda: hvd.allreduce(torch.ones(8)) if rank < last else hvd.broadcast(torch.ones(8), 0),
            "allreduce.*broadcast",
        ),
        (lambda: hvd.allgather(torch.ones(2, 3 if rank < last else 4)), r"\[any, 3\].*\[any, 4\]"),
    ):
        with pytest.raises(hvd.HorovodInternalError, match=says) as told:
            operation()
        assert "rank 0 on host a (process " in str(told.value)
        assert f"rank {last} on host b (process " in str(told.value)
        works()
    kept, dist.all_reduce = dist.all_reduce, out_of_memory
    with pytest.raises(MemoryError):  # what PyTorch refuses on all ranks
        hvd.allreduce(torch.ones(2))
    dist.all_reduce = kept
    works()
    hvd.shutdown()
    assert no_helpers_left()


@pytest.mark.parametrize("world", [2, 3])
def test_unequal_operations_are_refused_and_the_next_is_right(world: int, tmp_path: Path) -> None:
    ranks.run(world, differing, world, directory=tmp_path, hosts=HOSTS[:world])


def out_of_memory(*_: object, **__: object) -> None:
    raise MemoryError("no room for the residual")


def unable_once(rank: int, mode: str) -> None:
    """A step that one rank cannot do fails on all, and the next averages what it is given."""
    options = busbw.torch.Options(mode=mode, ratio=1.0, topk_min_bytes=0)  # type: ignore[arg-type]
    reducer = busbw.torch.GradientReducer(dist.group.WORLD, torch.device("cpu"), options)
    reducer.end_step()
    kept = reducer.feedback.flush
    if rank == 2:
        reducer.feedback.flush = out_of_memory  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="MemoryError: no room for the residual") as told:
        reducer.reduce("bucket", torch.ones(40)).wait()
    if rank != 2:
        assert "rank 2 on host b (process " in str(told.value)
    reducer.feedback.flush = kept  # type: ignore[method-assign]
    mean = reducer.reduce("bucket", torch.full((40,), float(rank))).wait()
    assert mean.tolist() == [1.5] * 40, "no gradient of the step that failed"
    reducer.close()
    assert no_helpers_left()


def test_what_one_rank_cannot_do_fails_on_all_and_nothing_is_lost(tmp_path: Path) -> None:
    ranks.run(4, unable_once, "both", directory=tmp_path, hosts=["a", "a", "b", "b"])


def unable_alone(rank: int) -> str:
    """After all have agreed, one rank cannot: the others do not wait for it."""
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if rank == 1:
        dist.all_reduce = out_of_memory
    with pytest.raises(hvd.HorovodInternalError) as told:
        hvd.allreduce(torch.ones(5))
    assert no_helpers_left()
    return str(told.value)


def test_a_rank_that_fails_does_not_wait_nor_keep_others(tmp_path: Path) -> None:
    first, second, third = ranks.run(3, unable_alone, directory=tmp_path, hosts=HOSTS)
    assert "failed on this rank alone: MemoryError" in second
    for told in (first, third):
        assert re.search(r"rank 1 on host b \(process \d+\) raised MemoryError: no room", told), told


def optimizer_goes_on(rank: int) -> None:
    hvd.init()
    model = nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    optimizer._averaging._op = hvd.Sum if rank else hvd.Average
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="ask for different operations"):
        optimizer.step()
    optimizer._averaging._op = hvd.Average
    optimizer.zero_grad()
    model(torch.full((1, 3), float(rank))).sum().backward()
    optimizer.step()
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[0.5, 0.5, 0.5]]
    hvd.shutdown()


def test_an_unequal_step_does_not_poison_the_next(tmp_path: Path) -> None:
    ranks.run(2, optimizer_goes_on, directory=tmp_path)


def elsewhere(rank: int) -> RankFacts:
    """A rank of a machine that this one cannot look into."""
    return RankFacts(rank, f"h{rank}", f"h{rank}", 100 + rank, "1", "another machine")


@pytest.mark.parametrize(
    ("before", "now", "at_limit", "says"),
    [
        (Record(1), Record(1), True, "rank 1 on host h1 (process 101) does not answer: it hangs or was stopped, or"),
        (Record(1), Record(1), False, "rank 1 on host h1 (process 101) does not answer: it died, or its host"),
        (Record(1, {"g": 4}), Record(5, {"g": 4}), True, "rank 1 on host h1 (process 101) answers, but takes no part"),
        (Record(1, {"g": 5}), Record(5, {"g": 5}), True, "all ranks answer"),
        (Record(1), Record(2, {}, "raised", "OSError: gone\nfor good"), True, "raised OSError: gone. See"),
        (Record(1), Record(2, {}, "failed", "reset", (2,)), False, "rank 2 on host h2 (process 102) died"),
        (Record(1), Record(2, {}, "left", "takes no part any more"), False, "h1 (process 101) takes no part"),
    ],
)  # fmt: skip
def test_what_silence_tells(before: Record, now: Record, at_limit: bool, says: str) -> None:
    three = [elsewhere(rank) for rank in range(3)]
    own, other = Record(3, {"g": 5}), Record(8, {"g": 5})
    records = [own, now, other]
    wait = Wait("g", [0, 1, 2], at_limit)
    told = certain(three, records, []) or likely(three, [own, before, Record(2, {"g": 5})], records, 0, wait)
    assert says in told


def test_a_store_that_is_silent_names_who_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "rank 0 on host h0 (process 100) does not answer, and holds the job's store" in likely(
        [elsewhere(rank) for rank in range(2)], [], [], 1, None
    )
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_ADDR", "head")
    assert "torchrun's agent on head" in likely([elsewhere(0)], [], [], 0, None)


@pytest.mark.parametrize("part", ["torch", "horovod", "compress", "synthetic"])
def test_without_pytorch_the_remedy_is_told(part: str) -> None:
    code = f"import sys; sys.modules['torch'] = None; import busbw.{part}"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120).stderr
    assert "ImportError: this part of busbw needs PyTorch, which is not installed here: pip install torch" in said


class EndsLate:
    """A collective that ends just behind a wait that gave up."""

    def __init__(self, error: str = "") -> None:
        self._over, self._error = False, error

    def is_completed(self) -> bool:
        return self._over

    def wait(self, timeout: object = None) -> bool:
        if timeout is not None:
            self._over = True
            raise RuntimeError("Operation timed out!")
        if self._error:
            raise RuntimeError(self._error)
        return True


def test_a_collective_that_ends_as_a_wait_gives_up_has_not_failed() -> None:
    pipeline = ThreadPipeline.__new__(ThreadPipeline)
    pipeline._failure = None
    pipeline._wait(EndsLate())  # type: ignore[arg-type]
    failed = EndsLate("Connection closed by peer")
    with pytest.raises(_Broken):
        pipeline._wait(failed)  # type: ignore[arg-type]

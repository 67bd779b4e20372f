#!/usr/bin/env python3
"""Run Horovod's own tests of its PyTorch API (test/parallel/test_torch.py) against busbw.horovod, and print the rate.

    HOROVOD_SOURCE=DIR tools/clients/horovod_suite.py [--ranks 2] [--limit 120] [--json FILE] [TEST ...]

DIR is a checkout of github.com/horovod/horovod. Its tests are copied to a temporary folder, where one import is
changed. Each test gets fresh processes, on this machine, over Gloo. Needed: busbw, PyTorch, pytest, and what the suite
imports (numpy, packaging, mock, cloudpickle, psutil, PyYAML).
"""

from __future__ import annotations

import argparse
import ast
import atexit
import contextlib
import importlib
import json
import os
import py_compile
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy  # noqa: F401 (what takes long to import is imported before ranks are forked)
import pytest
import torch
import torch._dynamo

import busbw.horovod  # noqa: F401

_WAS, _IS = "import horovod.torch as hvd", "import busbw.horovod as hvd"


@dataclass
class Result:
    """How a test ended: on all ranks alike, or as the first rank that failed."""

    test: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0


class _Report:
    """What pytest tells of the one test of a rank."""

    def __init__(self) -> None:
        self.outcome, self.reason = "failed", "no test was run"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcome, self.reason = report.outcome, _reason(report)


def _reason(report: pytest.TestReport) -> str:
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message).splitlines()[0] if crash else ""


def main() -> int:
    """Run the tests; return 1 where one that applies does not pass."""
    options = _options()
    source = Path(os.environ.get("HOROVOD_SOURCE", ""))
    if not (source / "test/parallel/test_torch.py").is_file():
        sys.exit("set HOROVOD_SOURCE to a checkout of github.com/horovod/horovod")
    torch.set_num_threads(1)
    results = []
    # Not TemporaryDirectory: a forked rank would remove it when it ends.
    folder = Path(tempfile.mkdtemp(prefix="busbw-horovod-suite-"))
    try:
        suite = _copy(source, folder)
        for test in _tests(suite):
            if not options.tests or test in options.tests:
                results.append(_run(suite, test, options.ranks, options.limit))
                print(f"{results[-1].outcome:8} {results[-1].seconds:6.1f} s  {test}  {results[-1].reason}", flush=True)
    finally:
        shutil.rmtree(folder)
    _summarize(results, options.ranks)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return int(any(result.outcome == "failed" for result in results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="names of tests; all if none is given")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a test")
    parser.add_argument("--json", type=Path, help="write the results here")
    return parser.parse_args()


def _copy(source: Path, folder: Path) -> Path:
    """Copy what the suite needs of Horovod's tests, and change the import."""
    shutil.copytree(source / "test/utils", folder / "utils")
    text = (source / "test/parallel/test_torch.py").read_text()
    if text.count(_WAS) != 1:
        sys.exit(f"test_torch.py has {text.count(_WAS)} lines {_WAS!r}; one is expected")
    suite = folder / "parallel" / "test_torch.py"
    suite.parent.mkdir()
    suite.write_text(text.replace(_WAS, _IS))
    # Its utils import parts of Horovod's runner, which need no build.
    sys.path += [str(source), str(folder / "utils")]
    importlib.import_module("common")
    py_compile.compile(str(suite))
    return suite


def _tests(suite: Path) -> list[str]:
    functions = (node for node in ast.walk(ast.parse(suite.read_text())) if isinstance(node, ast.FunctionDef))
    return [function.name for function in functions if function.name.startswith("test_")]


def _run(suite: Path, test: str, ranks: int, limit: float) -> Result:
    """Run a test on fresh ranks, and end those that do not end."""
    begin, port = time.monotonic(), _free_port()
    answers = [suite.parent / f"{test}.{rank}.json" for rank in range(ranks)]
    processes = [_start(suite, test, rank, ranks, port, answers[rank]) for rank in range(ranks)]
    late = _wait(processes, begin + limit)
    told = [json.loads(path.read_text()) if path.exists() else None for path in answers]
    seconds = time.monotonic() - begin
    if late:
        return Result(test, "failed", f"did not end within {limit:.0f} s; {_first_failure(told)}", seconds)
    if all(told) and len({outcome for outcome, _ in told}) == 1:
        return Result(test, *told[0], seconds)
    return Result(test, "failed", _first_failure(told), seconds)


def _first_failure(told: list[list[str] | None]) -> str:
    if None in told:
        return f"rank {told.index(None)} gave no answer"
    failed = (f"rank {rank}: {reason}" for rank, (outcome, reason) in enumerate(told) if outcome == "failed")
    return next(failed, "ranks do not agree on whether to skip it")


def _start(suite: Path, test: str, rank: int, ranks: int, port: int, answer: Path) -> int:
    """Fork a rank, since importing PyTorch anew takes longer than most tests; return its process."""
    process = os.fork()
    if process == 0:
        try:
            _rank(suite, test, rank, ranks, port, answer)
            atexit._run_exitfuncs()
        finally:
            os._exit(0)
    return process


def _rank(suite: Path, test: str, rank: int, ranks: int, port: int, answer: Path) -> None:
    """Be a rank, as torchrun and horovodrun --gloo start one, and write down how the test ended."""
    log = os.open(answer.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    of_horovod = {"HOROVOD_RANK": rank, "HOROVOD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in (place | of_horovod).items()}, MASTER_ADDR="127.0.0.1")
    report = _Report()
    plain = [
        "-q",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(suite.parent),
        "-W",
        "ignore::pytest.PytestWarning",
    ]
    pytest.main([*plain, f"{suite}::TorchTests::{test}"], plugins=[report])
    answer.write_text(json.dumps([report.outcome, report.reason]))


def _wait(processes: list[int], deadline: float) -> list[int]:
    """Wait until processes have ended; kill and return those that are late."""
    left = list(processes)
    while left and time.monotonic() < deadline:
        left = [process for process in left if os.waitpid(process, os.WNOHANG)[0] == 0]
        time.sleep(0.02)
    for process in left:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return left


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _summarize(results: list[Result], ranks: int) -> None:
    """Print how many tests pass of those that apply, and why the others do not."""
    count = Counter(result.outcome for result in results)
    applies = count["passed"] + count["failed"]
    rate = f"{count['passed'] / applies:.0%}" if applies else "none"
    print(f"\n{ranks} ranks: {count['passed']} of {applies} pass ({rate}); {count['skipped']} do not apply:")
    for reason, times in Counter(r.reason for r in results if r.outcome == "skipped").most_common():
        print(f"  {times:3} {reason}")


if __name__ == "__main__":
    sys.exit(main())

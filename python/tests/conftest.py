"""Settings of all tests, made before anything imports PyTorch, and the list of what was skipped.

Tests beside this file need no PyTorch (make test); those in labs do, some with Open MPI or Slurm (make test-all).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# One thread per process, so that ranks do not crowd the machine out.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Kernels run in Triton's interpreter, which needs no GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember why a test was skipped."""
    if report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append(f"skipped {report.nodeid}: {why.removeprefix('Skipped: ')}\n")


pytest_collectreport = pytest_runtest_logreport


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add to the list that make prints; where BUSBW_SKIP=fail, a skipped test is a failed one."""
    if _skipped and "BUSBW_SKIPPED" in os.environ:
        with Path(os.environ["BUSBW_SKIPPED"]).open("a") as skipped:
            skipped.writelines(_skipped)
    if _skipped and os.environ.get("BUSBW_SKIP") == "fail":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

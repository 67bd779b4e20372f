"""The parts of the package that need PyTorch."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest


@pytest.mark.parametrize("part", ["advisor", "compress", "horovod", "synthetic", "torch"])
def test_each_module_can_be_imported_first(part: str) -> None:
    subprocess.run([sys.executable, "-c", f"import busbw.{part}"], check=True, timeout=120)


def test_accelerate_asks_the_advisor_of_the_package() -> None:
    command = [Path(sysconfig.get_path("scripts")) / "busbw", "accelerate", "--hosts", "2", "--ranks-per-host", "8"]
    command += ["--gradients", "528M", "--network-gbit", "25"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert [line.split()[0] for line in said.splitlines()[2:]] == ["plain", "topk", "two-level", "both"]

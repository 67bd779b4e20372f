"""The parts of the package that need PyTorch."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest


@pytest.mark.parametrize("part", ["advisor", "compress", "horovod", "synthetic", "torch"])
def test_each_module_can_be_imported_first(part: str) -> None:
    subprocess.run([sys.executable, "-c", f"import busbw.{part}"], check=True, timeout=120)


def test_the_advisor_is_the_command() -> None:
    command = Path(sysconfig.get_path("scripts")) / "busbw"
    asked = ["--hosts", "2", "--ranks-per-host", "8", "--gradients", "528M", "--network-gbit", "25"]
    by_command, by_module = (
        subprocess.run([*words, *asked], capture_output=True, text=True, check=True, timeout=120).stdout
        for words in ([command, "accelerate"], [sys.executable, "-m", "busbw.advisor"])
    )
    assert by_command == by_module
    ways = [line.split()[0] for line in by_command.splitlines() if " ms " in line]
    assert ways == 2 * ["plain", "topk", "two-level", "both"]

"""Hosts on this machine: network namespaces of tests/lab/netlab."""

from __future__ import annotations

import os
import subprocess
import sys

import origin


class Netlab:
    """A lab of hosts, up until `down`."""

    def __init__(self, number: int, hosts: int) -> None:
        """Bring it up; labs of other numbers may stand beside it."""
        self.environment = os.environ | {"NETLAB": str(number)}
        self.netlab("up", str(hosts))

    def netlab(self, *words: str) -> str:
        """Run the lab's program."""
        program = origin.ROOT / "tests/lab/netlab"
        done = subprocess.run([program, *words], env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"netlab {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

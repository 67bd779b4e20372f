"""The hosts of a run: network namespaces of tests/lab/netlab, and what is done to their links."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

NETLAB = Path(__file__).resolve().parents[2] / "tests/lab/netlab"


class Lab:
    """Hosts joined by a switch."""

    def __init__(self, number: int, hosts: int) -> None:
        self.number = number
        self.hosts = hosts
        self.environment = {**os.environ, "NETLAB": str(number)}
        self.hosts_file = Path(f"/run/busbw-netlab-{number}/hosts")

    def call(self, *words: str) -> None:
        """Call netlab."""
        subprocess.run([NETLAB, *words], env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def up(self) -> None:
        """Bring the hosts up."""
        self.call("up", str(self.hosts))

    def down(self) -> None:
        """Take them down, with all that still runs there."""
        self.call("down")

    def network(self, host: int) -> str:
        """Name a host's network namespace."""
        return f"busbw-lab{self.number}-h{host}"

    def cut(self, host: int) -> None:
        """Pull a host's cable."""
        self.call("link-down", str(host))

    def slow(self, host: int, rate: str) -> None:
        """Let a host's cable carry no more than so much, in both directions."""
        shape = ["root", "tbf", "rate", rate, "burst", "4kb", "limit", "1mb"]
        cable = f"nl{self.number}n0h{host}"
        network = ["-n", self.network(host)]
        subprocess.run(["tc", *network, "qdisc", "replace", "dev", "eth0", *shape], check=True)
        subprocess.run(["tc", "qdisc", "replace", "dev", cable, *shape], check=True)

    def look(self, host: int, *words: str) -> str:
        """Return what a command prints on a host."""
        command = ["ip", "netns", "exec", self.network(host), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

"""Replays the training of the fifth field report between two hosts of the net lab: two-level and top-k beside plain.

    target/python/bin/python benches/replay.py [--rate 160mbit] [--compute-ms 11000] [--out FILE]

As root, with Open MPI, after `make test-all`, which installs PyTorch and busbw's package. Four ranks a host send the
gradients of VGG16; computation is slept through (docs/synthetic.md). Writes benches/results/replay-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import origin

LAB = origin.ROOT / "tests/lab/netlab"
NUMBER = "50"
"""Apart from the labs of tests and of other benchmarks, which may be up too."""

HOSTS = ("10.77.0.1", "10.77.0.2")
RANKS = 4
"""Of a host."""


def command(given: argparse.Namespace, result: Path) -> list[str]:
    """Return what runs on the first host."""
    variables = {
        "MASTER_ADDR": HOSTS[0],
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }
    hosts = ",".join(f"{host}:{RANKS}" for host in HOSTS)
    # Open MPI 4.1's daemons of one machine write their picture of it to one file, and at times crash on it (rtc).
    choices = {"plm_rsh_agent": f"{LAB} rsh", "btl": "tcp,self", "rtc": "^hwloc"}
    return [
        *("mpirun.openmpi", "-np", str(RANKS * len(HOSTS)), "--host", hosts, "--bind-to", "none"),
        *(word for name, value in choices.items() for word in ("--mca", name, value)),
        *(word for name, value in variables.items() for word in ("-x", f"{name}={value}")),
        *(sys.executable, "-m", "busbw.synthetic", "--model", given.model, "--batch-size", str(given.batch_size)),
        *("--replay", "--compute-ms", str(given.compute_ms), "--sweep", "--devices", f"1,{RANKS * len(HOSTS)}"),
        *("--warmup", "1", "--iters", "3", "--batches-per-iter", "1"),
        *("--network", in_words(given.rate), "--json", str(result)),
    ]


def in_words(rate: str) -> str:
    """`160mbit` is `160 Mbit/s`."""
    return re.sub(r"^(\d+)([kmg])bit$", lambda found: f"{found[1]} {found[2].upper()}bit/s", rate)


def with_origin(table: dict[str, Any]) -> dict[str, Any]:
    """Put when, of what and on what it was measured in front of what `busbw.synthetic` found."""
    return {**origin.now(table["schema"]), **table}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Bring the hosts up, replay, and take them down again."""
    environment = {**os.environ, "NETLAB": NUMBER, "PMIX_MCA_psec": "native"}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def lab(*words: str) -> None:
        subprocess.run([LAB, *words], env=environment, check=True)

    with tempfile.TemporaryDirectory(prefix="busbw-replay-") as folder:
        result = Path(folder) / "result.json"
        lab("up", str(len(HOSTS)), "--rate", given.rate)
        try:
            lab("exec", "1", *command(given, result))
        finally:
            lab("down")
        return with_origin(json.loads(result.read_text()))


def main() -> None:
    """Measure and keep; the table is what `busbw.synthetic` prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", default="160mbit", help="of each host's NIC, as netlab takes it (%(default)s)")
    parser.add_argument("--compute-ms", type=float, default=11000, help="a batch's computation (%(default)g)")
    parser.add_argument("--model", default="vgg16", help="of torchvision's (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=128, help="images per device and batch (%(default)s)")
    parser.add_argument("--out", type=Path, help="where results go")
    given = parser.parse_args()
    try:
        print(f"recorded in {origin.record('replay', measure(given), given.out)}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"replay: {Path(error.cmd[0]).name} {error.cmd[1]} ended with {error.returncode}; its words are above")


if __name__ == "__main__":
    main()

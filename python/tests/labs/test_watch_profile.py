"""`busbw watch --profile`: who is late for each step of a job that goes on, and where ranks are in one that hangs."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

COMMAND = Path(sysconfig.get_path("scripts")) / "busbw"

TRAINING = """
import time
import torch, torch.distributed as dist
import busbw.torch
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
ddp = DistributedDataParallel(torch.nn.Linear(64, 64))
busbw.torch.accelerate(ddp, mode="plain")
for step in range({steps}):
    time.sleep(0.04)
    if dist.get_rank() == 2 and step >= 30:
        time.sleep({late})
    ddp(torch.ones(8, 64)).square().mean().backward()
"""


def _watch(folder: Path, flags: list[str], **training: object) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(TRAINING.format(**training))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "train.py"]
    watch = [COMMAND, "watch", "--profile", "--folder", "seen", *flags, "--", *torchrun]
    return subprocess.Popen(watch, stderr=subprocess.PIPE, text=True, cwd=folder)


def test_who_is_late_for_each_step_is_told_while_the_job_goes_on(tmp_path: Path) -> None:
    with _watch(tmp_path, [], steps=100_000, late=0.02) as job:
        assert job.stderr is not None
        told = next((line for line in job.stderr if "longer per step" in line), "nobody was named")
        running = job.poll() is None
        job.terminate()
        job.stderr.read()
    assert running
    assert told.startswith("busbw watch: Rank 2 takes "), told
    assert (tmp_path / "seen" / "stragglers" / "report.html").is_file()


def test_a_hang_shows_the_collective_that_each_rank_is_in(tmp_path: Path) -> None:
    with _watch(tmp_path, ["--stall", "3s", "--kill"], steps=40, late=1000) as job:
        assert job.stderr is not None
        told = [line for line in job.stderr if line.startswith("busbw watch: ")]
    assert told[0].startswith("busbw watch: Rank 2 "), told
    recordings = [json.loads((tmp_path / "seen" / f"flight_recorder_rank_{rank}").read_text()) for rank in range(4)]
    begun = [
        max(status["last_enqueued_collective"] for status in recording["pg_status"].values())
        for recording in recordings
    ]
    assert begun[2] < min(begun[0], begun[1], begun[3]), begun
    explained = subprocess.run(
        [COMMAND, "explain", "--json", "seen"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert json.loads(explained.stdout)["culprit"]["ranks"] == [2], explained.stdout

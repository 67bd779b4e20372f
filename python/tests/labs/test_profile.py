"""`busbw profile` of a DDP training on CPUs: `busbw.torch` over Gloo writes the events that NCCL would."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

TRAINING = """
import torch, torch.distributed as dist
import busbw.torch
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
ddp = DistributedDataParallel(torch.nn.Linear(256, 1024))
busbw.torch.accelerate(ddp, mode="plain")
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
for step in range(20):
    ddp(torch.ones(8, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
print("trained", flush=True)
"""


def test_what_a_training_on_cpus_costs_is_told(tmp_path: Path) -> None:
    command = Path(sysconfig.get_path("scripts")) / "busbw"
    (tmp_path / "train.py").write_text(TRAINING)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    flags = ["profile", "--json=profile.json", "--trace", "trace.json", "--"]
    ended = subprocess.run(
        [command, *flags, *torchrun], capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("trained") == 2
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["lost"] == 0
    assert [rank["rank"] for rank in profile["ranks"]] == [0, 1]
    gradients = 4 * (256 * 1024 + 1024)
    reduced = [one for one in profile["operations"] if one["bytes"] == gradients]
    # Of 20 steps, the first is DDP's own.
    assert [(one["collective"], one["source"], one["ranks"]) for one in reduced] == [("all_reduce", "torch", 2)]
    assert reduced[0]["count"] in (38, 40)
    slices = [event for event in json.loads((tmp_path / "trace.json").read_text()) if event["ph"] == "X"]
    assert len(slices) == sum(one["count"] for one in profile["operations"])

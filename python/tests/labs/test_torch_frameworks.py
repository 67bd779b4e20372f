"""The programs of docs/frameworks.md under torchrun, and the hook that frameworks register themselves."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist
from test_torch_hook import SMALL_BUCKETS, TWO_HOSTS, assert_same_on_all, model, step
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import busbw.torch
from busbw.torch import Acceleration

PAGE = Path(__file__).parents[3] / "docs/frameworks.md"


def program(heading: str) -> str:
    """The first program below a heading of the page."""
    found = re.search(rf"^## {heading}$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{PAGE} has no program below {heading!r}"
    return found[1]


@pytest.mark.parametrize(
    ("heading", "library"),
    [("Hugging Face Accelerate", "accelerate"), ("Lightning", "lightning"), ("Transformers' Trainer", "transformers")],
)
def test_programs_of_the_page_run(heading: str, library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    (tmp_path / "program.py").write_text(program(heading))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", "2", "program.py"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert ended.returncode == 0, ended.stderr
    report = re.search(r"two-level: (\d+) steps", ended.stdout)
    assert report, ended.stdout
    # 64 samples over two ranks, in batches of 8
    assert int(report[1]) in (4, 8)


def with_hook(rank: int, options: dict[str, Any], directory: str) -> tuple[list[torch.Tensor], Any]:
    """Train as a framework does that registers hook and state itself; go on from a checkpoint in a new model."""
    ddp, state = DistributedDataParallel(model(), **SMALL_BUCKETS), Acceleration(**options)
    ddp.register_comm_hook(state, busbw.torch.hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="begins with the second step"):
        state.report()
    for number in range(4):
        step(ddp, optimizer, rank, number)
    kept = state.state_dict()
    resumed = Acceleration(**options)
    resumed.load_state_dict(kept)
    again = DistributedDataParallel(copy.deepcopy(ddp.module), **SMALL_BUCKETS)
    again.register_comm_hook(resumed, busbw.torch.hook)
    optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
    for number in range(4, 8):
        step(again, optimizer, rank, number)
    assert resumed.reducer.step == kept["step"] + 3
    assert not resumed.reducer.feedback._restored, "every bucket found its own"
    with pytest.raises(RuntimeError, match="3 steps were done"):
        resumed.load_state_dict(kept)
    return [p.detach().clone() for p in again.parameters()], resumed.report()


@pytest.mark.parametrize(
    "options",
    [{"mode": "two-level"}, {"mode": "both", "ratio": 0.2, "topk_min_bytes": 0, "momentum": 0.5}, {"mode": "auto"}],
    ids=lambda options: options["mode"],
)
def test_hook_and_state_train(options: dict[str, Any], tmp_path: Path) -> None:
    answers = ranks.run(4, with_hook, options, str(tmp_path), directory=tmp_path, hosts=TWO_HOSTS)
    assert_same_on_all(answers)
    if options["mode"] != "auto":
        assert answers[0][1].buckets[options["mode"]] > 0


def two_models(rank: int) -> None:
    state = Acceleration("plain")
    for _ in range(2):
        ddp = DistributedDataParallel(model())
        ddp.register_comm_hook(state, busbw.torch.hook)
        step(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1), rank, 0)


def test_a_state_is_for_one_model(tmp_path: Path) -> None:
    for ended in ranks.outcomes(2, two_models, directory=tmp_path):
        assert "this state averages the gradients of another model" in (ended.error or "")


def refuse(rank: int) -> None:
    def refused(ddp: nn.Module, words: str, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error, match=words):
            busbw.torch.accelerate(ddp, mode="plain")  # type: ignore[arg-type]

    twice = DistributedDataParallel(model())
    busbw.torch.accelerate(twice, mode="plain")
    refused(twice, "has a communication hook already, hook, and DDP takes one")
    theirs = DistributedDataParallel(model())
    theirs.register_comm_hook(None, default_hooks.fp16_compress_hook)
    refused(theirs, "has a communication hook already, fp16_compress_hook")
    builtin = DistributedDataParallel(model())
    builtin._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)  # type: ignore[attr-defined]
    refused(builtin, "has a communication hook already, BuiltinCommHookType.ALLREDUCE")
    # As the refusal advises.
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    sharded = fully_shard(model(), mesh=mesh)
    refused(sharded, r"FSDP2 \(fully_shard\) reduce-scatters .* mesh_dim_names=\(\"replicate\", \"shard\"\)", TypeError)
    step(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1), rank, 0)
    plain = "takes a DistributedDataParallel model, not Sequential; wrap it first, and compile it before or after"
    refused(torch.compile(model()), plain, TypeError)


def test_models_with_hooks_sharded_and_plain_ones_are_refused(tmp_path: Path) -> None:
    ranks.run(2, refuse, directory=tmp_path)


def compiled(rank: int) -> tuple[list[torch.Tensor], Any]:
    ddp = torch.compile(DistributedDataParallel(model()), backend="eager")
    acceleration = busbw.torch.accelerate(ddp, mode="two-level")  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(3):
        step(ddp, optimizer, rank, number)
    assert acceleration.report().steps == 3
    return [p.detach().clone() for p in ddp.parameters()], None


def test_compiled_models_train(tmp_path: Path) -> None:
    assert_same_on_all(ranks.run(4, compiled, directory=tmp_path, hosts=TWO_HOSTS))

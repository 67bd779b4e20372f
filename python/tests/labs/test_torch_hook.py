"""`busbw.torch.accelerate` on two and four ranks, and on one to four hosts that the ranks only believe in."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import busbw.torch
from busbw.torch import Acceleration
from busbw.torch import reducer as reducer_module

TWO_HOSTS = ["a", "a", "b", "b"]
SMALL_BUCKETS: dict[str, Any] = {"bucket_cap_mb": 0.002}
"""Several buckets for a small model."""


def model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(9, 31), nn.ReLU(), nn.Linear(31, 17), nn.ReLU(), nn.Linear(17, 3))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 9, generator=generator), torch.randn(8, 3, generator=generator)


def step(ddp: nn.Module, optimizer: torch.optim.Optimizer, rank: int, number: int) -> None:
    inputs, targets = batch(rank, number)
    optimizer.zero_grad()
    nn.functional.mse_loss(ddp(inputs), targets).backward()
    optimizer.step()


def train(
    rank: int, steps: int, options: dict[str, Any] | None, ddp_options: dict[str, Any] | None = None
) -> tuple[list[torch.Tensor], Any]:
    """Train a model; return its parameters and the acceleration's report. Without options: DDP's own all-reduce."""
    ddp = DistributedDataParallel(model(), **{**SMALL_BUCKETS, **(ddp_options or {})})
    acceleration = busbw.torch.accelerate(ddp, **options) if options is not None else None
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(steps):
        step(ddp, optimizer, rank, number)
    report = acceleration.report() if acceleration else None
    return [p.detach().clone() for p in ddp.parameters()], report


def assert_same_on_all(answers: list[tuple[list[torch.Tensor], Any]]) -> list[torch.Tensor]:
    """All ranks must hold the same model to the last bit."""
    first = answers[0][0]
    for parameters, _ in answers[1:]:
        for ours, theirs in zip(first, parameters):
            assert torch.equal(ours, theirs)
    return first


@pytest.fixture(scope="module")
def trained_by_ddp(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[torch.Tensor]]:
    """The model after three steps with DDP's own all-reduce, by number of ranks."""
    directory = tmp_path_factory.mktemp("ddp")
    return {world: assert_same_on_all(ranks.run(world, train, 3, None, directory=directory)) for world in (2, 4)}


@pytest.mark.parametrize(
    ("world", "hosts"),
    [(2, ["a", "a"]), (2, ["a", "b"]), (4, TWO_HOSTS), (4, ["a", "b", "a", "b"]), (4, ["a", "b", "c", "d"])],
)
@pytest.mark.parametrize("mode", ["plain", "two-level"])
def test_lossless_modes_train_as_ddp_does(
    world: int,
    hosts: list[str],
    mode: str,
    trained_by_ddp: dict[int, list[torch.Tensor]],
    tmp_path: Path,
) -> None:
    answers = ranks.run(world, train, 3, {"mode": mode}, directory=tmp_path, hosts=hosts)
    for ours, theirs in zip(assert_same_on_all(answers), trained_by_ddp[world]):
        torch.testing.assert_close(ours, theirs)
    buckets = answers[0][1].buckets
    two_level = mode == "two-level" and world == 4 and len(set(hosts)) == 2
    assert set(buckets) == {"two-level" if two_level else "plain"}


@pytest.mark.parametrize("mode", ["topk", "both"])
@pytest.mark.parametrize("value_dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_compressed_models_stay_equal_on_all_ranks(mode: str, value_dtype: torch.dtype, tmp_path: Path) -> None:
    options = {"mode": mode, "ratio": 0.2, "topk_min_bytes": 0, "value_dtype": value_dtype, "log_every": 1}
    answers = ranks.run(4, train, 6, options, directory=tmp_path, hosts=TWO_HOSTS)
    assert_same_on_all(answers)
    report = answers[0][1]
    assert report.buckets[mode] > 0
    assert report.ratio > 1
    assert 0 < report.error_norm < 1


def residuals_and_sum(rank: int, mode: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reduce one vector three times; return all that was given, all that came out, and what is kept."""
    options = busbw.torch.Options(mode=mode, ratio=0.02, topk_min_bytes=0)  # type: ignore[arg-type]
    reducer = busbw.torch.GradientReducer(dist.group.WORLD, torch.device("cpu"), options)
    reducer.end_step()
    given, out = torch.zeros(1001), torch.zeros(1001)
    for _ in range(3):
        gradient = torch.randn(1001)
        given += gradient
        out += reducer.reduce("bucket", gradient.clone()).wait()
        reducer.end_step()
    kept = reducer.feedback.residual("bucket")
    reducer.close()
    return given, out, kept


def in_pieces(rank: int, mode: str, dtype: torch.dtype) -> None:
    """Hand in a bucket of three pieces and a bit, with an odd number of entries."""
    reducer_module.PIECE_BYTES = 64 * dtype.itemsize
    options = busbw.torch.Options(mode=mode, ratio=0.05, topk_min_bytes=0)  # type: ignore[arg-type]
    reducer = busbw.torch.GradientReducer(dist.group.WORLD, torch.device("cpu"), options)
    for step in range(3):
        everyone = [
            torch.randn(199, generator=torch.Generator().manual_seed(10 * step + r)).to(dtype) for r in range(4)
        ]
        mine = everyone[rank].clone()
        mean = reducer.reduce("bucket", mine).wait()
        assert mean.shape == (199,)
        assert mean.data_ptr() == mine.data_ptr()
        if mode in ("plain", "two-level") or step == 0:
            torch.testing.assert_close(mean, sum(everyone) / 4, rtol=2e-2, atol=2e-2)
        reducer.end_step()
    pieces = [key for key in reducer.state_dict()["buckets"] if "piece" in key]
    assert len(pieces) == (4 if options.compresses else 0)
    assert reducer.report().buckets[mode] == (2 if options.compresses else 3)
    reducer.close()


@pytest.mark.parametrize("mode", ["plain", "two-level", "topk", "both"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_buckets_travel_in_pieces(mode: str, dtype: torch.dtype, tmp_path: Path) -> None:
    ranks.run(4, in_pieces, mode, dtype, directory=tmp_path, hosts=TWO_HOSTS)


@pytest.mark.parametrize("mode", ["topk", "both"])
def test_nothing_is_lost(mode: str, tmp_path: Path) -> None:
    answers = ranks.run(4, residuals_and_sum, mode, directory=tmp_path, hosts=TWO_HOSTS)
    mean = sum(given for given, _, _ in answers) / 4
    if mode == "topk":
        kept = sum(residual for _, _, residual in answers)
    else:  # the shards of the ranks of a host, put together, and added over hosts
        shards = [residual for _, _, residual in answers]
        kept = (torch.cat(shards[:2]) + torch.cat(shards[2:]))[:1001]
    for _, out, _ in answers:
        assert 0 < int((out != 0).sum()) < 1001
        torch.testing.assert_close(out + kept, mean, atol=1e-5, rtol=1e-5)


def interrupted(rank: int, mode: str, resume: bool, directory: str) -> list[torch.Tensor]:
    """Train 6 steps; with `resume`, write a checkpoint after 4 and go on from it in a new model."""
    options = {"mode": mode, "ratio": 0.1, "topk_min_bytes": 0, "momentum": 0.5, "warmup_steps": 3}

    def prepared() -> tuple[DistributedDataParallel, Acceleration, torch.optim.Optimizer]:
        ddp = DistributedDataParallel(model(), **SMALL_BUCKETS)
        return ddp, busbw.torch.accelerate(ddp, **options), torch.optim.SGD(ddp.parameters(), lr=0.1)

    ddp, acceleration, optimizer = prepared()
    for number in range(4):
        step(ddp, optimizer, rank, number)
    if resume:
        file = f"{directory}/{rank}.pt"
        torch.save([ddp.state_dict(), acceleration.state_dict()], file)
        acceleration.close()
        kept = acceleration.state_dict()["buckets"]
        ddp, acceleration, optimizer = prepared()
        weights, hook = torch.load(file, weights_only=True)
        ddp.load_state_dict(weights)
        acceleration.load_state_dict(hook)
        restored = acceleration.state_dict()["buckets"]
        assert kept
        assert kept.keys() == restored.keys()
        for key, tensors in kept.items():
            for name, tensor in tensors.items():
                assert torch.equal(tensor, restored[key][name])
        # DDP orders its buckets after its first step, in which nothing is compressed: from then on
        # what was restored is in use.
        step(ddp, optimizer, rank, 4)
        step(ddp, optimizer, rank, 5)
        assert acceleration.report().buckets.get(mode, 0) > 0
        used = acceleration.reducer.feedback
        assert not used._restored, "every bucket found its own"
        with pytest.raises(ValueError, match="rank"):
            acceleration.load_state_dict({**hook, "rank": 17})
        with pytest.raises(ValueError, match="mode"):
            acceleration.load_state_dict({**hook, "mode": "plain"})
    return [p.detach().clone() for p in ddp.parameters()]


@pytest.mark.parametrize("mode", ["topk", "both"])
def test_checkpoints_keep_residuals(mode: str, tmp_path: Path) -> None:
    answers = ranks.run(4, interrupted, mode, True, str(tmp_path), directory=tmp_path, hosts=TWO_HOSTS)
    assert_same_on_all([(parameters, None) for parameters in answers])


def accumulate(rank: int, options: dict[str, Any] | None) -> tuple[list[torch.Tensor], None]:
    ddp = DistributedDataParallel(model(), **SMALL_BUCKETS)
    if options is not None:
        busbw.torch.accelerate(ddp, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(3):
        optimizer.zero_grad()
        with ddp.no_sync():
            inputs, targets = batch(rank, number)
            nn.functional.mse_loss(ddp(inputs), targets).backward()
        inputs, targets = batch(rank, 50 + number)
        nn.functional.mse_loss(ddp(inputs), targets).backward()
        optimizer.step()
    return [p.detach().clone() for p in ddp.parameters()], None


def test_gradients_accumulate_without_communication(tmp_path: Path) -> None:
    expected = assert_same_on_all(ranks.run(4, accumulate, None, directory=tmp_path))
    answers = ranks.run(4, accumulate, {"mode": "two-level"}, directory=tmp_path, hosts=TWO_HOSTS)
    torch.testing.assert_close(assert_same_on_all(answers), expected)


class Branching(nn.Module):
    """Uses one of two layers: parameters of the other get no gradient on that rank."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList([nn.Linear(9, 3), nn.Linear(9, 3)])

    def forward(self, inputs: torch.Tensor, which: int) -> torch.Tensor:
        answer: torch.Tensor = self.layers[which](inputs)
        return answer


def branch(rank: int, options: dict[str, Any] | None) -> tuple[list[torch.Tensor], None]:
    ddp = DistributedDataParallel(Branching(), find_unused_parameters=True, **SMALL_BUCKETS)
    if options is not None:
        busbw.torch.accelerate(ddp, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(3):
        inputs, targets = batch(rank, number)
        optimizer.zero_grad()
        nn.functional.mse_loss(ddp(inputs, rank % 2), targets).backward()
        optimizer.step()
    return [p.detach().clone() for p in ddp.parameters()], None


@pytest.mark.parametrize("mode", ["plain", "two-level"])
def test_unused_parameters(mode: str, tmp_path: Path) -> None:
    expected = assert_same_on_all(ranks.run(4, branch, None, directory=tmp_path))
    answers = ranks.run(4, branch, {"mode": mode}, directory=tmp_path, hosts=TWO_HOSTS)
    torch.testing.assert_close(assert_same_on_all(answers), expected)


def mixed(rank: int, options: dict[str, Any] | None) -> tuple[list[torch.Tensor], None]:
    """Layers of three types; DDP gives each type buckets of its own."""
    torch.manual_seed(5)
    layers = nn.ModuleList([nn.Linear(9, 9).to(t) for t in (torch.float32, torch.float64, torch.bfloat16)])

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x.to(next(layer.parameters()).dtype))
            return x.float()

    ddp = DistributedDataParallel(Chain(), **SMALL_BUCKETS)
    if options is not None:
        busbw.torch.accelerate(ddp, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(3):
        optimizer.zero_grad()
        ddp(batch(rank, number)[0]).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in ddp.parameters()], None


def test_mixed_dtypes(tmp_path: Path) -> None:
    expected = assert_same_on_all(ranks.run(4, mixed, None, directory=tmp_path))
    answers = ranks.run(4, mixed, {"mode": "two-level"}, directory=tmp_path, hosts=TWO_HOSTS)
    for ours, theirs in zip(assert_same_on_all(answers), expected):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    compressed = {"mode": "both", "topk_min_bytes": 0, "ratio": 0.05}
    assert_same_on_all(ranks.run(4, mixed, compressed, directory=tmp_path, hosts=TWO_HOSTS))


def die(rank: int, mode: str) -> None:
    ddp = DistributedDataParallel(model(), **SMALL_BUCKETS)
    busbw.torch.accelerate(ddp, mode=mode, topk_min_bytes=0)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(4):
        if rank == 3 and number == 2:
            import os

            os._exit(17)
        step(ddp, optimizer, rank, number)


@pytest.mark.parametrize("mode", ["both"])
def test_a_rank_that_dies_ends_the_others(mode: str, tmp_path: Path) -> None:
    ended = ranks.outcomes(4, die, mode, directory=tmp_path, hosts=TWO_HOSTS, timeout_s=10)
    assert ended[3].exitcode == 17
    for outcome in ended[:3]:
        assert outcome.error is not None, "a rank went on without its peer"
        assert "rank 3 on host b (process " in outcome.error
        assert "died without a word" in outcome.error


def refuse(rank: int) -> None:
    def refused(module: nn.Module, words: str, error: type[Exception] = TypeError, **options: Any) -> None:
        with pytest.raises(error, match=words):
            busbw.torch.accelerate(module, **{"mode": "plain", **options})  # type: ignore[arg-type]

    class FullyShardedDataParallel(nn.Module):
        pass

    refused(FullyShardedDataParallel(), "FSDP")
    refused(model(), "takes a DistributedDataParallel model, not Sequential")
    sparse = nn.Sequential(nn.EmbeddingBag(10, 3, sparse=True))
    refused(DistributedDataParallel(sparse), "0 has sparse gradients")
    refused(
        DistributedDataParallel(model()), "same number of ranks on every host, here are 3, 1", ValueError, mode="both"
    )
    refused(DistributedDataParallel(model()), "ratio is a share", ValueError, ratio=1.5)
    refused(DistributedDataParallel(model()), "value_dtype", ValueError, value_dtype=torch.int8)


def test_refusals(tmp_path: Path) -> None:
    ranks.run(4, refuse, directory=tmp_path, hosts=["a", "a", "a", "b"])


def scaled(rank: int) -> None:
    """AMP: infinite gradients reach every rank once, and what is kept follows the scale."""
    ddp = DistributedDataParallel(model(), **SMALL_BUCKETS)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    acceleration = busbw.torch.accelerate(
        ddp, mode="topk", ratio=0.05, topk_min_bytes=0, grad_scaler=scaler, value_dtype=torch.float16
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    found = []
    for number in range(5):
        inputs, targets = batch(rank, number)
        if number == 2 and rank == 1:
            inputs[0, 0] = float("inf")
        optimizer.zero_grad()
        scaler.scale(nn.functional.mse_loss(ddp(inputs), targets)).backward()
        before = copy.deepcopy(acceleration.state_dict()["buckets"])
        scaler.step(optimizer)
        scale = scaler.get_scale()
        scaler.update()
        found.append(scaler.get_scale() < scale)
        for tensors in before.values():
            assert bool(tensors["residual"].isfinite().all())
    assert found == [False, False, True, False, False]
    assert all(bool(p.isfinite().all()) for p in ddp.parameters())


def test_amp_skips_one_step_on_all_ranks(tmp_path: Path) -> None:
    ranks.run(2, scaled, directory=tmp_path, hosts=["a", "b"])


def in_pairs(rank: int, mode: str) -> tuple[list[torch.Tensor], None]:
    """Two data-parallel groups of two ranks each, as beside tensor parallelism; then a group of all."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = groups[rank // 2]
    ddp = DistributedDataParallel(model(), process_group=own, **SMALL_BUCKETS)
    busbw.torch.accelerate(ddp, mode=mode, topk_min_bytes=0, ratio=0.1)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(3):
        step(ddp, optimizer, rank, number)
    everyone = dist.new_group()
    total = torch.ones(1)
    dist.all_reduce(total, group=everyone)
    assert total.item() == 4
    return [p.detach().clone() for p in ddp.parameters()], None


@pytest.mark.parametrize("mode", ["plain", "topk"])
def test_groups_smaller_than_the_job(mode: str, tmp_path: Path) -> None:
    answers = ranks.run(4, in_pairs, mode, directory=tmp_path, hosts=["a", "b", "a", "b"])
    first, second = assert_same_on_all(answers[:2]), assert_same_on_all(answers[2:])
    assert not torch.equal(first[0], second[0])

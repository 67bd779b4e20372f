"""`busbw.horovod` on four ranks of two hosts, and its start under the launchers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from torch import nn

import busbw.horovod as hvd
from busbw.horovod import job
from busbw.horovod.light import Light
from busbw.torch.layout import HostLayout

TWO_HOSTS = ["a", "a", "b", "b"]


def initialized(function: Callable[[int], Any]) -> Any:
    hvd.init()
    try:
        return function(hvd.rank())
    finally:
        hvd.shutdown()


def places(rank: int) -> Any:
    with pytest.raises(ValueError, match="call init"):
        hvd.size()
    assert not hvd.is_initialized()
    return initialized(
        lambda _: (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
    )


def test_places(tmp_path: Path) -> None:
    answers = ranks.run(4, places, directory=tmp_path, hosts=["a", "b", "a", "a"])
    assert answers == [(0, 4, 0, 3, 0, 2), (1, 4, 0, 1, 1, 2), (2, 4, 1, 3, 0, 1), (3, 4, 2, 3, 0, 1)]


def reductions(rank: int) -> None:
    def check(rank: int) -> None:
        own = torch.arange(6.0).view(2, 3) + rank
        kept = own.clone()
        every = torch.stack([torch.arange(6.0).view(2, 3) + r for r in range(4)])
        assert torch.equal(hvd.allreduce(own), every.mean(0))
        assert torch.equal(hvd.allreduce(own, average=False), every.sum(0))
        assert torch.equal(hvd.allreduce(own, op=hvd.Min), every.amin(0))
        assert torch.equal(hvd.allreduce(own, op=hvd.Max), every.amax(0))
        assert torch.equal(hvd.allreduce(own, op=hvd.Product), every.prod(0))
        assert torch.equal(hvd.allreduce(own.t(), op=hvd.Sum), every.sum(0).t()), "not contiguous"
        assert torch.equal(hvd.allreduce(own, prescale_factor=2.0, postscale_factor=0.5, op=hvd.Sum), every.sum(0))
        assert hvd.allreduce(own, compression=hvd.Compression.fp16).dtype == torch.float32
        assert torch.equal(own, kept), "not changed"
        assert torch.equal(hvd.allreduce(torch.tensor([7 + rank])), torch.tensor([8])), "8.5 towards zero"
        assert torch.equal(hvd.allreduce(torch.tensor(float(rank))), torch.tensor(1.5)), "no dimension"
        assert hvd.allreduce_(own) is own
        assert torch.equal(own, every.mean(0))
        grouped = hvd.grouped_allreduce([kept, kept.int()], op=hvd.Sum)
        assert torch.equal(grouped[0], every.sum(0))
        assert torch.equal(grouped[1], every.sum(0).int())
        for bad in ({"average": True, "op": hvd.Sum}, {"process_set": hvd.ProcessSet([0])}):
            with pytest.raises(ValueError, match=r"same|not added"):
                hvd.allreduce(own, **bad)  # type: ignore[arg-type]
        with pytest.raises(NotImplementedError, match="Adasum"):
            hvd.allreduce(own, op=hvd.Adasum)

    initialized(check)


def test_reductions(tmp_path: Path) -> None:
    ranks.run(4, reductions, directory=tmp_path)


def exchanges(rank: int) -> None:
    def check(rank: int) -> None:
        rows = torch.full((rank, 2), float(rank))
        assert torch.equal(hvd.allgather(rows)[:, 0], torch.tensor([1.0, 2, 2, 3, 3, 3]))
        assert torch.equal(hvd.allgather(torch.tensor(rank)), torch.arange(4))
        assert torch.equal(hvd.broadcast(torch.tensor([rank]), 2), torch.tensor([2]))
        strided = torch.full((2, 2), float(rank)).t()[:, :1]
        hvd.broadcast_(strided, 3)
        assert torch.equal(strided, torch.full((2, 1), 3.0))
        with pytest.raises(ValueError, match="rank 9"):
            hvd.broadcast(torch.zeros(1), 9)
        assert torch.equal(hvd.alltoall(torch.arange(4) + 10 * rank), torch.tensor([0, 10, 20, 30]) + rank)
        got, counts = hvd.alltoall(torch.full((6,), rank), splits=[0, 1, 2, 3])
        assert counts.tolist() == [rank] * 4
        assert got.tolist() == [r for r in range(4) for _ in range(rank)]
        with pytest.raises(ValueError, match="do not divide"):
            hvd.alltoall(torch.arange(5))
        scattered = hvd.reducescatter(torch.arange(6.0) + rank, op=hvd.Sum)
        assert scattered.tolist() == [[6.0, 10.0], [14.0, 18.0], [22.0], [26.0]][rank]
        assert hvd.broadcast_object({"rank": rank}, 1) == {"rank": 1}
        assert hvd.allgather_object(rank * "x") == ["", "x", "xx", "xxx"]
        handles = [hvd.allreduce_async(torch.tensor([float(i)]), op=hvd.Sum) for i in range(5)]
        assert [hvd.synchronize(h).item() for h in handles] == [0, 4, 8, 12, 16]
        with pytest.raises(ValueError, match="unknown"):
            hvd.synchronize(handles[0])
        handle = hvd.allreduce_async(torch.ones(1))
        hvd.barrier()
        assert hvd.poll(handle), "what came before the barrier has ended"
        assert 0 <= hvd.join() < 4

    initialized(check)


def test_exchanges(tmp_path: Path) -> None:
    ranks.run(4, exchanges, directory=tmp_path)


def sets(rank: int) -> None:
    even, odd = hvd.ProcessSet([2, 0]), hvd.ProcessSet([1, 3])
    hvd.init(process_sets=[even])
    hvd.add_process_set(odd)
    own = even if hvd.rank() % 2 == 0 else odd
    assert own.included()
    assert own.rank() == hvd.rank() // 2
    assert hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum, process_set=own).item() == 2 + 2 * (
        hvd.rank() % 2
    )
    assert hvd.allgather_object(hvd.rank(), process_set=own) == own.ranks
    with pytest.raises(ValueError, match="is not in"):
        hvd.allreduce(torch.zeros(1), process_set=odd if own is even else even)
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set([0, 2])
    with pytest.raises(ValueError, match="from 0 to 3"):
        hvd.add_process_set([0, 9])
    assert hvd.remove_process_set(odd)
    assert not hvd.remove_process_set(hvd.global_process_set)
    hvd.shutdown()


def test_process_sets(tmp_path: Path) -> None:
    ranks.run(4, sets, directory=tmp_path)


def network() -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 2))


def optimize(rank: int, passes: int, settings: dict[str, Any]) -> tuple[list[torch.Tensor], dict[str, int]]:
    """Train with four times as many rows as one rank has; return the model and how buckets travelled."""
    hvd.init()
    model = network()
    for parameter in model.parameters():
        parameter.data.add_(hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), backward_passes_per_step=passes, **settings)
    assert isinstance(optimizer, torch.optim.SGD)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(4):
        optimizer.zero_grad()
        for part in range(passes):
            inputs, targets = data(step)
            share = slice(hvd.rank() * passes + part, None, 4 * passes)
            nn.functional.mse_loss(model(inputs[share]), targets[share]).div(passes).backward()
        if step == 2:
            with pytest.raises(AssertionError, match="on their way"):
                optimizer.zero_grad()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        scheduler.step()
    buckets = next(iter(optimizer._averaging._reducers.values())).report().buckets
    hvd.shutdown()
    return [p.detach() for p in model.parameters()], buckets


def data(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 6, generator=generator), torch.randn(16, 2, generator=generator)


@pytest.fixture(scope="module")
def alone() -> list[torch.Tensor]:
    """The same training in one process, over all rows at once."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(4):
        optimizer.zero_grad()
        inputs, targets = data(step)
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        scheduler.step()
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize(
    ("environment", "passes", "settings", "way"),
    [
        ({}, 1, {}, "plain"),
        ({}, 2, {"gradient_predivide_factor": 2.0}, "plain"),
        ({"LIGHT_2D_ALLREDUCE": "1"}, 1, {}, "two-level"),
        ({"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "1"}, 1, {}, "plain"),
        ({"LIGHT_2D_ALLREDUCE": "1", "LIGHT_HIERARCHICAL_THRESHOLD": "99"}, 1, {}, "plain"),
        ({"LIGHT_TOPK_ALLREDUCE": "1"}, 1, {}, "plain"),
        ({"LIGHT_2D_ALLREDUCE": "1"}, 1, {"compression": hvd.Compression.fp16}, "two-level"),
    ],
)
def test_four_ranks_train_as_one_process(
    environment: dict[str, str],
    passes: int,
    settings: dict[str, Any],
    way: str,
    alone: list[torch.Tensor],
    tmp_path: Path,
) -> None:
    answers = ranks.run(4, optimize, passes, settings, directory=tmp_path, hosts=TWO_HOSTS, environment=environment)
    tolerance = 1e-2 if settings.get("compression") else 1e-5
    for parameters, buckets in answers:
        torch.testing.assert_close(parameters, alone, rtol=tolerance, atol=tolerance)
        assert set(buckets) == {way}


@pytest.mark.parametrize(("two_level", "way"), [("0", "topk"), ("1", "both")])
def test_topk_by_variables(two_level: str, way: str, tmp_path: Path) -> None:
    environment = {
        "LIGHT_TOPK_ALLREDUCE": "1",
        "LIGHT_TOPK_THRESHOLD": "64",
        "LIGHT_TOPK_RATIO": "0.1",
        "LIGHT_TOPK_FP16": "1",
        "LIGHT_2D_ALLREDUCE": two_level,
    }
    answers = ranks.run(4, optimize, 1, {}, directory=tmp_path, hosts=TWO_HOSTS, environment=environment)
    for parameters, buckets in answers:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(parameters, answers[0][0]))
        assert buckets[way] == 3


def unequal(rank: int) -> None:
    """Layers that some ranks do not use, and more backward passes than were told."""

    def check(rank: int) -> None:
        layers = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])
        hvd.broadcast_parameters(layers.state_dict())
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=1.0), layers.named_parameters())
        before = layers[1].weight.detach().clone()
        layers[rank % 2](torch.ones(1, 3)).sum().backward()
        optimizer.step()
        torch.testing.assert_close(layers[1].weight, before - 0.5)
        layers[0](torch.ones(1, 3)).sum().backward()
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            layers[0](torch.ones(1, 3)).sum().backward()

        wide = nn.Linear(3, 2 + rank)
        with pytest.raises(ValueError, match=r"rank 0 has .'weight', .2, 3.*rank 1 has .'weight', .3, 3"):
            hvd.DistributedOptimizer(torch.optim.SGD([wide.weight], lr=1.0), [("weight", wide.weight)])

    initialized(check)


def test_unequal_gradients(tmp_path: Path) -> None:
    ranks.run(2, unequal, directory=tmp_path)


def states(rank: int) -> Any:
    def check(rank: int) -> Any:
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (rank + 1), betas=(0.8, 0.9))
        if rank == 0:
            model(torch.ones(1, 6)).sum().backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        return optimizer.state_dict()

    return initialized(check)


def test_optimizer_states_are_broadcast(tmp_path: Path) -> None:
    first, second = ranks.run(2, states, directory=tmp_path)
    assert first["param_groups"] == second["param_groups"]
    assert len(first["state"]) == 4
    torch.testing.assert_close(first["state"], second["state"], rtol=0, atol=0)


def test_optimizer_arguments() -> None:
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    parameter = nn.Parameter(torch.zeros(1))
    for words, arguments in (
        ("twice: a", {"named_parameters": [("a", parameter), ("a", parameter)]}),
        ("lacks 4 of the optimizer's 4", {"named_parameters": [("a", parameter)]}),
        ("Average or Sum, not Min", {"op": hvd.Min}),
        ("at least 1", {"backward_passes_per_step": 0}),
        ("gradient_predivide_factor is for op=Average", {"gradient_predivide_factor": 2.0, "op": hvd.Sum}),
    ):
        with pytest.raises(ValueError, match=words):
            hvd.DistributedOptimizer(optimizer, **arguments)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)


def test_absent_names_say_what_to_use() -> None:
    with pytest.raises(AttributeError, match="convert_sync_batchnorm"):
        hvd.SyncBatchNorm  # noqa: B018
    assert all(hasattr(hvd, name) for name in hvd.__all__)


def test_light_defaults_are_the_field_reports() -> None:
    light = Light.from_environment({"PATH": "/bin"})
    assert (light.two_level, light.intra_size, light.two_level_max_bytes) == (False, 8, 1073741824)
    assert (light.topk, light.topk_ratio, light.topk_min_bytes, light.topk_fp16) == (False, 0.01, 1048576, False)
    assert light.mode == "plain"


def test_light_variables() -> None:
    light = Light.from_environment({"LIGHT_2D_ALLREDUCE": "1", "LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_FP16": "1"})
    options = light.options()
    assert (options.mode, options.value_dtype, options.intra_size) == ("both", torch.float16, None)
    assert Light.from_environment({"LIGHT_INTRA_SIZE": "4"}).options().intra_size == 4
    with pytest.warns(UserWarning, match="LIGHT_TOPK_RATE is unknown and ignored; known are LIGHT_2D_ALLREDUCE"):
        Light.from_environment({"LIGHT_TOPK_RATE": "1"})
    for variable, value in (
        ("LIGHT_2D_ALLREDUCE", "yes"),
        ("LIGHT_INTRA_SIZE", "0"),
        ("LIGHT_TOPK_RATIO", "2"),
        ("LIGHT_TOPK_THRESHOLD", "1M"),
    ):
        with pytest.raises(ValueError, match=f"{variable}='{value}'"):
            Light.from_environment({variable: value})


def test_a_timeout_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "soon")
    with pytest.raises(ValueError, match="HOROVOD_GLOO_TIMEOUT_SECONDS='soon': a number of seconds"):
        hvd.init()


def leave(rank: int) -> None:
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
    if rank == 0:  # an operation in which the other takes no part
        hvd.allreduce_async(torch.ones(1))
    job._leave()
    assert hvd.is_initialized() == (rank == 0), "shut down where nothing was under way; no wait where something was"


def test_a_script_that_fails_does_not_wait_for_others(tmp_path: Path) -> None:
    ranks.run(2, leave, directory=tmp_path)


EIGHT = [str(rank // 4) for rank in range(8)]


@pytest.mark.parametrize(
    ("environment", "hosts", "says"),
    [
        ({}, EIGHT, None),
        (
            {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_RATIO": "0.1"},
            EIGHT,
            "two-level all-reduce and top-k all-reduce on 2 x 4 ranks, by LIGHT_2D_ALLREDUCE=1 LIGHT_TOPK_ALLREDUCE=1 "
            "LIGHT_TOPK_RATIO=0.1",
        ),
        (
            {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "2"},
            EIGHT,
            "two-level all-reduce on 4 x 2 ranks, by LIGHT_2D_ALLREDUCE=1 LIGHT_INTRA_SIZE=2",
        ),
        (
            {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "8"},
            ["a", "b"],
            "plain all-reduce on 1 x 2 ranks; without effect: LIGHT_2D_ALLREDUCE=1 LIGHT_INTRA_SIZE=8",
        ),
        (
            {"LIGHT_TOPK_ALLREDUCE": "0", "LIGHT_TOPK_RATIO": "0.1"},
            ["a", "a", "b"],
            "plain all-reduce on 2 x ? ranks, by LIGHT_TOPK_ALLREDUCE=0; without effect: LIGHT_TOPK_RATIO=0.1",
        ),
    ],
)
def test_what_light_variables_do_is_said_in_a_line(
    environment: dict[str, str], hosts: list[str], says: str | None
) -> None:
    effect = Light.from_environment(environment).effect(HostLayout.from_names(hosts))
    assert effect == (says and f"busbw.horovod: {says}")

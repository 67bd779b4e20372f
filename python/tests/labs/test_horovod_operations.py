"""What Horovod's own tests ask of its operations (docs/horovod.md has their rate), on ranks of one host."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from torch import nn
from torch.nn.functional import embedding

import busbw.horovod as hvd

RANKS = 3


def initialized(rank: int, function: Callable[[int], Any]) -> Any:
    hvd.init()
    try:
        return function(rank)
    finally:
        hvd.shutdown()


def run(function: Callable[[int], Any], directory: Path, world: int = RANKS) -> list[Any]:
    return ranks.run(world, initialized, function, directory=directory)


def differing(rank: int) -> None:
    """Each is an error on all ranks, which names the tensor and both sides; and then all goes on."""
    last = rank == RANKS - 1
    long, whole = torch.ones(5 if last else 4), torch.ones(4).to(torch.int32 if last else torch.float32)
    table = torch.ones(3, 2) if last else torch.ones(2, 3)
    for operation, both in (
        (lambda: hvd.allreduce(long, name="w"), ("allreduce Average of w: float32 [4]", "float32 [5]")),
        (lambda: hvd.allreduce(whole, name="w"), ("of w: float32 [4]", "of w: int32 [4]")),
        (lambda: hvd.allreduce(table, name="w"), ("[2, 3]", "[3, 2]")),
        (lambda: hvd.allreduce(torch.ones(1), name="w", op=hvd.Max if last else hvd.Min), ("Min of w", "Max of w")),
        (lambda: hvd.allreduce(torch.ones(1), prescale_factor=1.0 + last), ("Average of", "prescaled by 2.0 of")),
        (lambda: hvd.grouped_allreduce([long, whole]), ("float32 [4] and float32 [4]", "float32 [5] and int32 [4]")),
        (lambda: hvd.allgather(table, name="w"), ("allgather of w: float32 [any, 3]", "[any, 2]")),
        (lambda: hvd.broadcast(torch.ones(1), rank, name="w"), ("from rank 0", "from rank 1")),
        (lambda: hvd.broadcast(whole, 0, name="w"), ("broadcast of w: float32", "broadcast of w: int32")),
        (lambda: hvd.alltoall(torch.ones(RANKS, 1 + last), name="w"), ("w: float32 [any, 1]", "[any, 2]")),
        (lambda: hvd.reducescatter(whole, name="w"), ("reducescatter Average of w: float32 [4]", "int32 [4]")),
        (lambda: hvd.allreduce(torch.ones(1), name=f"w{rank}"), ("of w0: ", "of w1: ")),
    ):
        with pytest.raises(hvd.HorovodInternalError, match="ask for different operations") as told:
            operation()
        assert all(side in str(told.value) for side in both), f"{both}: {told.value}"
        assert "died" not in str(told.value)
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [RANKS] * 3, "the next works"


def test_ranks_that_differ_are_told_so_and_go_on(tmp_path: Path) -> None:
    run(differing, tmp_path)


def unable(rank: int) -> None:
    """What no rank can do is refused before anything is sent."""
    for error, operation in (
        (ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=hvd.Max)),
        (ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.uint16))),
        (ValueError, lambda: hvd.reducescatter(torch.ones(RANKS, dtype=torch.uint16))),
        (ValueError, lambda: hvd.reducescatter(torch.tensor(1.0))),
        (ValueError, lambda: hvd.grouped_reducescatter([torch.ones(3), torch.tensor(1.0)])),
        (ValueError, lambda: hvd.alltoall(torch.ones(RANKS), splits=torch.ones(RANKS))),
        (ValueError, lambda: hvd.grouped_allreduce_async([])),
        (NotImplementedError, lambda: hvd.reducescatter(torch.ones(3), op=hvd.Adasum)),
    ):
        with pytest.raises(error, match=r"cannot be reduced by|no rows|whole numbers|no tensor|not Adasum"):
            operation()
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [RANKS] * 3, "the next works"


def test_what_no_rank_can_do_poisons_nothing(tmp_path: Path) -> None:
    run(unable, tmp_path)


def typed(rank: int) -> None:
    """Types that Gloo does not know travel too; whole numbers that are scaled stay whole."""
    for dtype in (torch.int16, torch.complex64, torch.bool, torch.bfloat16, torch.uint8):
        own = torch.tensor([[rank, 1]]).to(dtype)
        every = torch.tensor([[other, 1] for other in range(RANKS)]).to(dtype)
        assert torch.equal(hvd.allgather(own), every), dtype
        assert torch.equal(hvd.broadcast(own, 1), every[1:2]), dtype
        assert torch.equal(hvd.broadcast(own[0, 0], 2), every[2, 0]), dtype
        assert torch.equal(hvd.alltoall(own.expand(RANKS, 2)), every), dtype
    for dtype in (torch.int16, torch.int32, torch.int64, torch.float16, torch.complex64):
        own = torch.arange(6).to(dtype)
        total = own * RANKS
        mine = slice(2 * rank, 2 * rank + 2)
        halves = (torch.arange(6) * 0.5).to(dtype)
        for result, expected in (
            (hvd.allreduce(own, op=hvd.Sum), total),
            (hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5), halves * RANKS),
            (hvd.allreduce(own, op=hvd.Sum, postscale_factor=0.5), (torch.arange(6) * RANKS * 0.5).to(dtype)),
            (hvd.reducescatter(own, op=hvd.Sum), total[mine]),
            (hvd.reducescatter(own, op=hvd.Sum, prescale_factor=0.5), halves[mine] * RANKS),
            (hvd.reducescatter(own, op=hvd.Average), own[mine]),
            (hvd.allreduce(own), own),
        ):
            assert result.dtype == dtype
            assert torch.equal(result, expected), f"{dtype}: {result} {expected}"


def test_types(tmp_path: Path) -> None:
    run(typed, tmp_path)


def grouped(rank: int) -> None:
    own = [torch.full((rank, 2), float(rank)), torch.tensor([rank])]
    rows, numbers = hvd.grouped_allgather(own)
    assert rows[:, 0].tolist() == [1.0, 2.0, 2.0]
    assert numbers.tolist() == [0, 1, 2]
    long, short = hvd.grouped_reducescatter([torch.arange(6.0), torch.arange(3)], op=hvd.Sum)
    assert long.tolist() == [6.0 * rank, 6.0 * rank + 3]
    assert short.tolist() == [3 * rank]
    assert hvd.synchronize(hvd.grouped_allgather_async(own))[1].tolist() == [0, 1, 2]
    assert hvd.synchronize(hvd.grouped_reducescatter_async([torch.ones(3)]))[0].tolist() == [1.0]


def test_grouped_operations(tmp_path: Path) -> None:
    run(grouped, tmp_path)


def carrying(rank: int) -> None:
    """The gradient of each result, for gradients that differ among ranks: as horovod/torch/mpi_ops.py defines it."""
    weight = float(rank + 1)
    total, mean = 6.0, 2.0
    for operation, expected in (
        (lambda x: hvd.allreduce(x, op=hvd.Sum), total),
        (lambda x: hvd.allreduce(x), mean),
        (lambda x: hvd.allreduce(x, op=hvd.Sum, postscale_factor=0.5), total / 2),
        (lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16), mean),
        (lambda x: hvd.grouped_allreduce([x, x.detach()], op=hvd.Sum)[0], total),
        (lambda x: hvd.allgather(x), mean),
        (lambda x: hvd.grouped_allgather([x.detach(), x])[1], mean),
        (lambda x: hvd.broadcast(x, 1), mean if rank == 1 else 0.0),
        (lambda x: hvd.alltoall(x), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]),
        (lambda x: hvd.alltoall(x, splits=[1, 2, 3])[0], [1.0, 2.0, 2.0, 3.0, 3.0, 3.0]),
        (lambda x: hvd.reducescatter(x, op=hvd.Sum), [3.0, 3.0, 6.0, 6.0, 9.0, 9.0]),
        (lambda x: hvd.grouped_reducescatter([x])[0], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]),
    ):
        own = torch.ones(6, requires_grad=True)
        (operation(own).sum() * weight).backward()
        assert own.grad is not None
        assert own.grad.tolist() == (expected if isinstance(expected, list) else [expected] * 6)
    scalar = torch.tensor(1.0, requires_grad=True)
    hvd.allgather(scalar).sum().backward()
    assert scalar.grad is not None
    assert scalar.grad.item() == 1.0
    assert not hvd.allreduce(torch.ones(2)).requires_grad


def test_gradients_flow_through_results(tmp_path: Path) -> None:
    run(carrying, tmp_path)


def named_twice(rank: int) -> None:
    """The second operation of a name is refused at once, while the first waits for the other ranks."""
    for begin in (
        lambda: hvd.allreduce_async(torch.ones(2), name="w"),
        lambda: hvd.allgather_async(torch.ones(2), name="w"),
        lambda: hvd.broadcast_async(torch.ones(2), 0, name="w"),
        lambda: hvd.reducescatter_async(torch.ones(3), name="w"),
        lambda: hvd.alltoall_async(torch.ones(3), name="w"),
    ):
        if rank == 0:
            handle = begin()
            with pytest.raises(ValueError, match=r"of w is still under way"):
                begin()
            assert not hvd.poll(handle), "the others have not begun"
            open_gate()
        else:
            wait_for_gate()
            handle = begin()
        hvd.synchronize(handle)
        hvd.synchronize(begin())


def gate() -> Any:
    store = torch.distributed.distributed_c10d._get_default_store()
    place = hvd.rank()
    return store, store.add(f"gate {place}", 1)


def open_gate() -> None:
    store, turn = gate()
    store.set(f"open {turn}", "")


def wait_for_gate() -> None:
    store, turn = gate()
    store.wait([f"open {turn}"])


def test_duplicate_names_are_refused_at_once(tmp_path: Path) -> None:
    run(named_twice, tmp_path)


def joined(rank: int) -> None:
    """Rank r has r batches: the others' sums go on with zeros of those that have joined."""
    for batch in range(rank):
        others = RANKS - 1 - batch
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [others] * 2
        assert hvd.allreduce(torch.tensor(6)).item() == 6 * others // RANKS
        with pytest.raises(hvd.HorovodInternalError, match="no more data"):
            hvd.allgather(torch.ones(2))
    assert hvd.join() in range(1, RANKS), "rank 0 does not come last"
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [RANKS] * 2


def test_join_with_uneven_data(tmp_path: Path) -> None:
    run(joined, tmp_path)


def joined_in_training(rank: int) -> float:
    model = nn.Linear(1, 1, bias=False)
    hvd.broadcast_parameters(model.state_dict())
    first = model.weight.item()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    for _ in range(1 + rank):
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    return first - model.weight.item()


def test_optimizers_go_on_after_some_have_joined(tmp_path: Path) -> None:
    """Three ranks, then two, then one: steps of 3/3, 2/3 and 1/3."""
    assert run(joined_in_training, tmp_path) == [pytest.approx(2.0, abs=1e-5)] * RANKS


def sparse(rank: int) -> list[list[float]]:
    own = torch.sparse_coo_tensor([[rank, 3]], [[1.0, 2.0], [3.0, 4.0]], (5, 2))
    for op in (hvd.Average, hvd.Sum):
        reduced = hvd.sparse_allreduce_async(own, "table", op)()
        torch.testing.assert_close(reduced.to_dense(), hvd.allreduce(own.to_dense(), op=op))
    results = []
    for as_dense in (False, True):
        table, scale = nn.Parameter(torch.zeros(5, 2)), nn.Parameter(torch.ones(2))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([table, scale], lr=1.0), [("table", table), ("scale", scale)], sparse_as_dense=as_dense
        )
        for _ in range(2):
            optimizer.zero_grad()
            (embedding(torch.tensor([rank, 3]), table, sparse=True) + scale).sum().backward()
            optimizer.step()
            assert table.grad is not None
            assert table.grad.is_sparse, "as optimizers for sparse gradients want it"
        results.append(table.detach().flatten().tolist() + scale.tolist())
    return results


def test_sparse_gradients(tmp_path: Path) -> None:
    third = -2.0 / RANKS
    expected = [third] * 6 + [-2.0] * 2 + [0.0] * 2 + [-3.0] * 2
    for answer in run(sparse, tmp_path):
        assert answer == [pytest.approx(expected)] * 2


def optimizer_habits(rank: int) -> None:
    model = nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match=r"called without optimizer.skip_synchronize"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()


def test_what_scripts_expect_of_optimizers(tmp_path: Path) -> None:
    run(optimizer_habits, tmp_path, world=2)


def again(rank: int, port: int) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    for turn in range(3):
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2, turn
        hvd.shutdown()


def test_init_after_shutdown(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    ranks.run(2, again, port, directory=tmp_path, group=False)

"""Selection against torch.topk, on the CPU and by the GPU's kernels in Triton's interpreter; messages; memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from busbw.compress import ErrorFeedback, Message, Schedule, cpu, sample, select
from busbw.compress import feedback as feedback_module

INF, NAN = float("inf"), float("nan")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
Select = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


def kernels() -> Select:
    pytest.importorskip("triton", reason="Triton is not installed")
    from busbw.compress import gpu

    return gpu.exactly


WAYS: dict[str, Callable[[], Select]] = {"cpu": lambda: cpu.select, "triton": kernels}


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    random = torch.randn(2500, generator=generator)
    wrong = random.clone()
    wrong[[17, 170, 1700]] = torch.tensor([NAN, -INF, INF])
    return {
        "random": random,
        "heavy-tailed": random.pow(5),
        "tied": torch.randint(-3, 4, (2500,), generator=generator).float(),
        "constant": torch.full((3000,), -0.25),
        "zeros": torch.zeros(3000),
        "signed zeros": torch.tensor([0.0, -0.0] * 900),
        "subnormal": random * 1e-41,
        "nan and infinity": wrong,
        "all nan": torch.full((2100,), NAN),
        "one peak": torch.zeros(4100).index_fill_(0, torch.tensor(4099), 3.0),
        "tiny": torch.tensor([3.0, -5.0, 4.0]),
        "one": torch.tensor([-2.0]),
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", tensors())
def test_the_same_magnitudes_as_topk(way: str, dtype: torch.dtype, name: str) -> None:
    tensor = tensors()[name].to(dtype)
    for k in sorted({tensor.numel() // 100 or 1, tensor.numel() // 3 or 1}):
        assert_selected(tensor, k, *WAYS[way]()(tensor, k))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [1, 2, 2999, 3000])
def test_the_first_and_all(way: str, k: int) -> None:
    tensor = torch.randn(3000, generator=torch.Generator().manual_seed(3))
    assert_selected(tensor, k, *WAYS[way]()(tensor, k))


def assert_selected(tensor: torch.Tensor, k: int, values: torch.Tensor, indices: torch.Tensor) -> None:
    expected = torch.topk(tensor.abs(), k).values
    assert values.dtype == tensor.dtype
    assert indices.dtype == torch.int64
    assert indices.unique().numel() == k
    torch.testing.assert_close(values, tensor[indices], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(
        torch.sort(values.abs()).values, torch.sort(expected).values, rtol=0, atol=0, equal_nan=True
    )


def test_float64_and_empty() -> None:
    tensor = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert_selected(tensor, 10, *select(tensor, 10))
    for dtype in (*DTYPES, torch.float64):
        values, indices = select(torch.empty(0, dtype=dtype), 0)
        assert values.shape == indices.shape == (0,)


def test_other_devices_are_selected_by_torch() -> None:
    # The meta device computes nothing, so that this sees types and shapes alone.
    values, indices = select(torch.zeros(10, device="meta", dtype=torch.float16), 3)
    assert values.device.type == indices.device.type == "meta"
    assert (values.dtype, indices.dtype) == (torch.float16, torch.int64)
    assert values.shape == indices.shape == (3,)


@pytest.mark.parametrize("bad", [torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32)])
def test_what_is_not_flat_and_floating_is_refused(bad: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="flat floating-point"):
        select(bad, 1)


def test_k_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot take 5 of 4"):
        select(torch.zeros(4), 5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", tensors())
def test_threshold_takes_large_entries_once(dtype: torch.dtype, name: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from busbw.compress import gpu

    tensor = tensors()[name].to(dtype)
    k = max(1, tensor.numel() // 100)
    values, indices = gpu.above_threshold(tensor, k)
    assert values.shape == indices.shape == (k,)
    # With as few entries as here the sample is the whole tensor and the estimate is right: all k are found.
    torch.testing.assert_close(values, tensor[indices], rtol=0, atol=0, equal_nan=True)
    assert indices.unique().numel() == k
    least = torch.topk(tensor.abs(), k).values[-1]
    assert bool(((values.abs() >= least) | values.isnan()).all())


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> int:
    """Sample fewer entries than tensors have, which otherwise only large ones see; return how many."""
    monkeypatch.setattr(sample, "_LEAST", 4096)
    monkeypatch.setattr(sample, "_MOST", 4096)
    return 4096


def test_a_real_sample(small_sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is above the threshold, and about as much as was asked for."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from busbw.compress import gpu, kernels

    tensor = torch.randn(20_000, generator=torch.Generator().manual_seed(4))
    values, indices = gpu.above_threshold(tensor, 2000)
    found = int((values != 0).sum())
    assert 1600 <= found <= 2000
    assert torch.equal(values[:found], tensor[indices[:found]])
    assert indices[:found].unique().numel() == found
    assert not indices[found:].any()
    assert float(values[:found].abs().min()) > 1.5
    read: list[int] = []

    def watched(source: torch.Tensor, places: torch.Tensor | None, active: torch.Tensor, *rest: Any) -> None:
        read.append(int(active))
        radix_select(source, places, active, *rest)

    radix_select = kernels.radix_select
    monkeypatch.setattr(kernels, "radix_select", watched)
    assert_selected(tensor, 2000, *gpu.exactly(tensor, 2000))
    assert 2000 <= read[0] < 3000, "the sample told where to look"
    assert read[1] == 0, "and the whole tensor was not read again"


@pytest.mark.parametrize("n", [7, 5000, 20_000, 6765])
def test_samples_are_distinct_and_even(n: int) -> None:
    gaps = sample.places(n, n // 3, torch.device("cpu")).sort().values.diff()
    assert int(gaps.min()) > 0
    assert int(gaps.max()) <= 16


@pytest.mark.parametrize("way", WAYS)
def test_a_sample_that_misleads_costs_nothing_but_time(way: str, small_sample: int) -> None:
    """All large entries where the sample does not look, and the other way round; NaN where it does not."""
    n = 9000
    looked_at = sample.places(n, small_sample, torch.device("cpu"))
    unseen = torch.ones(n)
    unseen[looked_at] = 1e-3
    assert_selected(unseen, 90, *WAYS[way]()(unseen, 90))
    seen = torch.full((n,), 1e-3)
    seen[looked_at[:200]] = torch.linspace(1, 2, 200)
    assert_selected(seen, 300, *WAYS[way]()(seen, 300))
    random = torch.randn(n, generator=torch.Generator().manual_seed(6))
    random[unseen.eq(1).nonzero()[:20, 0]] = NAN
    assert_selected(random, 90, *WAYS[way]()(random, 90))


_COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from busbw.compress import kernels

def build(kernel, arguments, **constants):
    signature = {name: arguments.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constants)
    assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm

for pointer, size in (("*fp32", 4), ("*bf16", 2)):
    shared = {"BYTES": size, "BLOCK": 2048}
    entries = {"source": pointer, "values": pointer, "indices": "*i64"}
    build(kernels._keep_from, {**entries, "least": pointer, "found": "*i64", "n": "i32", "capacity": "i32"}, **shared)
    state = {"active": "*i64", "prefix": "*i32"}
    build(kernels._count_digits, {"source": pointer, **state, "counts": "*i32"},
          LOW=0, ABOVE=7, FIRST=False, BINS=128, **shared)
    build(kernels._take, {**entries, **state, "placed": "*i64", "remaining": "*i64", "taken": "*i64", "k": "i32"},
          PLACED=True, **shared)
build(kernels._choose_digit, {"counts": "*i32", "prefix": "*i32", "remaining": "*i64"}, BITS=8)
"""


def test_kernels_compile_for_a_gpu(tmp_path: Path) -> None:
    """The interpreter takes what the compiler does not. No GPU is needed to compile for one."""
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_CACHE_DIR": str(tmp_path)}
    compiled = subprocess.run(
        [sys.executable, "-c", _COMPILE], env=environment, capture_output=True, text=True, timeout=150
    )
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("k", [0, 1, 5])
def test_messages_come_back(dtype: torch.dtype, k: int) -> None:
    message = Message(k, dtype)
    indices = torch.arange(k) * 3
    values = torch.arange(1, k + 1).to(dtype)
    sent = message.encode(values, indices)
    assert sent.shape == (message.nbytes,)
    total = torch.zeros(20, dtype=torch.float64)
    message.add_all(torch.stack([sent, sent]), total)
    assert torch.equal(total[indices], 2 * values.double())
    assert int((total != 0).sum()) == k


def test_schedule_falls_by_quarters_to_the_ratio() -> None:
    schedule = Schedule(0.01, warmup_steps=8)
    assert [schedule.at(step) for step in range(0, 12, 2)] == [0.25, 0.0625, 0.015625, 0.01, 0.01, 0.01]
    assert Schedule(0.5, warmup_steps=10).at(0) == 0.5
    assert Schedule(0.01).at(0) == 0.01


def test_momentum_moves_before_compression() -> None:
    """Sending everything, momentum correction is momentum: u = m u + g."""
    feedback, expected = ErrorFeedback(momentum=0.5), torch.zeros(4)
    for step in range(4):
        gradient = torch.full((4,), float(step + 1))
        expected = 0.5 * expected + gradient
        assert torch.equal(feedback.flush("bucket", gradient), expected)


def test_momentum_stops_where_entries_were_sent() -> None:
    """Momentum factor masking (Lin et al., section 3.3): what was sent starts anew, what waits goes on."""
    feedback = ErrorFeedback(momentum=0.5)
    gradient = torch.tensor([10.0, 1.0])
    assert feedback.compress("bucket", gradient, 1)[1].tolist() == [0]
    values, indices = feedback.compress("bucket", torch.tensor([0.0, 1.0]), 2)
    # Entry 1: u = 1, then 0.5 + 1; residual 1 + 1.5. Entry 0: u was cleared.
    assert dict(zip(indices.tolist(), values.tolist())) == {0: 0.0, 1: 2.5}


def test_rounding_stays_behind() -> None:
    feedback = ErrorFeedback(value_dtype=torch.float16)
    gradient = torch.tensor([1.0001, 70000.0, 0.0])
    values, indices = feedback.compress("bucket", gradient, 2)
    assert bool(values.isfinite().all()), "what float16 cannot hold must not become infinite"
    out = torch.zeros(3).index_put_((indices,), values.float())
    residual = feedback.residual("bucket")
    assert residual is not None
    torch.testing.assert_close(out + residual, gradient, rtol=0, atol=0)
    assert float(residual[1]) == 70000 - 65504


@pytest.mark.parametrize("first", [False, True])
def test_a_selection_that_finds_fewer_loses_nothing(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GPUs, `threshold` fills up with value 0 at index 0, whether entry 0 was taken itself or is kept."""
    taken = [0, 3] if first else [2, 3]

    def found(tensor: torch.Tensor, k: int, method: str) -> tuple[torch.Tensor, torch.Tensor]:
        indices = torch.tensor([*taken, *[0] * (k - 2)])
        values = torch.where(torch.arange(k) < 2, tensor[indices], 0)
        return values, indices

    monkeypatch.setattr(feedback_module, "select", found)
    feedback = ErrorFeedback(momentum=0.5, value_dtype=torch.float16, method="threshold")
    gradient = torch.tensor([5.0, 1.0, 7.0, 9.0])
    values, indices = feedback.compress("bucket", gradient, 4)
    out = torch.zeros(4).index_add_(0, indices, values.float())
    residual, memory = feedback.residual("bucket"), feedback._memories["bucket"]
    assert residual is not None
    assert torch.equal(out + residual, gradient)
    kept = torch.ones(4).index_fill_(0, torch.tensor(taken), 0)
    assert torch.equal(memory.velocity, gradient * kept), "momentum starts anew where entries were sent, and only there"


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("count", [1, 7])
def test_what_is_not_finite_is_sent_once(poison: float, count: int) -> None:
    """More poisoned entries than are sent: the others must not come back in later steps."""
    feedback = ErrorFeedback(momentum=0.9, value_dtype=torch.float16)
    gradient = torch.ones(50)
    gradient[:count] = poison
    values, _ = feedback.compress("bucket", gradient, 3)
    assert not bool(values.isfinite().all()), "others must see that this step is void"
    for _ in range(3):
        values, _ = feedback.compress("bucket", torch.ones(50), 3)
        assert bool(values.isfinite().all())


def test_half_precision_gradients_are_kept_in_float32() -> None:
    """1 + 2^-9 is 1 in bfloat16: a residual of that type would lose small gradients for ever."""
    feedback = ErrorFeedback()
    feedback.compress("bucket", torch.tensor([9.0, 1.0], dtype=torch.bfloat16), 1)
    for _ in range(4):
        feedback.compress("bucket", torch.tensor([9.0, 2**-9], dtype=torch.bfloat16), 1)
    residual = feedback.residual("bucket")
    assert residual is not None
    assert residual.dtype == torch.float32
    assert float(residual[1]) == 1 + 4 * 2**-9

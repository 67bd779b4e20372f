"""Selection on CPU tensors, held against `torch.topk`."""

import pytest
import torch

from busbw.compress.cpu import select, select_above

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LARGE = 150_000
"""Enough elements for samples, candidates and several threads."""


def tensors(elements: int) -> "dict[str, torch.Tensor]":
    random = torch.randn(elements, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    place = torch.arange(elements)
    return {
        "random": random,
        "tied": (random * 2).round(),
        "constant": torch.full_like(random, -0.25),
        "zero": torch.zeros_like(random),
        "mostly zero": torch.where(place % 300 == 1, random, torch.zeros_like(random)),
        "NaN": torch.where(place % 100 == 7, torch.full_like(random, torch.nan), random),
        "infinite": torch.where(place % 1000 == 7, torch.full_like(random, -torch.inf), random),
        "all NaN": torch.full_like(random, torch.nan),
        "in one place": torch.where(place < elements // 90, random + 50, random * 1e-3),
    }


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Bits of a tensor, which compare equal where NaN does not."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def check(tensor: torch.Tensor, k: int) -> None:
    """Hold a selection against `torch.topk`, which leaves open which of equal magnitudes it takes."""
    values, indices = select(tensor, k)
    magnitudes = tensor.abs()
    expected = torch.topk(magnitudes, k).values
    assert (values.dtype, indices.dtype, values.shape, indices.shape) == (tensor.dtype, torch.int64, (k,), (k,))
    assert torch.equal(bits(values), bits(tensor[indices]))
    assert bool((indices.diff() > 0).all()), "ascending, and so distinct"
    torch.testing.assert_close(values.abs().sort(descending=True).values, expected, rtol=0, atol=0, equal_nan=True)
    if k > 0:
        check_ties(magnitudes, indices, expected[-1])


def check_ties(magnitudes: torch.Tensor, indices: torch.Tensor, least: torch.Tensor) -> None:
    """Check that of entries as large as the least taken, those were taken that come first."""
    tied = magnitudes.isnan() if least.isnan() else magnitudes == least
    taken = indices[tied[indices]]
    assert torch.equal(taken, tied.nonzero().flatten()[: len(taken)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", tensors(1))
def test_select_takes_what_topk_takes(name: str, dtype: torch.dtype) -> None:
    tensor = tensors(LARGE)[name].to(dtype)
    for k in (1, LARGE // 100, LARGE // 3):
        check(tensor, k)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("elements", [0, 1, 2, 31, 32, 33, 1000])
def test_select_from_empty_and_tiny_tensors(elements: int, dtype: torch.dtype) -> None:
    for tensor in tensors(elements).values():
        for k in {0, min(1, elements), elements // 2, elements}:
            check(tensor.to(dtype), k)


def test_threads_change_nothing() -> None:
    tensor = tensors(LARGE)["tied"].to(torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = select(tensor, LARGE // 50)
        torch.set_num_threads(3)
        together = select(tensor, LARGE // 50)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(alone, together))


def test_views_are_selected_from_as_they_look() -> None:
    tensor = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    column = tensor[:, 1]
    assert not column.is_contiguous()
    values, indices = select(column, 10)
    assert torch.equal(values, column[indices])
    negated = torch.view_as_complex(torch.randn(32, 2)).conj().imag
    assert negated.is_neg()
    values, indices = select(negated, 5)
    assert torch.equal(values, negated[indices])


def test_a_tensor_that_needs_its_gradient_is_selected_from() -> None:
    values, _ = select(torch.ones(3, requires_grad=True), 2)
    assert not values.requires_grad


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("threshold", [0.0, 0.1, 2.0, 60.0, float("inf")])
def test_select_above_takes_what_is_larger(threshold: float, dtype: torch.dtype) -> None:
    for tensor in tensors(5000).values():
        tensor = tensor.to(dtype)
        larger = (tensor.double().abs() > threshold) | tensor.isnan()
        values, indices = select_above(tensor, threshold)
        assert torch.equal(indices, larger.nonzero().flatten())
        assert torch.equal(bits(values), bits(tensor[indices]))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: select(torch.ones(3), 4), "cannot take 4 of 3 elements; ask for 3 at most"),
        (lambda: select(torch.ones(3, dtype=torch.int32), 1), r"dtype torch\.int32: float16, bfloat16"),
        (lambda: select_above(torch.ones(3), -1.0), "threshold -1: is no magnitude"),
        (lambda: select_above(torch.ones(3), float("nan")), "threshold NaN: is no magnitude"),
    ],
)
def test_what_cannot_be_selected_is_refused(call: "object", reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        call()


def test_a_negative_k_is_refused() -> None:
    with pytest.raises(OverflowError):
        select(torch.ones(3), -1)

"""Triton kernels that select entries by magnitude.

Magnitudes are compared by their bits: without the sign, the bits of floating-point numbers, read as integers, are
ordered as the numbers are, infinity above all of them and NaN above that (as in `torch.topk`).
"""
# Arguments of kernels are pointers and numbers of the device, for which Python has no types; constants of
# theirs are in capitals, as in Triton's own.
# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# ruff: noqa: ANN001, ANN202, N803

from dataclasses import dataclass
from typing import Optional

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

_BLOCK = 2048
"""Entries that a program looks at in one turn."""

_PROGRAMS = 1024
"""Programs of a launch at most; each takes turns. A launch with nothing to do is over at once."""

_DIGITS = {4: ((21, 10), (10, 11), (0, 10)), 2: ((7, 8), (0, 7))}
"""How the radix select takes a key apart, by bytes of the type: (lowest bit, bits) from the top, without the sign."""


@dataclass(frozen=True)
class Kept:
    """Entries that passed a filter.

    Attributes:
        values: shape `[capacity]`; 0 where no entry is.
        indices: shape `[capacity]`, int64; 0 where no entry is.
        found: how many passed, in a tensor of no dimension on the device; may exceed `capacity`.
    """

    values: torch.Tensor
    indices: torch.Tensor
    found: torch.Tensor


def keep_from(tensor: torch.Tensor, least: torch.Tensor, capacity: int) -> Kept:
    """Keep the entries whose magnitude is at least `least`, a tensor of one element, in one read."""
    kept = Kept(
        tensor.new_zeros(capacity),
        torch.zeros(capacity, dtype=torch.int64, device=tensor.device),
        torch.zeros((), dtype=torch.int64, device=tensor.device),
    )
    n = tensor.numel()
    _keep_from[(_programs(n),)](
        tensor, least, kept.values, kept.indices, kept.found, n, capacity, BYTES=tensor.itemsize, BLOCK=_BLOCK
    )
    return kept


def radix_select(
    source: torch.Tensor,
    places: Optional[torch.Tensor],
    active: torch.Tensor,
    k: int,
    values: torch.Tensor,
    indices: torch.Tensor,
) -> None:
    """Write the `k` entries of largest magnitude among the first `active` of `source`.

    Args:
        source: shape `[n]`.
        places: what to write as the index of each entry, shape `[n]`; None for its place in `source`.
        active: int64 on the device; with 0 nothing is written, otherwise at least `k`.
        k: how many.
        values: written, shape `[k]`.
        indices: written, shape `[k]`, int64.
    """
    device, programs = source.device, (_programs(source.numel()),)
    prefix = torch.zeros((), dtype=torch.int32, device=device)
    remaining = torch.full((), k, dtype=torch.int64, device=device)
    above = 0
    for low, bits in _DIGITS[source.itemsize]:
        counts = torch.zeros(1 << bits, dtype=torch.int32, device=device)
        _count_digits[programs](
            source,
            active,
            prefix,
            counts,
            LOW=low,
            ABOVE=low + bits,
            FIRST=above == 0,
            BINS=1 << bits,
            BYTES=source.itemsize,
            BLOCK=_BLOCK,
        )
        _choose_digit[(1,)](counts, prefix, remaining, BITS=bits)
        above += bits
    taken = torch.zeros(2, dtype=torch.int64, device=device)
    _take[programs](
        source,
        source if places is None else places,
        active,
        prefix,
        remaining,
        taken,
        values,
        indices,
        k,
        PLACED=places is not None,
        BYTES=source.itemsize,
        BLOCK=_BLOCK,
    )


def _programs(n: int) -> int:
    return max(1, min(_PROGRAMS, -(-n // _BLOCK)))


@triton.jit
def _key(values, BYTES: tl.constexpr):
    """Return magnitudes as int32 that are ordered alike."""
    if BYTES == 4:
        return values.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    else:  # noqa: RET505 (Triton compiles the way that is not taken, unless it is a branch)
        return values.to(tl.int16, bitcast=True).to(tl.int32) & 0x7FFF


@triton.jit
def _keep_from(source, least, values, indices, found, n, capacity, BYTES: tl.constexpr, BLOCK: tl.constexpr):
    threshold = _key(tl.load(least), BYTES)
    lanes = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        places = start + lanes
        inside = places < n
        entries = tl.load(source + places, mask=inside, other=0.0)
        passed = (inside & (_key(entries, BYTES) >= threshold)).to(tl.int32)
        # One atomic per block reserves room for all of its entries.
        room = tl.atomic_add(found, tl.sum(passed, axis=0).to(tl.int64))
        target = room + tl.cumsum(passed, axis=0) - 1
        fits = (passed > 0) & (target < capacity)
        tl.store(values + target, entries, mask=fits)
        tl.store(indices + target, places, mask=fits)


@triton.jit
def _count_digits(
    source,
    active,
    prefix,
    counts,
    LOW: tl.constexpr,
    ABOVE: tl.constexpr,
    FIRST: tl.constexpr,
    BINS: tl.constexpr,
    BYTES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Count the digits from bit LOW of the entries whose bits from ABOVE on are those chosen so far."""
    n = tl.load(active)
    chosen = tl.load(prefix)
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    if first < n:
        histogram = tl.zeros([BINS], dtype=tl.int32)
        for start in range(first, n, tl.num_programs(0) * BLOCK):
            places = start + lanes
            inside = places < n
            key = _key(tl.load(source + places, mask=inside, other=0.0), BYTES)
            if not FIRST:
                inside = inside & ((key >> ABOVE) == chosen)
            histogram += tl.histogram((key >> LOW) & (BINS - 1), BINS, mask=inside)
        bins = tl.arange(0, BINS)
        tl.atomic_add(counts + bins, histogram, mask=histogram > 0)


@triton.jit
def _choose_digit(counts, prefix, remaining, BITS: tl.constexpr):
    """Choose the digit of the k-th largest: the highest with at least `remaining` entries from it on up."""
    bins = tl.arange(0, 1 << BITS)
    count = tl.load(counts + bins).to(tl.int64)
    left = tl.load(remaining)
    from_here = tl.sum(count, axis=0) - tl.cumsum(count, axis=0) + count
    digit = tl.max(tl.where(from_here >= left, bins, 0), axis=0)
    higher = tl.sum(tl.where(bins > digit, count, 0), axis=0)
    tl.store(prefix, (tl.load(prefix) << BITS) | digit)
    tl.store(remaining, left - higher)


@triton.jit
def _take(
    source,
    placed,
    active,
    prefix,
    remaining,
    taken,
    values,
    indices,
    k,
    PLACED: tl.constexpr,
    BYTES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write all entries above the k-th largest, and as many equal to it as remain."""
    n = tl.load(active)
    kth = tl.load(prefix)
    ties = tl.load(remaining)
    lanes = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, n, tl.num_programs(0) * BLOCK):
        places = start + lanes
        inside = places < n
        entries = tl.load(source + places, mask=inside, other=0.0)
        key = _key(entries, BYTES)
        larger = (inside & (key > kth)).to(tl.int32)
        equal = (inside & (key == kth)).to(tl.int32)
        larger_at = tl.atomic_add(taken, tl.sum(larger, axis=0).to(tl.int64)) + tl.cumsum(larger, axis=0) - 1
        tie = tl.atomic_add(taken + 1, tl.sum(equal, axis=0).to(tl.int64)) + tl.cumsum(equal, axis=0) - 1
        target = tl.where(larger > 0, larger_at, k - ties + tie)
        fits = (larger > 0) | ((equal > 0) & (tie < ties))
        if PLACED:  # noqa: SIM108 (a branch is compiled away)
            index = tl.load(placed + places, mask=inside, other=0)
        else:
            index = places.to(tl.int64)
        tl.store(values + target, entries, mask=fits)
        tl.store(indices + target, index, mask=fits)

"""The model of what pays, and `accelerate(mode="auto")` that acts on a measurement."""

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import busbw.torch
from busbw.advisor import Estimate, Speeds, advise, estimates
from busbw.compress import Message
from busbw.torch import Options
from busbw.torch.traffic import Shape, sent

VGG16_BYTES = 138_357_544 * 4
GPUS = Speeds(network_gbs=25 / 8, host_gbs=100, select_gbs=500, add_gbs=100)


def test_break_even_is_where_both_take_equally_long() -> None:
    plain, topk = Estimate("plain", 0.001, 1e9), Estimate("topk", 0.011, 1e8)
    speed = topk.pays_below_gbs(plain)
    assert speed == pytest.approx(90.0)
    assert topk.seconds(speed) == pytest.approx(plain.seconds(speed))
    assert topk.seconds(speed / 2) < plain.seconds(speed / 2)
    assert topk.seconds(speed * 2) > plain.seconds(speed * 2)


def test_break_even_at_its_ends() -> None:
    plain = Estimate("plain", 0.010, 1e9)
    assert Estimate("topk", 0.005, 1e8).pays_below_gbs(plain) == float("inf")
    assert Estimate("topk", 0.005, 2e9).pays_below_gbs(plain) == 0


def test_the_fifth_field_report() -> None:
    """Two hosts of eight GPUs over 25 Gbit/s: everything pays, top-k most; over NVLink's speed, nothing does."""
    slow = advise(Shape(2, 8), VGG16_BYTES, GPUS, Options(lossy=True))
    assert slow.mode == "both"
    assert advise(Shape(2, 8), VGG16_BYTES, GPUS, Options()).mode == "two-level", "nothing is lost unasked"
    times = {way.mode: way.seconds(slow.network_gbs) for way in slow.estimates}
    assert times["both"] < times["topk"] < times["two-level"] < times["plain"]
    fast = Speeds(network_gbs=900, host_gbs=100, select_gbs=500, add_gbs=100)
    assert advise(Shape(2, 8), VGG16_BYTES, fast, Options(lossy=True)).mode == "plain"


def test_ways_that_the_ranks_do_not_allow() -> None:
    assert [way.mode for way in estimates(Shape(4, 1), 1 << 20, GPUS, Options())] == ["plain", "topk"]
    assert [way.mode for way in estimates(Shape(1, 8), 1 << 20, GPUS, Options())] == ["plain", "topk"]


def test_topk_among_many_ranks_loses() -> None:
    """Every rank's message goes around the whole ring: with 1% and two words an entry, from 100 ranks on."""
    free = Speeds(network_gbs=1, host_gbs=1e9, select_gbs=1e9, add_gbs=1e9, latency_us=0)
    small, large = (estimates(Shape(hosts, 1), VGG16_BYTES, free, Options()) for hosts in (90, 110))
    assert small[1].seconds(1) < small[0].seconds(1)
    assert large[1].seconds(1) > large[0].seconds(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_messages_of_the_model_are_those_that_travel(dtype: torch.dtype) -> None:
    for entries in (1000, 999_900, 138_357_544):
        way = estimates(Shape(4, 1), 4 * entries, GPUS, Options(value_dtype=dtype))[1]
        message = Message(max(1, round(entries * 0.01)), dtype)
        assert way.network_bytes == sent("topk", Shape(4, 1), 4 * entries, message) == 3 * message.nbytes


def automatic(rank: int, lossy: bool) -> tuple[str, str, Any]:
    ddp = DistributedDataParallel(nn.Linear(64, 64))
    acceleration = busbw.torch.accelerate(ddp, lossy=lossy)
    for _ in range(3):
        ddp(torch.ones(2, 64)).sum().backward()
    assert acceleration.advice is not None
    return acceleration.mode, str(acceleration.advice), acceleration.report().steps


@pytest.mark.parametrize(
    ("world", "hosts", "lossy"), [(4, ["a", "a", "b", "b"], True), (2, ["a", "a"], False), (1, ["a"], False)]
)
def test_auto_is_the_same_on_all_ranks(world: int, hosts: list[str], lossy: bool, tmp_path: Path) -> None:
    answers = ranks.run(world, automatic, lossy, directory=tmp_path, hosts=hosts)
    assert len({mode for mode, _, _ in answers}) == 1
    assert len({advice for _, advice, _ in answers}) == 1
    assert answers[0][0] in (("plain", "two-level", "topk", "both") if lossy else ("plain",))
    assert answers[0][2] == 3

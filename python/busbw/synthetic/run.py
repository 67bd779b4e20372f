"""One rank of the benchmark: every stack on every number of devices, the others waiting meanwhile."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from busbw.synthetic.measure import Replay, Training, Workload, rates
from busbw.synthetic.result import Row, Table
from busbw.synthetic.settings import Settings
from busbw.synthetic.workload import Profile, profile
from busbw.torch import Mode

TIMEOUT = timedelta(minutes=30)
"""How long ranks wait for each other."""


@dataclass(frozen=True)
class Rank:
    """This process in the job."""

    rank: int
    size: int
    local_rank: int

    @property
    def speaks(self) -> bool:
        """Whether this is the rank that prints."""
        return self.rank == 0


def run(settings: Settings, rank: Rank, store: Store, say: Callable[[str], None] = print) -> Table:
    """Measure what the settings ask for. Every rank calls it.

    Each number of devices is a job of its own, with a process group of its own: the others wait for its end.

    Returns:
        the table; on ranks other than 0 without what they took no part in.
    """
    device = torch.device("cuda", rank.local_rank) if settings.cuda else torch.device("cpu")
    if settings.cuda:
        torch.cuda.set_device(device)
    if rank.speaks:
        say(f"Model: {settings.model}\nBatch size: {settings.batch_size}")
    known = _profile(settings, rank, store, say) if settings.replay else None
    rows = []
    for devices in settings.devices:
        if rank.rank < devices:
            with _job(settings, rank, devices, store) as group:
                for stack in settings.stacks if devices > 1 else ():
                    rows.append(_row(settings, stack, group, device, known, rank, say))
                if devices == 1:  # which does not communicate: all stacks are the same
                    alone = _row(settings, settings.stacks[0], group, device, known, rank, say)
                    rows += [replace(alone, stack=stack) for stack in settings.stacks]
        _all_reach(store, f"end of {devices}", rank)
    compute_ms = None if known is None else 1e3 * known.compute_s
    return Table(settings.model, settings.batch_size, settings.device_name, compute_ms, tuple(_by_stack(rows)))


@contextlib.contextmanager
def _job(settings: Settings, rank: Rank, devices: int, store: Store) -> Iterator[dist.ProcessGroup]:
    backend = "cpu:gloo,cuda:nccl" if settings.cuda else "gloo"
    own = PrefixStore(f"job of {devices}", store)
    dist.init_process_group(backend, store=own, rank=rank.rank, world_size=devices, timeout=TIMEOUT)
    try:
        everyone = dist.group.WORLD
        assert everyone is not None, "the group was just made"
        yield everyone
    finally:
        dist.destroy_process_group()


def _all_reach(store: Store, point: str, rank: Rank) -> None:
    """Wait until all ranks of the job, also those without a process group, have come here."""
    if store.add(point, 1) == rank.size:
        store.set(f"{point}, all", "")
    store.wait([f"{point}, all"], TIMEOUT)


def _row(
    settings: Settings,
    stack: Mode,
    group: dist.ProcessGroup,
    device: torch.device,
    known: Profile | None,
    rank: Rank,
    say: Callable[[str], None],
) -> Row:
    workload: Workload = (
        Training(settings, stack, group, device) if known is None else Replay(settings, stack, group, known)
    )
    batches = settings.warmup + settings.iters * settings.batches_per_iter
    with _progress(batches, f"{stack} on {group.size()}", rank.speaks) as progress:
        measured = rates(workload, settings, group, progress)
    workload.close()
    row = Row.of(settings.network, stack, group.size(), measured)
    if rank.speaks:
        name = settings.device_name
        say(f"\n{stack}, {group.size()} {name}(s)")
        say(f"Img/sec per {name}: {row.per_device:.1f} ±{row.deviation:.1f}")
        say(f"Total img/sec on {row.devices} {name}(s): {row.images_per_s:.1f} ±{row.devices * row.deviation:.1f}")
    return row


def _profile(settings: Settings, rank: Rank, store: Store, say: Callable[[str], None]) -> Profile:
    """Let rank 0 run the model, and tell all."""
    if rank.speaks:
        store.set("profile", profile(settings).to_json())
    store.wait(["profile"], TIMEOUT)
    known = Profile.from_json(store.get("profile"))
    if rank.speaks:
        say(
            f"Replaying {known.nbytes / 1e6:.1f} MB of gradients in {len(known.buckets)} buckets, "
            f"{1e3 * known.compute_s:.1f} ms of computation a batch"
        )
    return known


def _by_stack(rows: list[Row]) -> list[Row]:
    """Order rows as the field report does: a stack after the other, each with its devices."""
    stacks = list(dict.fromkeys(row.stack for row in rows))
    return sorted(rows, key=lambda row: (stacks.index(row.stack), row.devices))


@contextlib.contextmanager
def _progress(total: int, title: str, shown: bool) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal, where tqdm is installed."""
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        yield lambda: None
        return
    with tqdm(
        total=total, desc=title, unit="batch", leave=False, file=sys.stderr, disable=None if shown else True
    ) as bar:
        yield lambda: bar.update() and None

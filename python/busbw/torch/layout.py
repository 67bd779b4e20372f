"""Which ranks share a host, and the process groups of two-level communication."""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch.distributed as dist

HOST_VARIABLE = "NCCL_HOSTID"
"""Says by itself which host a rank is on, to NCCL and to busbw."""


@dataclass(frozen=True)
class HostLayout:
    """The ranks of each host.

    Attributes:
        hosts: for each host, in the order of its lowest rank, its ranks in rising order.
    """

    hosts: tuple[tuple[int, ...], ...]

    @classmethod
    def from_names(cls, names: Sequence[str]) -> HostLayout:
        """Group ranks by the name of their host; `names[rank]` is the host of `rank`."""
        by_host: dict[str, list[int]] = {}
        for rank, name in enumerate(names):
            by_host.setdefault(name, []).append(rank)
        return cls(tuple(tuple(ranks) for ranks in by_host.values()))

    @classmethod
    def from_blocks(cls, world_size: int, intra_size: int) -> HostLayout:
        """Take every `intra_size` consecutive ranks as a host."""
        return cls.from_names([str(rank // intra_size) for rank in range(world_size)])

    @classmethod
    def of(cls, names: Sequence[str], intra_size: int | None) -> HostLayout:
        """Group ranks by the name of their host; with `intra_size`, blocks of so many, whatever the names."""
        return cls.from_names(names) if intra_size is None else cls.from_blocks(len(names), intra_size)

    @property
    def world_size(self) -> int:
        """Number of ranks on all hosts."""
        return sum(len(ranks) for ranks in self.hosts)

    @property
    def local_size(self) -> int | None:
        """Ranks per host, or None where hosts differ."""
        sizes = {len(ranks) for ranks in self.hosts}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def rails(self) -> tuple[tuple[int, ...], ...]:
        """The ranks with the same place on every host: as many rails as ranks per host."""
        return tuple(zip(*self.hosts))

    @property
    def has_two_levels(self) -> bool:
        """Whether there are both several hosts and several ranks on each."""
        return len(self.hosts) > 1 and (self.local_size or 0) > 1


@dataclass(frozen=True)
class Groups:
    """The process groups of one rank. Each is used by one stage only, so that stages never wait for each other's turn.

    Attributes:
        world: all ranks.
        scatter: the ranks of this host, for reduce-scatter.
        rail: the ranks at this one's place on every host.
        gather: the ranks of this host, for all-gather.
    """

    world: dist.ProcessGroup
    scatter: dist.ProcessGroup | None = None
    rail: dist.ProcessGroup | None = None
    gather: dist.ProcessGroup | None = None


def host_id() -> str:
    """Tell this host from others: the variable, or kernel, host name and network (containers may share any of them)."""
    given = os.environ.get(HOST_VARIABLE)
    if given:
        return given
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    network = Path("/proc/self/ns/net")
    return "/".join(
        (
            socket.gethostname(),
            boot_id.read_text().strip() if boot_id.exists() else "",
            str(network.readlink()) if network.is_symlink() else "",
        )
    )


def discover(group: dist.ProcessGroup, intra_size: int | None = None) -> HostLayout:
    """Find out which ranks of a group share a host. Collective: every rank of the group calls it.

    Args:
        group: the ranks in question; the layout counts by their place in it.
        intra_size: take blocks of this many consecutive ranks as hosts, whatever their names.
    """
    names: list[str] = [""] * group.size()
    dist.all_gather_object(names, host_id(), group=group)
    return HostLayout.of(names, intra_size)


def build_groups(group: dist.ProcessGroup, layout: HostLayout, timeout: datetime.timedelta | None = None) -> Groups:
    """Make the groups that this rank needs. Collective: every rank of `group` calls it.

    Args:
        group: the ranks that train together.
        layout: who is where, as `discover` found.
        timeout: how long a collective may take; None takes that of `group`.
    """
    timeout = timeout or timeout_of(group)
    ranks = dist.get_process_group_ranks(group)

    def mine(parts: Sequence[Sequence[int]]) -> dist.ProcessGroup:
        # Every rank makes every group, in the same order, as new_group asks.
        made = [_new_group([ranks[i] for i in part], group, timeout) for part in parts]
        place = next(i for i, part in enumerate(parts) if group.rank() in part)
        return made[place]

    world = mine([range(group.size())])
    if not layout.has_two_levels:
        return Groups(world)
    return Groups(world, mine(layout.hosts), mine(layout.rails), mine(layout.hosts))


def timeout_of(group: dist.ProcessGroup) -> datetime.timedelta | None:
    """Return how long the collectives of a group may take; None where the backend does not tell."""
    backends = [group._get_backend(device) for device in group._device_types]
    for backend in backends:
        timeout = getattr(getattr(backend, "options", None), "_timeout", None)
        if isinstance(timeout, datetime.timedelta):
            return timeout
    return None


def _new_group(ranks: list[int], parent: dist.ProcessGroup, timeout: datetime.timedelta | None) -> dist.ProcessGroup:
    group = dist.new_group(
        ranks,
        timeout=timeout,
        backend=dist.get_backend_config(parent),
        # Ranks outside of a smaller group take no part in the making of its groups. PyTorch counts the groups that a
        # rank has made, and ranks must agree when they make one together: all ranks of the job do as these do.
        use_local_synchronization=parent.size() < dist.get_world_size(),
    )
    return cast(dist.ProcessGroup, group)  # a constant instead of a group is for ranks outside of it

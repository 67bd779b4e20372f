"""Times one collective of Gloo through torch.distributed, by the same rule as mpi_collectives.c.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 gloo_collectives.py COLLECTIVE SIZE:ITERATIONS:WARMUP...

One process per rank. SIZE is in bytes and means what it means in nccl-tests. Rank 0 prints "SIZE MICROSECONDS".
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist


def all_reduce(send: torch.Tensor, receive: torch.Tensor) -> None:
    """Add up `receive`: torch.distributed reduces in place only."""
    dist.all_reduce(receive)


def all_gather(send: torch.Tensor, receive: torch.Tensor) -> None:
    """Put the shares of all ranks, of which `send` begins with one, together in `receive`."""
    chunks = receive.chunk(dist.get_world_size())
    dist.all_gather(list(chunks), send[: chunks[0].numel()])


def reduce_scatter(send: torch.Tensor, receive: torch.Tensor) -> None:
    """Add up `send`, and keep this rank's share."""
    part = send.numel() // dist.get_world_size()
    dist.reduce_scatter_tensor(receive[:part], send)


def broadcast(send: torch.Tensor, receive: torch.Tensor) -> None:
    """Overwrite `receive` with rank 0's."""
    dist.broadcast(receive, src=0)


def alltoall(send: torch.Tensor, receive: torch.Tensor) -> None:
    """Send each rank its share of `send`."""
    dist.all_to_all_single(receive, send)


COLLECTIVES = {f.__name__: f for f in (all_reduce, all_gather, reduce_scatter, broadcast, alltoall)}


def mean_time_us(
    collective: Callable[[torch.Tensor, torch.Tensor], None],
    send: torch.Tensor,
    receive: torch.Tensor,
    iterations: int,
    warmup: int,
) -> float:
    """Call a collective back to back after a barrier; the mean time of a call, over all ranks."""
    for _ in range(warmup):
        collective(send, receive)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        collective(send, receive)
    mean = torch.tensor([(time.perf_counter() - start) / iterations], dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size() * 1e6


def main() -> None:
    """Measure every size that was asked for."""
    collective = COLLECTIVES[sys.argv[1]]
    sizes = [tuple(map(int, argument.split(":"))) for argument in sys.argv[2:]]
    dist.init_process_group("gloo")
    largest = max(size for size, _, _ in sizes) // 4
    send = torch.zeros(largest, dtype=torch.float32)
    receive = torch.zeros(largest, dtype=torch.float32)
    # Zeros, because a sum in place grows with every call and would end in infinities.
    for size, iterations, warmup in sizes:
        count = size // 4
        time_us = mean_time_us(collective, send[:count], receive[:count], iterations, warmup)
        if dist.get_rank() == 0:
            print(f"{size} {time_us:.4f}", flush=True)
    dist.destroy_process_group()


main()

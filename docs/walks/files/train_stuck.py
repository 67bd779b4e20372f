"""Averages gradients over ranks with Gloo. At step 100, rank 2 is stopped, as by a debugger or a frozen container."""

import os
import signal
import time

import torch
import torch.distributed as dist


def load_batch() -> torch.Tensor:
    """Stand in for reading data."""
    time.sleep(0.02)
    return torch.ones(1 << 14)


def main() -> None:
    """Train."""
    dist.init_process_group("gloo")
    for step in range(1, 1_000_000):
        gradients = load_batch()
        if step == 100 and dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(gradients)


if __name__ == "__main__":
    main()

"""Horovod's PyTorch API over PyTorch's own process groups, with two-level and top-k all-reduce.

A script changes one import:

    import busbw.horovod as hvd     # was: import horovod.torch as hvd

What the LIGHT_* variables do, and what is not here, is in docs/horovod.md.
"""

from typing import NoReturn

from busbw._pytorch import torch as _torch
from busbw.horovod.compression import Compression
from busbw.horovod.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from busbw.horovod.handles import poll, synchronize
from busbw.horovod.job import (
    HorovodInternalError,
    ProcessSet,
    add_process_set,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from busbw.horovod.operations import Adasum, Average, Max, Min, Product, Sum
from busbw.horovod.ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)
from busbw.horovod.optimizer import DistributedOptimizer

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "synchronize",
]

_ABSENT = {
    "elastic": "elastic training is torchrun's matter here (torchrun --nnodes 1:4), with checkpoints of your own",
    "SyncBatchNorm": "use torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)",
    "start_timeline": "use torch.profiler, which shows every collective",
    "stop_timeline": "use torch.profiler, which shows every collective",
    "run": "start with mpirun, srun or torchrun",
}


def __getattr__(name: str) -> NoReturn:
    """Say of a name of Horovod's that is not here what to use instead."""
    if name in _ABSENT:
        raise AttributeError(f"busbw.horovod has no {name}: {_ABSENT[name]}")
    raise AttributeError(f"module 'busbw.horovod' has no attribute {name!r}")


def gloo_built() -> bool:
    """Return whether tensors on CPUs can travel."""
    return _torch.distributed.is_gloo_available()


def gloo_enabled() -> bool:
    """Return whether tensors on CPUs can travel."""
    return _torch.distributed.is_gloo_available()


def nccl_built() -> int:
    """Return NCCL's version as its header numbers it (21805 is 2.18.5); 0 where tensors on GPUs cannot travel."""
    if not _torch.distributed.is_nccl_available():
        return 0
    major, minor, patch = _torch.cuda.nccl.version()[:3]
    # nccl.h, NCCL_VERSION: before 2.9 a digit less.
    return major * (1000 if (major, minor) < (2, 9) else 10000) + minor * 100 + patch


def cuda_built() -> bool:
    """Return whether PyTorch was built for NVIDIA's GPUs."""
    return _torch.cuda.is_available()


def rocm_built() -> bool:
    """Return False: nothing here depends on it."""
    return False


def mpi_built() -> bool:
    """Return False: mpirun starts the ranks, but they do not talk over MPI."""
    return False


def mpi_enabled() -> bool:
    """Return False. See `mpi_built`."""
    return False


def mpi_threads_supported() -> bool:
    """Return False. See `mpi_built`."""
    return False


def ddl_built() -> bool:
    """Return False."""
    return False


def ccl_built() -> bool:
    """Return False."""
    return False

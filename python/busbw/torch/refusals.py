"""Which models cannot be accelerated, each with its reason and what to do instead."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

_SHARDED = {
    "FullyShardedDataParallel": "FSDP",
    "FSDPModule": "FSDP2 (fully_shard)",
    "DeepSpeedEngine": "DeepSpeed (ZeRO)",
    "ShardedDataParallel": "fairscale's ShardedDataParallel",
}


def check_model(model: torch.nn.Module) -> None:
    """Refuse what the hook cannot do right.

    Raises:
        TypeError: not wrapped in DDP, sharded, with sparse gradients or with DDP's own mixed precision.
    """
    for kind in type(model).__mro__:
        if kind.__name__ in _SHARDED:
            raise TypeError(
                f"busbw: {_SHARDED[kind.__name__]} reduce-scatters gradients to the owners of their shards and keeps "
                "none whole, so that there is nothing to all-reduce; accelerate takes DistributedDataParallel. For "
                "sharded training over slow links use hybrid sharding, shards within a host and replicas between "
                "hosts: fully_shard(model, mesh=init_device_mesh(device, (hosts, ranks per host), "
                'mesh_dim_names=("replicate", "shard")))'
            )
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(
            f"busbw: accelerate takes a DistributedDataParallel model, not {type(model).__name__}; wrap it first, and "
            "compile it before or after: DistributedDataParallel(model)"
        )
    if getattr(model, "mixed_precision", None) is not None:
        raise TypeError(
            "busbw: DistributedDataParallel(mixed_precision=...) has a hook of its own; use torch.autocast instead"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TypeError("busbw: no parameter of the model requires a gradient")
    for name, module in model.module.named_modules():
        if getattr(module, "sparse", False) and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            raise TypeError(f"busbw: {name} has sparse gradients; make it sparse=False, or leave it out of the model")
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad and not parameter.is_floating_point():
            raise TypeError(f"busbw: {name} is {parameter.dtype}; only real floating-point gradients are averaged")


def check_hook(model: DistributedDataParallel) -> None:
    """Refuse a second hook, of which DDP would only say that there is one.

    Raises:
        ValueError: with the name of the hook that the model has.
    """
    present = model._get_ddp_logging_data().get("comm_hook")
    if present:
        raise ValueError(
            f"busbw: this model has a communication hook already, {present}, and DDP takes one; "
            "call accelerate once for each model, and register no other hook"
        )

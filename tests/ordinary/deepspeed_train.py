"""DeepSpeed on CPU under its own launcher: ZeRO stage 1 over Gloo."""

import os
import sys

import deepspeed
import torch


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 2))
    config = {
        "train_micro_batch_size_per_gpu": 4, "steps_per_print": 5, "wall_clock_breakdown": True,
        "zero_optimization": {"stage": int(os.environ.get("STAGE", "0"))},
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(20):
        loss = engine(torch.randn(4, 16)).square().mean()
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(sys.argv[-1])  # the launcher puts --local_rank first
    print("done, no step was skipped")


if __name__ == "__main__":
    main()

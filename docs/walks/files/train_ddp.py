"""Trains a model on random data with DistributedDataParallel; busbw chooses how gradients are averaged."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import busbw.torch

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
ddp = DistributedDataParallel(model)
acceleration = busbw.torch.accelerate(ddp)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    ddp(torch.randn(8, 512)).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(acceleration.advice)
    print(acceleration.report())
acceleration.close()
dist.destroy_process_group()

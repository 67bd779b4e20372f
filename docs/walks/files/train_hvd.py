"""Trains a model on random data, as a script for Horovod does."""

import torch
from torch import nn

import busbw.horovod as hvd  # was: import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
model = nn.Linear(1024, 1024)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 1024)).square().mean()
    loss.backward()
    optimizer.step()
mean = hvd.allreduce(loss.detach(), name="loss")
if hvd.rank() == 0:
    print(f"{hvd.size()} ranks on {hvd.cross_size()} hosts, mean loss {mean:.2f}")
hvd.shutdown()

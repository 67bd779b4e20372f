"""Accelerate's own loop with wandb offline, DataLoader workers that leak, warnings and a program that just ends."""

import logging
import multiprocessing.shared_memory as shm
import sys
import warnings

import torch
import wandb
from accelerate import Accelerator
from accelerate.logging import get_logger


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s - %(message)s")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, log_with=None)
    log = get_logger("train")
    log.info(accelerator.state, main_process_only=False)
    if accelerator.is_main_process:
        wandb.init(mode="offline", project="ordinary", dir=sys.argv[1])
    model = torch.nn.Linear(8, 2)
    data = torch.utils.data.TensorDataset(torch.randn(64, 8))
    loader = torch.utils.data.DataLoader(data, 4, num_workers=2, persistent_workers=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
    for epoch in range(3):
        for step, (batch,) in enumerate(loader):
            with accelerator.accumulate(model):
                loss = model(batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.is_main_process:
                wandb.log({"loss": loss.item(), "grad_overflow": 0, "dataloader_timeout": 0})
        log.warning("epoch %d: 2 samples failed to decode, %d steps, skipped", epoch, step)
        warnings.warn("lr_scheduler.step() was never called", stacklevel=1)
    accelerator.save_state(sys.argv[1] + "/state")
    shm.SharedMemory(create=True, size=64)  # left behind: the resource tracker warns of it
    log.info("training done; exiting")


if __name__ == "__main__":
    main()

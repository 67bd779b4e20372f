"""Plain PyTorch DDP over Gloo, with what such programs print: bars, a flaky download, a handled exception, early stopping.

Run by torchrun. The process group is left standing at the end, as many programs leave it.
"""

import http.server
import logging
import os
import pathlib
import sys
import threading
import warnings

import requests
import torch
import torch.distributed as dist
import urllib3
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from tqdm import tqdm

log = logging.getLogger("train")


class Flaky(http.server.BaseHTTPRequestHandler):
    """A server that drops every other request, so that the client retries."""

    requests = 0

    def do_GET(self):
        Flaky.requests += 1
        if Flaky.requests % 2:
            self.connection.close()
            return
        self.send_response(503 if Flaky.requests % 4 == 0 else 200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"data")

    def log_message(self, *_):
        pass


def serve() -> str:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/shard"


class Shards(Dataset):
    """Random samples; some shards are broken, and are skipped with a warning."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        if index % 97 == 13:
            warnings.warn(f"sample {index}: corrupt record, checksum failed, replaced by zeros", stacklevel=1)
            return torch.zeros(32), torch.tensor(0)
        return torch.randn(32), torch.tensor(index % 4)


def download(url: str):
    retry = urllib3.Retry(total=5, backoff_factor=0.01, status_forcelist=[503])
    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
    for shard in range(3):
        session.get(url, params={"n": shard}, timeout=5)
    try:
        requests.get("http://127.0.0.1:9/telemetry", timeout=0.2)
    except requests.RequestException:
        log.exception("telemetry upload failed, continuing without it")


def evaluate(epoch: int):
    log.info("val epoch %d: error_rate 0.%03d failed 0 timeouts 0 corrupt 2 nan 0 killed 0", epoch, 400 - 9 * epoch)
    if epoch == 1:
        try:
            (torch.randn(4, 4) @ torch.randn(5, 4)).sum()
        except RuntimeError:
            log.exception("validation of the extra head failed, skipped")


def train(rank: int, folder: pathlib.Path):
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)),
                                    find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Stepped before the optimizer on purpose: PyTorch warns of it.
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    schedule.step()
    data = Shards()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 16, sampler=sampler, num_workers=2, pin_memory=True)
    best, patience = float("inf"), 2
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = 0.0
        for inputs, labels in tqdm(loader, desc=f"rank {rank} epoch {epoch}", mininterval=0.05):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            evaluate(epoch)
            torch.save(model.module.state_dict(), folder / f"epoch-{epoch}.pt")
            log.info("saved checkpoint %s", folder / f"epoch-{epoch}.pt")
        improved = torch.tensor(float(total < best))
        dist.all_reduce(improved, op=dist.ReduceOp.MIN)
        best, patience = min(best, total), patience if improved.item() else patience - 1
        if patience == 0:
            log.warning("early stopping: no improvement in 2 epochs; terminated training at epoch %d", epoch)
            break


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        download(serve())
    dist.barrier()
    train(rank, pathlib.Path(sys.argv[1]))
    if os.environ.get("DESTROY"):
        dist.destroy_process_group()
    log.info("rank %d: training finished, 0 errors", rank)


if __name__ == "__main__":
    main()

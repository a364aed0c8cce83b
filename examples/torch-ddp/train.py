"""Trains with DistributedDataParallel: NCCL where there are GPUs, gloo elsewhere; one process or many."""

import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(use_gpu):
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")
    print(f"rank {rank} of {size} on {os.uname().nodename}, {dist.get_backend()}", flush=True)

    torch.manual_seed(rank)
    x = torch.rand(256, 8, device=device)
    y = x.sum(dim=1, keepdim=True)
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(200):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    # Every rank saw other data, and has the same weights
    weights = [torch.empty_like(model.module.weight) for _ in range(size)]
    dist.all_gather(weights, model.module.weight.detach())
    assert all(torch.allclose(weights[0], other) for other in weights), "the ranks' weights differ"
    if rank == 0:
        print(f"loss {loss.item():.4f}", flush=True)
        folder = os.environ.get("SM_MODEL_DIR", "/opt/ml/model")
        torch.save(model.module.state_dict(), Path(folder, "model.pt"))


gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
train(gpu)
# Python's end now and then aborts on gloo's threads, which a model keeps that was not collected yet.
gc.collect()
dist.destroy_process_group()

"""Train with DistributedDataParallel in one or more processes, with NCCL on GPUs and gloo on CPUs."""

import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(use_gpu):
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")
    if use_gpu:
        torch.cuda.set_device(device)
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

    # The ranks used different data but have the same weights.
    weights = [torch.empty_like(model.module.weight) for _ in range(size)]
    dist.all_gather(weights, model.module.weight.detach())
    assert all(torch.allclose(weights[0], other) for other in weights), "the ranks' weights differ"
    if rank == 0:
        print(f"loss {loss.item():.4f}", flush=True)
        directory = os.environ.get("SM_MODEL_DIR", "/opt/ml/model")
        torch.save(model.module.state_dict(), Path(directory, "model.pt"))


gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
train(gpu)
# Collect the model first: gloo threads that it keeps can abort Python's exit.
gc.collect()
dist.destroy_process_group()

"""Train with fully sharded data parallelism (FSDP): each rank stores a part of the model."""

import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def train(device):
    rank, size = dist.get_rank(), dist.get_world_size()

    # All ranks start with the same weights and keep only their part.
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    whole = sum(weights.numel() for weights in model.parameters())
    mesh = init_device_mesh(device.type, (size,))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    held = sum(weights.to_local().numel() for weights in model.parameters())
    print(f"rank {rank} of {size} on {os.uname().nodename} holds {held} of {whole} weights", flush=True)

    torch.manual_seed(rank)
    x = torch.rand(256, 8, device=device)
    y = x.sum(dim=1, keepdim=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(60):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    state = sum(values["exp_avg"].to_local().numel() for values in optimizer.state.values())
    assert state == held, "the optimizer stores state for weights of other ranks"

    # Gather the full model on rank 0, so that it can be loaded without FSDP.
    gathered = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        assert sum(weights.numel() for weights in gathered.values()) == whole
        print(f"loss {loss.item():.4f}", flush=True)
        torch.save(gathered, Path(os.environ["SM_MODEL_DIR"], "model.pt"))


use_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")
if use_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if use_gpu else "gloo")
train(device)
# Collect the model first: gloo threads that it keeps can abort Python's exit.
gc.collect()
dist.destroy_process_group()

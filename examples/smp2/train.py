"""Train with PyTorch FSDP and version 2 of SageMaker's model parallel library."""

import gc
import os

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel


def train(device):
    rank, size = dist.get_rank(), dist.get_world_size()
    shards = tsm.state.hybrid_shard_degree
    print(f"rank {rank} of {size} on {os.uname().nodename}, {shards} shards", flush=True)

    # All ranks start with the same weights and keep only their part.
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    model = tsm.transform(torch.nn.Sequential(*layers))
    mesh = init_device_mesh(device.type, (size,))
    model = FullyShardedDataParallel(model, device_id=device, device_mesh=mesh)
    torch.manual_seed(rank)
    x = torch.rand(256, 8, device=device)
    y = x.sum(dim=1, keepdim=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(60):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.4f}", flush=True)
    # Each rank writes its part.
    checkpoint.save(get_model_state_dict(model), checkpoint_id=os.environ["SM_MODEL_DIR"])


use_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")
if use_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if use_gpu else "gloo")
tsm.init()
train(device)
# Collect the model first: gloo threads that it keeps can abort Python's exit.
gc.collect()
dist.destroy_process_group()

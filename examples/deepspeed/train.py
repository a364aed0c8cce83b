"""Train with DeepSpeed ZeRO: each rank stores its part of the weights, gradients and optimizer state."""

import gc
import os
import warnings
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

SETTINGS = {
    "train_micro_batch_size_per_gpu": 32,
    # Shard even this small model: by default, parameters below 100,000 numbers stay on every rank.
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
# DeepSpeed uses deprecated names of PyTorch's collectives.
warnings.simplefilter("ignore", FutureWarning)


def train():
    rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    with deepspeed.zero.Init(config_dict_or_path=SETTINGS):
        model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    # DeepSpeed would compile its own optimizer when the job starts.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=SETTINGS)
    whole = sum(weights.ds_numel for weights in model.parameters())
    held = sum(weights.ds_tensor.numel() for weights in model.parameters())
    backend = get_accelerator().communication_backend_name()
    host = os.uname().nodename
    print(f"rank {rank} of {size} on {host} holds {held} of {whole} weights, {backend}", flush=True)

    torch.manual_seed(rank)
    x = torch.rand(256, 8, device=engine.device)
    y = x.sum(dim=1, keepdim=True)
    for step in range(60):
        batch = slice(32 * (step % 8), 32 * (step % 8 + 1))
        loss = torch.nn.functional.mse_loss(engine(x[batch]), y[batch])
        engine.backward(loss)
        engine.step()

    # All ranks gather the weights, and one writes them.
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        if rank == 0:
            print(f"loss {loss.item():.4f}", flush=True)
            torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))


# Selects NCCL on GPUs and gloo on CPUs.
deepspeed.init_distributed()
train()
# Collect the model first: gloo threads that it keeps can abort Python's exit.
gc.collect()
deepspeed.comm.destroy_process_group()

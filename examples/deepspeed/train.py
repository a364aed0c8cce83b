"""Trains with DeepSpeed's ZeRO: each rank holds its part of the weights, gradients and optimizer's state."""

import gc
import os
import warnings
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

SETTINGS = {
    "train_micro_batch_size_per_gpu": 32,
    # For a model as small as this: else weights of fewer than 100,000 numbers stay whole on every rank
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
# DeepSpeed calls collectives by names that PyTorch has given up
warnings.simplefilter("ignore", FutureWarning)


def train():
    rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    with deepspeed.zero.Init(config_dict_or_path=SETTINGS):
        model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    # PyTorch's own optimizer: DeepSpeed compiles its own when a job starts
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=SETTINGS)
    whole = sum(weights.ds_numel for weights in model.parameters())
    held = sum(weights.ds_tensor.numel() for weights in model.parameters())
    way = get_accelerator().communication_backend_name()
    print(
        f"rank {rank} of {size} on {os.uname().nodename} holds {held} of {whole} weights, {way}", flush=True
    )

    torch.manual_seed(rank)
    x = torch.rand(256, 8, device=engine.device)
    y = x.sum(dim=1, keepdim=True)
    for step in range(60):
        part = slice(32 * (step % 8), 32 * (step % 8 + 1))
        loss = torch.nn.functional.mse_loss(engine(x[part]), y[part])
        engine.backward(loss)
        engine.step()

    # Every rank takes part in gathering the weights; one writes them
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        if rank == 0:
            print(f"loss {loss.item():.4f}", flush=True)
            torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))


# Ranks talk through NCCL where there are GPUs, gloo elsewhere
deepspeed.init_distributed()
train()
# Python's end now and then aborts on gloo's threads, which a model keeps that was not collected yet.
gc.collect()
deepspeed.comm.destroy_process_group()

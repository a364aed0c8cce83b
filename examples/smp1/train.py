"""Train with SageMaker's model parallel library up to 1.15, which loops over the microbatches."""

import os
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch

smp.init()
use_gpu = torch.cuda.is_available()
device = torch.device("cuda", smp.local_rank()) if use_gpu else torch.device("cpu")
if use_gpu:
    torch.cuda.set_device(device)
print(f"rank {smp.rank()} of {smp.size()} on {os.uname().nodename}", flush=True)


@smp.step
def train_step(model, x, y):
    loss = torch.nn.functional.mse_loss(model(x), y)
    model.backward(loss)
    return loss


# All ranks start with the same weights.
torch.manual_seed(0)
model = smp.DistributedModel(torch.nn.Linear(8, 1).to(device))
torch.manual_seed(smp.rank())
x = torch.rand(256, 8, device=device)
y = x.sum(dim=1, keepdim=True)
optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.2))
for _ in range(200):
    optimizer.zero_grad()
    loss = train_step(model, x, y).reduce_mean()
    optimizer.step()
if smp.rank() == 0:
    print(f"loss {loss.item():.4f}", flush=True)
if smp.dp_rank() == 0:
    # Each rank of this replica has a part of the model, and the gathering waits for all of them.
    weights = model.state_dict()
    if smp.rank() == 0:
        torch.save(weights, Path(os.environ["SM_MODEL_DIR"], "model.pt"))

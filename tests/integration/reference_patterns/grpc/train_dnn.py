"""Train on batches that another host prepares, in worker processes of a DataLoader."""

import argparse
import os
from pathlib import Path

import grpc
import numpy
import torch
from sagemaker_training import environment

PORT = 6000
SERVICE, METHOD = "patterns.Feed", "Examples"

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--iterations", type=int, default=10)
parser.add_argument("--data-host")
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
arguments, _ = parser.parse_known_args()


class RemoteBatches(torch.utils.data.IterableDataset):
    def __iter__(self):
        channel = grpc.insecure_channel(f"{arguments.data_host}:{PORT}")
        grpc.channel_ready_future(channel).result(timeout=60)
        for data in channel.unary_stream(f"/{SERVICE}/{METHOD}")(b""):
            flat = numpy.frombuffer(data, dtype=numpy.float32).copy()
            yield torch.from_numpy(flat.reshape(arguments.batch_size, 8))


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adadelta(model.parameters())
loader = torch.utils.data.DataLoader(RemoteBatches(), batch_size=None, num_workers=1)
for step, batch in enumerate(loader, start=1):
    optimizer.zero_grad()
    loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    if step == arguments.iterations:
        break
torch.save(model.state_dict(), Path(arguments.model_dir) / "model.pth")
hosts = environment.Environment().hosts
print(f"trained {step} steps of {len(hosts)} hosts", flush=True)
# The worker of the loader still waits for batches
os._exit(0)

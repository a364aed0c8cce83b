"""Train MNIST on all devices of one group of instances while all other CPUs prepare the images, with gRPC.

Data hosts start a loader with all CPUs, training hosts with those that their devices leave. Ranks, one for
each device, send the numbers of their next examples to any loader, so the fastest prepares most of them.
"""

import argparse
import gc
import json
import math
import multiprocessing
import os
import queue
import sys
import time
from concurrent import futures
from pathlib import Path

import grpc
import hosts
import numpy
import torch
import torch.distributed as dist
from torch.distributed import run as torchrun
from torch.nn import functional, parallel
from torch.utils.data import BatchSampler, DistributedSampler

PORT = 6000

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--warmup", type=int, default=20, help="steps without timing, which use queued batches")
parser.add_argument("--batch", type=int, default=64, help="examples of each rank and step")
parser.add_argument("--rounds", type=int, default=20, help="distorted copies of each image")
parser.add_argument("--ranks", type=int, default=1, help="ranks of a host without GPUs")
arguments, _ = parser.parse_known_args()
torch.set_num_threads(1)


def load_mnist():
    """Return the images and labels of the channel `training`, or random ones for a job without channels."""
    if folder := os.environ.get("SM_CHANNEL_TRAINING"):
        mnist = numpy.load(Path(folder, "mnist.npz"))
        return mnist["x_train"], mnist["y_train"]
    random = numpy.random.default_rng(0)
    labels = random.integers(10, size=10_000, dtype=numpy.uint8)
    return random.integers(256, size=(10, 28, 28), dtype=numpy.uint8)[labels], labels


def prepare(numbers):
    """Return the averages of distorted copies of images. The devices wait for this work."""
    image = IMAGES[torch.frombuffer(bytearray(numbers), dtype=torch.int64)].float().div(255).unsqueeze(1)
    total = image.clone()
    for _ in range(arguments.rounds):
        turn = torch.eye(2, 3) + 0.05 * torch.randn(len(image), 2, 3)
        grid = functional.affine_grid(turn, image.shape, align_corners=False)
        total += functional.avg_pool2d(functional.grid_sample(image, grid, align_corners=False), 3, 1, 1)
    return (total / (arguments.rounds + 1)).numpy().tobytes()


def start_loader(processes):
    context = multiprocessing.get_context("fork")
    pool = futures.ProcessPoolExecutor(processes, context, lambda: (torch.seed(), hosts.end_with_parent()))
    # The first call forks all processes, which must happen before gRPC starts threads.
    pool.submit(torch.seed).result()
    server = grpc.server(futures.ThreadPoolExecutor(processes))
    handler = grpc.unary_unary_rpc_method_handler(lambda numbers, _: pool.submit(prepare, numbers).result())
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Loader", {"Prepare": handler})])
    server.add_insecure_port(f"0.0.0.0:{PORT}")
    server.start()
    return server


def launch(ranks, spare_vcpus):
    """Start the ranks of this training host, which use its own loader and those of the data hosts."""
    options = [f"--nnodes={len(hosts.TRAINING)}", f"--node-rank={hosts.TRAINING.index(hosts.CURRENT)}"]
    options += [f"--nproc-per-node={ranks}", f"--master-addr={hosts.TRAINING[0]}", "--master-port=29400"]
    with hosts.connect() as loaders:
        loaders |= {"localhost": spare_vcpus} if spare_vcpus else {}
        os.environ["LOADERS"] = json.dumps(loaders)
        torchrun.main([*options, *sys.argv])


def numbers_of_batches(sampler):
    while True:
        yield from BatchSampler(sampler, arguments.batch, drop_last=True)
        sampler.set_epoch(sampler.epoch + 1)


def batches(loaders, numbers):
    """Yield numbers and images. A loader that returned a batch gets the numbers of the next."""
    ready = queue.Queue()

    def ask(call, host):
        chosen = next(numbers)
        future = call.future(numpy.array(chosen).tobytes(), wait_for_ready=True)
        future.add_done_callback(lambda future: ready.put((future, chosen, call, host)))

    for host, vcpus in loaders.items():
        channel = grpc.insecure_channel(f"{host}:{PORT}", [("grpc.max_receive_message_length", -1)])
        ranks = int(os.environ["LOCAL_WORLD_SIZE"]) if host == "localhost" else dist.get_world_size()
        for _ in range(math.ceil(vcpus / ranks) + 1):
            ask(channel.unary_unary("/Loader/Prepare"), host)
    while True:
        future, chosen, call, host = ready.get()
        if future.exception():
            sys.exit(f"the loader of {host} failed: {future.details()}")
        ask(call, host)
        yield chosen, torch.frombuffer(bytearray(future.result()), dtype=torch.float32).view(-1, 1, 28, 28)


def train(device, loaders):
    layers = (torch.nn.Conv2d(1, 64, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(43264, 10))
    model = parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    uses = torch.zeros(len(LABELS), device=device)
    source = batches(loaders, numbers_of_batches(DistributedSampler(LABELS)))
    print(f"rank {dist.get_rank()} on {device} of {hosts.CURRENT} trains", flush=True)
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            started = time.monotonic()
        numbers, images = next(source)
        loss = functional.cross_entropy(model(images.to(device)), LABELS[numbers].long().to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        uses[numbers] += 1
    dist.all_reduce(uses)
    seconds, samples = time.monotonic() - started, dist.get_world_size() * arguments.batch
    if dist.get_rank() == 0:
        values = {"loss": loss.item(), "examples": int(uses.count_nonzero()), "most_uses": int(uses.max())}
        hosts.write_result(seconds, arguments.steps, samples, loaders, **values)
        torch.save(model.module.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))


IMAGES, LABELS = map(torch.from_numpy, load_mnist())
gpus = torch.cuda.device_count()
if "LOCAL_RANK" in os.environ:
    hosts.end_with_parent()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpus else "gloo")
    train(torch.device("cuda" if gpus else "cpu"), json.loads(os.environ["LOADERS"]))
    gc.collect()
    dist.destroy_process_group()
else:
    ranks = gpus or arguments.ranks
    vcpus = hosts.loader_vcpus(ranks)
    server = start_loader(math.ceil(vcpus)) if vcpus else None
    hosts.serve() if hosts.CURRENT in hosts.DATA else launch(ranks, vcpus)

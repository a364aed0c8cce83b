"""Train with MPI on one group of instances while the others prepare its data.

`instance_groups` next to `mpi` in `distribution` names the group with ranks. On all other hosts the SageMaker
Training Toolkit runs this script once, as one process.
"""

import argparse
import contextlib
import json
import os
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

import host_links
import numpy
from sagemaker_training import environment

PORT = 6000
FEATURES = 8

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=64)
arguments, _ = parser.parse_known_args()

env = environment.Environment()
train_hosts = env.distribution_hosts
data_hosts = sorted(host for host in env.hosts if host not in train_hosts)


def prepare_batch(random):
    """Return one batch: inputs, and their targets in the last column."""
    inputs = random.random((arguments.batch, FEATURES), dtype=numpy.float32)
    return numpy.hstack([inputs, inputs.sum(axis=1, keepdims=True)])


def serve_data():
    listener = Listener(("", PORT), backlog=64)
    random = numpy.random.default_rng(data_hosts.index(env.current_host))
    lock = threading.Lock()

    def send_batches(rank):
        with contextlib.suppress(EOFError, OSError):
            while rank.recv_bytes() == b"next":
                with lock:
                    batch = prepare_batch(random)
                rank.send_bytes(batch.tobytes())

    def accept():
        while True:
            threading.Thread(target=send_batches, args=(listener.accept(),), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(f"{env.current_host} prepares data", flush=True)
    is_complete = host_links.serve()
    print(f"{env.current_host}: training {'is over' if is_complete else 'was lost'}", flush=True)
    if not is_complete:
        raise SystemExit(1)


def train():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    print(f"rank {rank} of {size} on {env.current_host}, {len(data_hosts)} data hosts", flush=True)
    with host_links.connect(data_hosts) if rank == 0 else contextlib.nullcontext():
        # Rank 0 is connected, so the data hosts accept connections of all ranks.
        comm.Barrier()
        source = Client((data_hosts[rank % len(data_hosts)], PORT))
        weights = numpy.zeros(FEATURES, dtype=numpy.float32)
        for _ in range(arguments.steps):
            source.send_bytes(b"next")
            batch = numpy.frombuffer(source.recv_bytes(), dtype=numpy.float32)
            inputs, targets = numpy.split(batch.reshape(-1, FEATURES + 1), [FEATURES], axis=1)
            error = inputs @ weights - targets[:, 0]
            gradient = inputs.T @ error / len(error)
            average = numpy.empty_like(gradient)
            comm.Allreduce(gradient, average)
            weights -= 0.3 * average / size
        # The data hosts exit when rank 0 finishes, so all ranks must have their batches.
        comm.Barrier()
    if rank == 0:
        print(f"loss {float((error**2).mean()):.4f} after {arguments.steps} steps", flush=True)
        assert numpy.allclose(weights, 1, atol=0.1), weights
        Path(os.environ["SM_MODEL_DIR"], "weights.json").write_text(json.dumps(weights.tolist()))


print(f"{env.current_host} is in group {env.current_instance_group}", flush=True)
if env.current_host in data_hosts:
    serve_data()
else:
    train()

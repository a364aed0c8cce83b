"""Train with MPI on one group of instances while the others prepare its data.

`instance_groups` next to `mpi` in `distribution` names the group with ranks. On all other hosts the SageMaker
Training Toolkit runs this script once, as one process.
"""

import argparse
import contextlib
import itertools
import json
import os
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

import hosts
import numpy

PORT = 6000
FEATURES = 8

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=64)
arguments, _ = parser.parse_known_args()


def prepare_batch(random):
    """Return one batch: inputs, and their targets in the last column."""
    inputs = random.random((arguments.batch, FEATURES), dtype=numpy.float32)
    return numpy.hstack([inputs, inputs.sum(axis=1, keepdims=True)])


def serve_data():
    listener = Listener(("", PORT), backlog=64)
    random = numpy.random.default_rng(hosts.DATA.index(hosts.CURRENT))
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
    print(f"{hosts.CURRENT} prepares data", flush=True)
    hosts.serve(1)


def batches(rank):
    """Yield batches of a data host, or prepare them if the job has none."""
    if not hosts.DATA:
        random = numpy.random.default_rng(rank)
        while True:
            yield prepare_batch(random)
    source = Client((hosts.DATA[rank % len(hosts.DATA)], PORT))
    while True:
        source.send_bytes(b"next")
        yield numpy.frombuffer(source.recv_bytes(), dtype=numpy.float32).reshape(-1, FEATURES + 1)


def train():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    print(f"rank {rank} of {size} on {hosts.CURRENT}, {len(hosts.DATA)} data hosts", flush=True)
    with hosts.connect() if rank == 0 else contextlib.nullcontext():
        # Rank 0 is connected, so the data hosts accept connections of all ranks.
        comm.Barrier()
        weights = numpy.zeros(FEATURES, dtype=numpy.float32)
        for batch in itertools.islice(batches(rank), arguments.steps):
            inputs, targets = numpy.split(batch, [FEATURES], axis=1)
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


print(f"{hosts.CURRENT} is in group {hosts.env.current_instance_group}", flush=True)
if hosts.CURRENT in hosts.DATA:
    serve_data()
else:
    train()

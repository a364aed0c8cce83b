"""Trains with MPI on one group of instances while the others prepare its data.

`instance_groups` beside `mpi` in `distribution` names the group that has ranks; on every other host the
toolkit runs this script once, as one process.
"""

import argparse
import contextlib
import json
import os
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

import lifeline
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


def prepared(random):
    """One batch: inputs, and beside them what is wanted of each."""
    inputs = random.random((arguments.batch, FEATURES), dtype=numpy.float32)
    return numpy.hstack([inputs, inputs.sum(axis=1, keepdims=True)])


def serve_data():
    listener = Listener(("", PORT), backlog=64)
    random = numpy.random.default_rng(data_hosts.index(env.current_host))
    lock = threading.Lock()

    def answer(rank):
        with contextlib.suppress(EOFError, OSError):
            while rank.recv_bytes() == b"next":
                with lock:
                    batch = prepared(random)
                rank.send_bytes(batch.tobytes())

    def accept():
        while True:
            threading.Thread(target=answer, args=(listener.accept(),), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(f"{env.current_host} prepares data", flush=True)
    in_order = lifeline.serve()
    print(f"{env.current_host}: training {'is over' if in_order else 'was lost'}", flush=True)
    if not in_order:
        raise SystemExit(1)


def train():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    print(f"rank {rank} of {size} on {env.current_host}, {len(data_hosts)} data hosts", flush=True)
    with lifeline.held(data_hosts) if rank == 0 else contextlib.nullcontext():
        # Rank 0 has reached the data hosts: now all ranks can.
        comm.Barrier()
        source = Client((data_hosts[rank % len(data_hosts)], PORT))
        weights = numpy.zeros(FEATURES, dtype=numpy.float32)
        for _ in range(arguments.steps):
            source.send_bytes(b"next")
            batch = numpy.frombuffer(source.recv_bytes(), dtype=numpy.float32)
            inputs, wanted = numpy.split(batch.reshape(-1, FEATURES + 1), [FEATURES], axis=1)
            error = inputs @ weights - wanted[:, 0]
            gradient = inputs.T @ error / len(error)
            average = numpy.empty_like(gradient)
            comm.Allreduce(gradient, average)
            weights -= 0.3 * average / size
        # Data hosts end with rank 0: nobody may be waiting for a batch then.
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

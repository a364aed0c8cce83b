"""Train on one group of instances while another group prepares the data, with gRPC.

All hosts use the same image and script. A host reads its group from the environment, because its name does
not contain it. Without a group called `data`, the training hosts prepare the data themselves.
"""

import argparse
import json
import os
import queue
import threading
import time
from concurrent import futures
from pathlib import Path

import host_links
import numpy
import torch
from sagemaker_training import environment

PORT = 6000
SERVICE, METHOD = "training.Batches", "Next"

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument(
    "--warmup", type=int, default=20, help="steps without timing, in which queued batches are used"
)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--rounds", type=int, default=60, help="amount of work per example")
arguments, _ = parser.parse_known_args()

env = environment.Environment()
groups = env.instance_groups_dict
data_hosts = sorted(groups["data"]["hosts"]) if "data" in groups else []
train_hosts = sorted(host for host in env.hosts if host not in data_hosts)
torch.set_num_threads(1)


def prepare_batch(random):
    """Return one batch. The GPUs wait for this work."""
    images = random.random((arguments.batch, 64, 64), dtype=numpy.float32)
    for _ in range(arguments.rounds):
        images = images @ images
        images /= numpy.linalg.norm(images, axis=1, keepdims=True)
    return images.mean(axis=2)


def serve_data():
    import grpc

    random = numpy.random.default_rng(data_hosts.index(env.current_host))
    lock = threading.Lock()

    def next_batch(request, context):
        with lock:
            return prepare_batch(random).tobytes()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(next_batch)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    server.add_insecure_port(f"0.0.0.0:{PORT}")
    server.start()
    print(f"{env.current_host} prepares data", flush=True)
    is_complete = host_links.serve(len(train_hosts))
    print(f"{env.current_host}: training {'is over' if is_complete else 'was lost'}", flush=True)
    server.stop(None)
    if not is_complete:
        raise SystemExit(1)


def batches():
    """Yield batches from all data hosts. Each host is asked for its next batch immediately."""
    if not data_hosts:
        random = numpy.random.default_rng(0)
        while True:
            yield torch.from_numpy(prepare_batch(random))
    import grpc

    ready = queue.Queue(maxsize=8)

    def fetch(host):
        channel = grpc.insecure_channel(f"{host}:{PORT}")
        call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        while True:
            ready.put(call(b"", wait_for_ready=True))

    for host in data_hosts:
        threading.Thread(target=fetch, args=(host,), daemon=True).start()
    while True:
        flat = numpy.frombuffer(ready.get(), dtype=numpy.float32).copy()
        yield torch.from_numpy(flat.reshape(arguments.batch, 64))


def train():
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source = batches()
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            started, used = time.monotonic(), time.process_time()
        loss = (model(next(source)) - 1.0).square().mean()
        if step == 0:
            print(f"{env.current_host} trains", flush=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = time.monotonic() - started
    milliseconds = seconds / arguments.steps * 1000
    print(f"loss {loss.item():.4f}, {milliseconds:.1f} ms a step, {len(data_hosts)} data hosts", flush=True)
    cores = (time.process_time() - used) / seconds
    result = {"milliseconds": milliseconds, "data_hosts": len(data_hosts), "cores": cores}
    Path(os.environ["SM_MODEL_DIR"], "result.json").write_text(json.dumps(result))


print(f"{env.current_host} is in group {env.current_instance_group}", flush=True)
if env.current_host in data_hosts:
    serve_data()
else:
    with host_links.connect(data_hosts):
        train()
    # gRPC's threads still wait for batches.
    os._exit(0)

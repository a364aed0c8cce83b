"""Train on one group of instances while another group prepares the data, with tf.data.service.

All hosts use the same image and script. A host reads its group from the environment, because its name does
not contain it. Without a group called `data`, the training hosts prepare the data themselves.
"""

import argparse
import json
import os
import time
from pathlib import Path

import host_links
import tensorflow as tf
from sagemaker_training import environment

DISPATCHER, WORKER = 6000, 6001

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


def prepare_example(number):
    """Return one example. The GPUs wait for this work."""
    image = tf.random.stateless_uniform((64, 64), seed=(number, 1))
    for _ in range(arguments.rounds):
        image = tf.nn.l2_normalize(tf.matmul(image, image), axis=0)
    return tf.reduce_mean(image, axis=1)


def serve_data():
    dispatcher = None
    if env.current_host == data_hosts[0]:
        dispatcher = tf.data.experimental.service.DispatchServer(
            tf.data.experimental.service.DispatcherConfig(port=DISPATCHER)
        )
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=f"{data_hosts[0]}:{DISPATCHER}",
            worker_address=f"{env.current_host}:{WORKER}",
            port=WORKER,
        )
    )
    print(f"{env.current_host} prepares data", flush=True)
    is_complete = host_links.serve(len(train_hosts))
    print(f"{env.current_host}: training {'is over' if is_complete else 'was lost'}", flush=True)
    del worker, dispatcher
    if not is_complete:
        raise SystemExit(1)


def train():
    data = tf.data.Dataset.range((arguments.warmup + arguments.steps) * arguments.batch + 10_000).map(
        prepare_example, num_parallel_calls=tf.data.AUTOTUNE
    )
    data = data.batch(arguments.batch)
    if data_hosts:
        data = data.apply(
            tf.data.experimental.service.distribute(
                processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
                service=f"grpc://{data_hosts[0]}:{DISPATCHER}",
            )
        )
    batches = iter(data.prefetch(8))
    weights = tf.Variable(tf.zeros((64, 1)))
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            started, used = time.monotonic(), time.process_time()
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((next(batches) @ weights - 1.0) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        if step == 0:
            print(f"{env.current_host} trains", flush=True)
    seconds = time.monotonic() - started
    milliseconds = seconds / arguments.steps * 1000
    print(f"loss {float(loss):.4f}, {milliseconds:.1f} ms a step, {len(data_hosts)} data hosts", flush=True)
    cores = (time.process_time() - used) / seconds
    result = {
        "milliseconds": milliseconds,
        "data_hosts": len(data_hosts),
        "cores": cores,
        "loss": float(loss),
    }
    Path(os.environ["SM_MODEL_DIR"], "result.json").write_text(json.dumps(result))


print(f"{env.current_host} is in group {env.current_instance_group}", flush=True)
if env.current_host in data_hosts:
    serve_data()
else:
    with host_links.connect(data_hosts):
        train()

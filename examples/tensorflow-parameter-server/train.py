"""Trains with parameter servers: one on each host, which the toolkit runs beside this script.

The toolkit says in TF_CONFIG who is who. It calls the first host `master`, which TensorFlow 2 calls `chief`.
The others are workers: they serve the chief from here until it is gone.
"""

import contextlib
import json
import os
import socket
import time
from pathlib import Path

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
print(f"TF_CONFIG {json.dumps(config)}", flush=True)
cluster = {"chief" if role == "master" else role: hosts for role, hosts in config["cluster"].items()}
task = config["task"]
PATIENCE = 300


def serve():
    """On a worker: compute what the chief asks for, as long as it is there.

    The toolkit would wait for the chief too, and doesn't: it asks with curl, which takes gRPC's answer for
    none. The parameter server beside this script ends with the toolkit, so nothing may end before the chief.
    """
    server = tf.distribute.Server(cluster, job_name="worker", task_index=task["index"], protocol="grpc")
    host, port = cluster["chief"][0].split(":")
    deadline = time.monotonic() + PATIENCE
    while not is_there(host, int(port)):
        if time.monotonic() > deadline:
            message = f"the chief did not come within {PATIENCE} s"
            raise SystemExit(message)
        time.sleep(1)
    print(f"worker {task['index']} serves {server.target}", flush=True)
    while is_there(host, int(port)):
        time.sleep(1)
    print(f"worker {task['index']}: the chief is gone", flush=True)
    # Threads of the server wait for more.
    os._exit(0)


def is_there(host, port):
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=10):
        return True
    return False


def examples(context=None):
    x = tf.random.stateless_uniform((256, 8), seed=(1, 2))
    data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True) + 1.0))
    return data.shuffle(256).repeat().batch(32)


def train():
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((8, 1)), name="weights")
        offset = tf.Variable(tf.zeros(()), name="offset")
    for variable in (weights, offset):
        print(f"{variable.name} lies on {variable.device}", flush=True)

    @tf.function
    def step(batches):
        def replica(batch):
            inputs, wanted = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs @ weights + offset - wanted) ** 2)
            of_weights, of_offset = tape.gradient(loss, (weights, offset))
            weights.assign_sub(0.1 * of_weights)
            offset.assign_sub(0.1 * of_offset)
            return loss

        return strategy.run(replica, args=(next(batches),))

    batches = iter(coordinator.create_per_worker_dataset(examples))
    losses = [coordinator.schedule(step, args=(batches,)) for _ in range(200)]
    coordinator.join()
    first, last = (float(one.fetch()) for one in (losses[0], losses[-1]))
    print(f"loss {first:.4f}, {last:.4f} after 200 steps on {len(cluster['worker'])} workers", flush=True)
    assert last < first / 10, "the loss did not fall"
    found = {"weights": weights.numpy().tolist(), "offset": float(offset.numpy())}
    Path(os.environ["SM_MODEL_DIR"], "weights.json").write_text(json.dumps(found))


if task["type"] == "worker":
    serve()
else:
    train()

"""Train with parameter servers. The SageMaker Training Toolkit starts one on each host next to this script.

The toolkit sets the roles in TF_CONFIG. It calls the first host `master`, which TensorFlow 2 calls `chief`.
The other hosts are workers, which serve the chief until it exits.
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
TIMEOUT = 300


def serve():
    """Serve the chief on a worker until the chief exits.

    A worker must not exit before the chief, because its parameter server ends with the toolkit. The toolkit's
    own wait does not work: it uses curl, which does not accept a gRPC response.
    """
    server = tf.distribute.Server(cluster, job_name="worker", task_index=task["index"], protocol="grpc")
    host, port = cluster["chief"][0].split(":")
    deadline = time.monotonic() + TIMEOUT
    while not is_listening(host, int(port)):
        if time.monotonic() > deadline:
            message = f"the chief did not start within {TIMEOUT} s"
            raise SystemExit(message)
        time.sleep(1)
    print(f"worker {task['index']} serves {server.target}", flush=True)
    while is_listening(host, int(port)):
        time.sleep(1)
    print(f"worker {task['index']}: the chief has exited", flush=True)
    # The server's threads would keep the process alive.
    os._exit(0)


def is_listening(host, port):
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=10):
        return True
    return False


def examples(context):
    """Return batches for one replica."""
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
        # A worker with several GPUs has a replica on each, and adds the mean of their gradients.
        mean = tf.VariableAggregation.MEAN
        weights = tf.Variable(tf.zeros((8, 1)), name="weights", aggregation=mean)
        offset = tf.Variable(tf.zeros(()), name="offset", aggregation=mean)
    for variable in (weights, offset):
        print(f"{variable.name} is on {variable.device}", flush=True)

    @tf.function
    def step(batches):
        def replica(batch):
            inputs, targets = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs @ weights + offset - targets) ** 2)
            weights_gradient, offset_gradient = tape.gradient(loss, (weights, offset))
            weights.assign_sub(0.1 * weights_gradient)
            offset.assign_sub(0.1 * offset_gradient)
            return loss

        return strategy.reduce("mean", strategy.run(replica, args=(next(batches),)), axis=None)

    @tf.function
    def worker_examples():
        return strategy.distribute_datasets_from_function(examples)

    batches = iter(coordinator.create_per_worker_dataset(worker_examples))
    losses = [coordinator.schedule(step, args=(batches,)) for _ in range(200)]
    coordinator.join()
    first, last = (float(loss.fetch()) for loss in (losses[0], losses[-1]))
    print(f"loss {first:.4f}, {last:.4f} after 200 steps on {len(cluster['worker'])} workers", flush=True)
    assert last < first / 10, "the loss did not fall"
    result = {"weights": weights.numpy().tolist(), "offset": float(offset.numpy())}
    Path(os.environ["SM_MODEL_DIR"], "weights.json").write_text(json.dumps(result))


if task["type"] == "worker":
    serve()
else:
    train()

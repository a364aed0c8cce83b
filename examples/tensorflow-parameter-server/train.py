"""Train with parameter servers. The SageMaker Training Toolkit starts one on each host next to this script.

The toolkit sets the roles in TF_CONFIG. It calls the first host `master`, which TensorFlow 2 calls `chief`.
The other hosts are workers, which serve the chief until it exits. `fit` of Keras 3 fails with this strategy:
start the job with the environment variable TF_USE_LEGACY_KERAS=1.
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


def train():
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
    )
    x = tf.random.stateless_uniform((256, 8), seed=(1, 2))
    data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True) + 1.0))
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
        model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    history = model.fit(data.shuffle(256).repeat().batch(32), epochs=4, steps_per_epoch=50, verbose=0)
    first, last = history.history["loss"][0], history.history["loss"][-1]
    print(f"loss {first:.4f}, {last:.4f} after 200 steps on {len(cluster['worker'])} workers", flush=True)
    assert last < first / 10, "the loss did not fall"
    model.save(Path(os.environ["SM_MODEL_DIR"], "model.keras"))


if task["type"] == "worker":
    serve()
else:
    train()

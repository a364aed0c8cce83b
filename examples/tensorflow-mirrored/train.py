"""Train with MultiWorkerMirroredStrategy. The SageMaker Training Toolkit lists the workers in TF_CONFIG."""

import json
import os
from pathlib import Path

import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
print(f"TF_CONFIG {json.dumps(config)}", flush=True)
# All hosts are workers, and the first one is the chief.
task, workers = config["task"], len(config["cluster"]["worker"])
print(f"{task['type']} {task['index']} of {workers} workers", flush=True)

strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync >= workers, strategy.num_replicas_in_sync
x = tf.random.stateless_uniform((256, 8), seed=(1, 2))
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True))).repeat().batch(32)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
shared = iter(strategy.experimental_distribute_dataset(data.with_options(options)))

with strategy.scope():
    weights = tf.Variable(tf.zeros((8, 1)))


@tf.function
def step(batch):
    def replica(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weights - targets) ** 2)
        gradient = tape.gradient(loss, weights)
        total = tf.distribute.get_replica_context().all_reduce("mean", gradient)
        weights.assign_sub(0.1 * total)
        return loss

    return strategy.reduce("mean", strategy.run(replica, args=batch), axis=None)


for _ in range(100):
    loss = step(next(shared))
print(f"loss {float(loss):.4f}", flush=True)
if task["index"] == 0:
    Path(os.environ["SM_MODEL_DIR"], "weights.json").write_text(json.dumps(weights.numpy().tolist()))

"""Train with MultiWorkerMirroredStrategy and `fit`. The SageMaker toolkit lists the workers in TF_CONFIG.

`fit` of Keras 3 fails on several hosts: start the job with the environment variable TF_USE_LEGACY_KERAS=1.
"""

import json
import os
import tempfile
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

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
history = model.fit(data.with_options(options), epochs=4, steps_per_epoch=25, verbose=0)
print(f"loss {history.history['loss'][-1]:.4f}", flush=True)
assert history.history["loss"][-1] < history.history["loss"][0] / 2, "the loss did not fall"

# All workers save, because that synchronizes them. Only the chief's file is the job's model.
with tempfile.TemporaryDirectory() as scratch:
    model.save(Path(os.environ["SM_MODEL_DIR"] if task["index"] == 0 else scratch, "model.keras"))

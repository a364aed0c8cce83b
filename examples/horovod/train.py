"""Train with Horovod: each rank has a part of the data, and Horovod averages the gradients."""

import json
import os
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
rank, size = hvd.rank(), hvd.size()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
print(f"rank {rank} of {size} on {os.uname().nodename}, {hvd.local_rank()} of {hvd.local_size()}", flush=True)

# The gradient of (w + rank)² at 0 is 2 rank. Its average over all ranks is size - 1.
probe = tf.Variable(0.0)
with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    loss = (probe + rank) ** 2
[average] = (float(gradient) for gradient in tape.gradient(loss, [probe]))
print(f"gradient {2 * rank}, averaged {average:g}", flush=True)
assert average == size - 1, average

x = tf.random.stateless_uniform((256, 8), seed=(rank, 1))
y = tf.reduce_sum(x, axis=1, keepdims=True)
weights = tf.Variable(tf.random.stateless_uniform((8, 1), seed=(rank, 2)))
hvd.broadcast_variables([weights], root_rank=0)
for _ in range(100):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    [gradient] = tape.gradient(loss, [weights])
    weights.assign_sub(0.2 * gradient)

# The ranks used different data but have the same weights.
gathered = hvd.allgather(tf.transpose(weights))
assert bool(tf.reduce_all(gathered == gathered[0])), "the ranks' weights differ"
if rank == 0:
    print(f"loss {float(loss):.4f}", flush=True)
    Path(os.environ["SM_MODEL_DIR"], "weights.json").write_text(json.dumps(weights.numpy().tolist()))

"""Checks of Keras 2 next to TensorFlow's Keras 3."""

import json
import os
import socket
import subprocess
import sys
from importlib.metadata import version

_TRAINS = """
import tensorflow
with tensorflow.distribute.MultiWorkerMirroredStrategy().scope():
    model = tensorflow.keras.Sequential([tensorflow.keras.layers.Dense(1)])
    model.compile(loss="mse")
data = tensorflow.data.Dataset.from_tensors((tensorflow.ones((4, 2)), tensorflow.ones((4, 1)))).repeat()
model.fit(data, steps_per_epoch=2, verbose=0)
"""


def installed() -> str:
    return version("tf-keras")


def check_trains_on_two_workers() -> None:
    """`fit` trains on two workers of MultiWorkerMirroredStrategy."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        workers = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, other)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        variables = {"TF_CONFIG": json.dumps(config), "TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-c", _TRAINS]
        processes.append(
            subprocess.Popen(
                command,
                env=os.environ | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    logs = [process.communicate(timeout=300)[0] for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(logs)[-2000:]

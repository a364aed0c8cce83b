"""Checks of TensorFlow and the CUDA libraries of its wheels."""

import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version


def installed() -> str:
    import tensorflow

    return str(tensorflow.__version__)


def provided() -> dict[str, str]:
    """Return the versions of the CUDA wheels; empty in a CPU build."""
    wheels = {"cuda": "nvidia-cuda-runtime-cu12", "cudnn": "nvidia-cudnn-cu12", "nccl": "nvidia-nccl-cu12"}
    try:
        found = {name: version(package) for name, package in wheels.items()}
    except PackageNotFoundError:
        return {}
    return found | {"cuda": ".".join(found["cuda"].split(".")[:2])}


def check_multiplies() -> None:
    import tensorflow

    product = tensorflow.linalg.matvec(tensorflow.eye(3), [0.0, 1.0, 2.0])
    assert product.numpy().tolist() == [0.0, 1.0, 2.0]


def check_writes_for_tensorboard() -> None:
    """The callback of Keras writes a loss that TensorBoard reads, and TensorBoard's program starts."""
    import tensorflow

    model = tensorflow.keras.Sequential([tensorflow.keras.layers.Dense(1)])
    model.compile(loss="mse")
    with tempfile.TemporaryDirectory() as directory:
        callback = tensorflow.keras.callbacks.TensorBoard(directory, write_graph=False)
        model.fit(tensorflow.ones((4, 2)), tensorflow.ones((4, 1)), callbacks=[callback], verbose=0)
        command = [sys.executable, "-m", "tensorboard.main", "--inspect", "--logdir", directory]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "epoch_loss" in text, text

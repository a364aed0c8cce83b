"""Checks of TensorFlow and the CUDA libraries of its wheels."""

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

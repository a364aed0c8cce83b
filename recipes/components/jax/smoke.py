"""Checks of JAX, Optax and the CUDA libraries of their wheels."""

from __future__ import annotations

import unittest
from importlib.metadata import PackageNotFoundError, version


def installed() -> str:
    import jax

    return str(jax.__version__)


def provided() -> dict[str, str]:
    """Return the versions of the CUDA wheels; empty in a CPU build."""
    wheels = {"cuda": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn-cu13", "nccl": "nvidia-nccl-cu13"}
    try:
        found = {name: version(package) for name, package in wheels.items()}
    except PackageNotFoundError:
        return {}
    return found | {"cuda": ".".join(found["cuda"].split(".")[:2])}


def check_minimizes() -> None:
    """A compiled step of Optax lowers a loss."""
    import jax
    import optax

    def loss(weight: jax.Array) -> jax.Array:
        return ((weight - jax.numpy.arange(3.0)) ** 2).sum()

    optimizer = optax.sgd(0.25)
    weight = jax.numpy.zeros(3)
    state = optimizer.init(weight)
    for _ in range(3):
        updates, state = optimizer.update(jax.jit(jax.grad(loss))(weight), state)
        weight = optax.apply_updates(weight, updates)
    assert weight.tolist() == [0.0, 0.875, 1.75], weight


def check_computes_on_gpu() -> None:
    import jax

    if not provided():
        # A CPU build: the check does not apply.
        reason = ""
        raise unittest.SkipTest(reason)
    if jax.default_backend() != "gpu":
        reason = "no GPU is available"
        raise unittest.SkipTest(reason)
    # Below 2**24, sums of whole numbers are exact in any order
    values = jax.numpy.arange(256.0)
    assert float((values * values).sum()) == sum(number * number for number in range(256))

"""Check JAX on this machine's GPUs: kernels on each, and NCCL over one and all of them.

`python3 gpu.py [--gpus N]` only needs JAX. The exit code is 1 if a check fails or another number of GPUs is
found, and 2 without GPUs.
"""

from __future__ import annotations

import argparse
import sys

import jax  # type: ignore[import-not-found]
import numpy  # type: ignore[import-not-found]

ELEMENTS = 10**6


def kernels(device: jax.Device) -> None:
    """Compare a product and a convolution on a device with the results of numpy and of the CPU."""
    random = numpy.random.default_rng(0)
    left, right = (random.random((512, 512), dtype="float32") for _ in range(2))
    image = random.random((2, 3, 64, 64), dtype="float32")
    filters = random.random((4, 3, 3, 3), dtype="float32")

    def convolved(where: jax.Device) -> numpy.ndarray:
        values = jax.device_put(image, where), jax.device_put(filters, where)
        return numpy.asarray(jax.lax.conv(*values, (1, 1), "SAME", precision="highest"))

    product = jax.numpy.matmul(
        jax.device_put(left, device), jax.device_put(right, device), precision="highest"
    )
    assert product.devices() == {device}, f"it was computed on {product.devices()}, not on {device}"
    # cuDNN's convolutions may use TF32
    for kind, off in (
        ("product", abs(numpy.asarray(product) - left @ right).max()),
        ("convolution", abs(convolved(device) - convolved(jax.devices("cpu")[0])).max()),
    ):
        assert off < 1e-2, f"the {kind} on {device} is off by {off}"


def all_reduce(devices: list[jax.Device]) -> None:
    """Sum a different number of each device; raise if a device has a wrong sum."""
    numbers = numpy.arange(1.0, len(devices) + 1, dtype="float32")[:, None].repeat(ELEMENTS, 1)
    summed = jax.pmap(lambda row: jax.lax.psum(row, "gpus"), axis_name="gpus", devices=devices)(numbers)
    expected = len(devices) * (len(devices) + 1) / 2
    for device, row in zip(devices, numpy.asarray(summed), strict=True):
        values = numpy.unique(row).tolist()
        assert values == [expected], f"{device} got {values[:3]}, not {expected}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=0, help="number of GPUs that JAX must find")
    arguments = parser.parse_args()
    if jax.default_backend() != "gpu":
        print(f"JAX {jax.__version__} finds no GPU")
        return 2
    devices = jax.local_devices()
    assert arguments.gpus in (0, len(devices)), f"JAX finds {len(devices)} GPUs, not {arguments.gpus}"
    print(f"JAX {jax.__version__} finds {len(devices)} GPUs: {devices[0].device_kind}", flush=True)
    for device in devices:
        kernels(device)
        print(f"{device}: kernels agree with the CPU", flush=True)
    for size in sorted({1, len(devices)}):
        all_reduce(devices[:size])
        print(f"NCCL all-reduce over {size} GPU{'s' * (size > 1)} gave the right sum", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Check TensorFlow on this machine's GPUs: kernels on each, and NCCL over one and all of them.

`python3 gpu.py [--gpus N]` only needs TensorFlow 1.14 or newer. The exit code is 1 if a check
fails or another number of GPUs is found, and 2 without GPUs.
"""

import argparse
import sys
from typing import Any

import numpy  # type: ignore[import-not-found]
import tensorflow  # type: ignore[import-untyped]

ELEMENTS = 10**6


def kernels(device: str) -> None:
    """Compare a product and a convolution on a device with the results of numpy and of the CPU."""
    random = numpy.random.RandomState(0)
    left, right = (random.rand(512, 512).astype("float32") for _ in range(2))
    image, filters = random.rand(2, 64, 64, 3).astype("float32"), random.rand(3, 3, 3, 4).astype("float32")
    with tensorflow.device(device):
        product = tensorflow.matmul(tensorflow.constant(left), tensorflow.constant(right))
        result = tensorflow.nn.conv2d(tensorflow.constant(image), tensorflow.constant(filters), 1, "SAME")
    for tensor in (product, result):
        assert tensor.device.endswith(device), f"it was computed on {tensor.device}, not on {device}"
    with tensorflow.device("/CPU:0"):
        expected = tensorflow.nn.conv2d(image, filters, 1, "SAME").numpy()
    # cuDNN's convolutions may use TF32
    for kind, off, limit in (
        ("product", abs(product.numpy() - left @ right).max(), 1e-2),
        ("convolution", abs(result.numpy() - expected).max(), 1e-2),
    ):
        assert off < limit, f"the {kind} on {device} is off by {off}"


def all_reduce(devices: "list[str]", algorithm: Any) -> None:
    """Sum a different number of each device with MirroredStrategy; raise if a device has a wrong sum."""
    strategy = tensorflow.distribute.MirroredStrategy(devices, cross_device_ops=algorithm)
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2

    def replica() -> Any:
        context = tensorflow.distribute.get_replica_context()
        rank = tensorflow.cast(context.replica_id_in_sync_group, tensorflow.float32)
        return context.all_reduce(tensorflow.distribute.ReduceOp.SUM, tensorflow.fill([ELEMENTS], rank + 1.0))

    sums = strategy.experimental_local_results(tensorflow.function(lambda: run(replica))())
    assert len(sums) == len(devices), f"{len(sums)} devices took part, not {len(devices)}"
    expected = len(devices) * (len(devices) + 1) / 2
    for device, numbers in zip(devices, sums):  # noqa: B905 - Python 3.6 has no `strict`
        values = numpy.unique(numbers.numpy()).tolist()
        assert values == [expected], f"{device} got {values[:3]}, not {expected}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=0, help="number of GPUs that TensorFlow must find")
    arguments = parser.parse_args()
    tensorflow.compat.v1.enable_eager_execution()
    config = tensorflow.config
    if hasattr(config.experimental, "enable_tensor_float_32_execution"):
        config.experimental.enable_tensor_float_32_execution(False)
    found = config.experimental.list_physical_devices("GPU")
    for device in found:
        config.experimental.set_memory_growth(device, True)
    if not found:
        print(f"TensorFlow {tensorflow.__version__} finds no GPU")
        return 2
    assert arguments.gpus in (0, len(found)), f"TensorFlow finds {len(found)} GPUs, not {arguments.gpus}"
    print(f"TensorFlow {tensorflow.__version__} finds {len(found)} GPUs", flush=True)
    devices = [f"GPU:{number}" for number in range(len(found))]
    for device in devices:
        kernels(device)
        print(f"{device}: kernels agree with the CPU", flush=True)
    for size in sorted({1, len(devices)}):
        all_reduce(devices[:size], tensorflow.distribute.NcclAllReduce())
        print(f"NCCL all-reduce over {size} GPU{'s' * (size > 1)} gave the right sum", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

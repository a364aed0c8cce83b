"""Checks of the stubs of CUDA."""

import ctypes
from pathlib import Path

LIBRARIES = Path("/opt/cuda-stubs/lib")


def installed() -> str:
    (runtime,) = LIBRARIES.glob("libcudart.so.*")
    return runtime.name.removeprefix("libcudart.so.")


def check_runtime_finds_no_gpu() -> None:
    no_device = 100
    assert ctypes.CDLL(str(next(LIBRARIES.glob("libcudart.so.*")))).cudaDeviceSynchronize() == no_device

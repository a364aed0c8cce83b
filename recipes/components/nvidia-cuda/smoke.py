"""Versions in NVIDIA's image: CUDA, cuDNN and Ubuntu."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path


def installed() -> str:
    return os.environ["CUDA_VERSION"]


def provided() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    found = {"ubuntu": release["VERSION_ID"].strip('"'), "glibc": platform.libc_ver()[1]}
    for library in Path("/usr/local/cuda/lib64").glob("libcudart.so.*.*"):
        number = ctypes.c_int()
        ctypes.CDLL(str(library)).cudaRuntimeGetVersion(ctypes.byref(number))
        found["cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    for library in Path("/usr/lib/x86_64-linux-gnu").glob("libcudnn.so.[0-9]"):
        version = ctypes.CDLL(str(library)).cudnnGetVersion()
        unit = 1000 if version < 10000 else 10000  # 8.9.6 is 8906, 9.8.0 is 90800
        found["cudnn"] = f"{version // unit}.{version % unit // 100}.{version % 100}"
    return found

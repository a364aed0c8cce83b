"""Checks of NCCL."""

import ctypes
import os
from pathlib import Path


def installed() -> str:
    number = ctypes.c_int()
    assert ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number)) == 0
    # Version 2.8.4 is 2804, and 2.9.8 is 20908.
    major = number.value // (10000 if number.value >= 10000 else 1000)
    return f"{major}.{number.value // 100 % (100 if number.value >= 10000 else 10)}.{number.value % 100}"


def check_there_is_no_other() -> None:
    directories = ["/usr/lib/x86_64-linux-gnu", *os.environ["LD_LIBRARY_PATH"].split(":")]
    libraries = {
        path.resolve()
        for directory in directories
        if directory
        for path in Path(directory).glob("libnccl.so*")
    }
    assert len(libraries) == 1, sorted(map(str, libraries))

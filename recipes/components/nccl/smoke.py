"""NCCL as the image has it."""

import ctypes
import os
from pathlib import Path


def installed() -> str:
    number = ctypes.c_int()
    assert ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number)) == 0
    # To 2.8 it was 2804, from 2.9 it is 20908
    major = number.value // (10000 if number.value >= 10000 else 1000)
    return f"{major}.{number.value // 100 % (100 if number.value >= 10000 else 10)}.{number.value % 100}"


def check_there_is_no_other() -> None:
    folders = ["/usr/lib/x86_64-linux-gnu", *os.environ["LD_LIBRARY_PATH"].split(":")]
    found = {path.resolve() for folder in folders if folder for path in Path(folder).glob("libnccl.so*")}
    assert len(found) == 1, sorted(map(str, found))

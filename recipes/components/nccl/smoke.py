"""NCCL as the image has it."""

import ctypes
import os
from pathlib import Path


def installed() -> str:
    number = ctypes.c_int()
    assert ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number)) == 0
    return f"{number.value // 10000}.{number.value % 10000 // 100}.{number.value % 100}"


def check_there_is_no_other() -> None:
    folders = ["/usr/lib/x86_64-linux-gnu", *os.environ["LD_LIBRARY_PATH"].split(":")]
    found = {path.resolve() for folder in folders if folder for path in Path(folder).glob("libnccl.so*")}
    assert len(found) == 1, sorted(map(str, found))

"""RMM's library as the image has it. It can't tell its version."""

import ctypes
import unittest


def check_can_be_loaded() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        reason = "no NVIDIA driver in sight"
        raise unittest.SkipTest(reason) from error
    ctypes.CDLL("librmm.so")

"""RMM's library as the image has it. It can't tell its version."""

import ctypes


def check_can_be_loaded() -> None:
    """With the CUDA runtime that it was compiled for."""
    assert ctypes.CDLL("librmm.so").cnmemGetErrorString
